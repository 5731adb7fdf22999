"""The subcommands that answer: chat and complete, with sessions, constraints and drafts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

from engine.cli import options as options_of
from engine.cli.client import Client
from engine.cli.files import constraint
from engine.cli.options import Options
from engine.cli.output import Answer, print_status, report, write_metrics
from engine.cli.sampling_options import sampling
from engine.errors import RequestError, SnapshotError
from engine.messages import (
    Chat,
    Complete,
    Event,
    Finished,
    Metrics,
    MetricsRead,
    Restore,
    Role,
    Sampling,
    Save,
    SnapshotLoaded,
    SnapshotSaved,
    TaggedText,
    Text,
    TextPart,
    Thought,
    Turn,
)
from engine.state.disk.folder import is_snapshots_folder

_SESSION = "session"  # name of the one conversation in a folder of --session
_AMPLE_BYTES = 1 << 60


def chat(options: Options) -> None:
    """One turn through the model's chat template."""
    _answer(options, is_chat=True)


def complete(options: Options) -> None:
    """Raw continuation of a text; without one, of that of the session."""
    _answer(options, is_chat=False)


def turns_of(options: Options) -> tuple[Turn, ...]:
    """The turns of a chat."""
    system = (Turn(Role.SYSTEM, options.system),) if options.system else ()
    if images := options_of.images(options):
        return (*system, Turn(Role.USER, (*images, TextPart(options.prompt))))
    return (*system, Turn(Role.USER, options.prompt))


def request_of(
    options: Options,
    recommended: Sampling | None,
    prompt: str | tuple[int, ...] | tuple[Turn, ...],
) -> Chat | Complete:
    """The request that the options ask for, with turns or with a text or its token ids.

    `recommended` are the sampling parameters of the model file.
    """
    asked: dict[str, Any] = {
        "sampling": sampling(options, recommended),
        "max_tokens": options.max_tokens,
        "conversation": "" if options.session is None else _SESSION,
        "adapters": tuple(options_of.adapters(options)),
        "answers": options.answers,
        "stop_loops": not options.allow_loops,
        "drafts": options_of.drafts(options),
        "constraint": constraint(options),
        "logprobs": options.logprobs,
    }
    if not isinstance(prompt, str) and prompt and isinstance(prompt[0], Turn):
        thinking, budget = options_of.thinking(options)
        turns = cast("tuple[Turn, ...]", prompt)
        return Chat(turns, thinking=thinking, thinking_budget=budget, **asked)
    return Complete(cast("str | tuple[int, ...]", prompt), **asked)


def _check(options: Options) -> None:
    options_of.drafts(options)  # raises for options that contradict each other
    if options.session is not None and options.answers != 1:
        raise RequestError(
            "--session holds one answer, and --answers asks for several.", "Leave one of them out."
        )


def _answer(options: Options, *, is_chat: bool) -> None:
    """Stream the first answer to stdout and print others after it; with --json, one object.

    Ctrl-C ends the answers early; what they have is still printed and saved.
    """
    _check(options)
    turns = turns_of(options) if is_chat else ()
    # Encoding "" would give a token that begins a text; it means to continue the session instead.
    prompt = turns or options.prompt or ()
    request_of(options, None, prompt)  # raises for a bad option before the model is loaded
    answers = _Answers(options)
    with Client(options, _session(options)) as client:
        if options.session is not None:
            _restore(options, client, turns)
        request = request_of(options, client.model.sampling, prompt)
        number, is_interrupted = client.run(request, answers.receive)
        report(options, client.model, [one for one in answers.found if one.finished is not None])
        if options.metrics is not None:
            write_metrics(options.metrics, client.result(Metrics(), MetricsRead))
        if options.session is not None:
            saved = client.result(Save(_SESSION, _AMPLE_BYTES, number), SnapshotSaved)
            if not saved.tokens:
                print_status(f"[nothing was saved in {options.session}: no token has been read]")
    if is_interrupted:
        raise KeyboardInterrupt


class _Answers:
    """The answers so far; the text of the first one is streamed if it is alone."""

    def __init__(self, options: Options) -> None:
        self.found = [Answer() for _ in range(options.answers)]
        self._tagged = [TaggedText() for _ in self.found]
        self._streams = not options.json and options.answers == 1

    def receive(self, event: Event) -> None:
        """Take in an event of the request."""
        if isinstance(event, Text | Thought):
            answer, text = self.found[event.answer], self._tagged[event.answer].push(event)
            answer.text += text
            answer.logprobs += event.logprobs
            if self._streams:
                print(text, end="", flush=True)
        elif isinstance(event, Finished):
            self.found[event.answer].finished = event


def _restore(options: Options, client: Client, turns: tuple[Turn, ...] = ()) -> SnapshotLoaded:
    """Read what --session has of a prompt, or of the text saved last, into memory.

    Raises SnapshotError if it cannot be used.
    """
    text = options.prompt if not turns else ""
    adapters = tuple(options_of.adapters(options))
    found = client.result(Restore(turns, _SESSION, adapters=adapters, text=text), SnapshotLoaded)
    if found.refused:
        raise SnapshotError(
            found.refused,
            f"Give --session another name, or delete {options.session} to start over.",
            found.fault,
        )
    return found


def _session(options: Options) -> Path | None:
    """The folder of --session, links resolved; raises before the answer if it is not usable."""
    if options.session is None:
        return None
    path = Path(os.path.realpath(options.session))
    if path.exists() and not path.is_dir():
        raise RequestError(
            f"--session {options.session!r} is a file, and sessions are folders now.",
            "Give it another name; a file of an older version cannot be read any more.",
        )
    if path.is_dir() and any(path.iterdir()) and not is_snapshots_folder(path):
        raise RequestError(
            f"--session {options.session!r} is a folder of other files.",
            "Give it the name of a folder of its own.",
        )
    path.mkdir(parents=True, exist_ok=True)
    if not os.access(path, os.W_OK):
        raise RequestError(
            f"The folder of --session, {path}, is not writable.",
            "Give another name, or change the folder's permissions.",
        )
    return path
