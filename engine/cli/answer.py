"""The subcommands that answer: chat and complete, with sessions, constraints and drafts."""

from __future__ import annotations

import os
from contextlib import closing, nullcontext
from pathlib import Path

from engine.adapters.stack import Stack
from engine.cli import options as options_of
from engine.cli.files import constraint
from engine.cli.interruption import interruptible
from engine.cli.loading import adapter_stack, drafts, load_model
from engine.cli.options import Options
from engine.cli.output import Answer, report, write_metrics
from engine.cli.sampling_options import sampling
from engine.core.cancellation import Cancellation
from engine.core.request import AnswerEvent, AnswerRequest
from engine.core.scheduler import Scheduler
from engine.errors import RequestError, SnapshotError
from engine.frontend.constraints.resume_matcher import after_thoughts
from engine.frontend.reasoning_budget import ThoughtPlan
from engine.frontend.template import AnswerPrompt, prompt_ids
from engine.loading.identity import ModelFiles
from engine.loading.library import data_folder
from engine.loading.loader import LoadedModel
from engine.loading.metrics import read_metrics
from engine.messages import Finished, Role, TaggedText, Text, Thought, Turn
from engine.speculative.draft_registry import maker
from engine.state.disk import disk_tier, session_file
from engine.state.disk.folder import snapshots_size
from engine.state.disk.page_file import StateKey


def chat(options: Options) -> None:
    """One turn through the model's chat template."""
    _check(options)
    thinking, budget = options_of.thinking(options)
    model = load_model(options)
    system = (Turn(Role.SYSTEM, options.system),) if options.system else ()
    turns = (*system, Turn(Role.USER, options.prompt))
    opens = constraint(options) is not None
    prompt = model.template.render_answer(turns, enable_thinking=thinking, opens_thoughts=opens)
    fresh = prompt_ids(model.tokenizer, prompt.text)
    thoughts = ThoughtPlan(model.template.markers, budget, prompt.begun)
    _answer(options, model, fresh, prompt=prompt, thoughts=thoughts)


def complete(options: Options) -> None:
    """Raw continuation of a text."""
    _check(options)
    model = load_model(options)
    # Encoding "" would give a begin token; an empty prompt means to continue the session instead.
    _answer(options, model, model.tokenizer.encode(options.prompt) if options.prompt else [])


def _check(options: Options) -> None:
    options_of.drafts(options)  # raises for options that contradict each other
    if options.session is not None and options.answers != 1:
        raise RequestError(
            "--session holds one answer, and --answers asks for several.", "Leave one of them out."
        )


def _answer(
    options: Options,
    model: LoadedModel,
    fresh: list[int],
    *,
    prompt: AnswerPrompt | None = None,
    thoughts: ThoughtPlan | None = None,
) -> None:
    """Stream the first answer to stdout and print others after it; with --json, one object.

    The prefix shared with --session is reused; without a prompt, the session's last answer is
    continued. Ctrl-C ends the answers early; what they have is still printed and saved.
    """
    scheduler, stack = model.new_scheduler(), adapter_stack(options, model)
    wanted, begun = constraint(options), ""
    if prompt is not None:
        wanted, begun = after_thoughts(wanted, prompt.begun, model.template.markers)
    cached = _restored(options, model, scheduler, stack)
    draft_model = drafts(options, model)
    cancellation = Cancellation()
    answers = _Answers(options)
    with (
        interruptible(cancellation.cancel),
        closing(draft_model) if draft_model else nullcontext(),
    ):
        group = scheduler.submit(
            AnswerRequest(
                scheduler.spelled_as_cached(stack, fresh) if fresh else cached,
                sampling(options, model.sampling),
                max_tokens=options.max_tokens,
                stop=model.template.stop if prompt else (),
                opening=prompt.opening if prompt else "",
                thoughts=thoughts,
                count=options.answers,
                stop_loops=not options.allow_loops,
                stack=stack,
                drafter=maker(options_of.drafts(options), draft_model),
                constraint=wanted,
                begun=begun,
                logprobs=options.logprobs,
                deliver=answers.deliver,
                cancellation=cancellation,
            )
        )
        while not group.done:
            scheduler.step()
    if group.error is not None:
        raise group.error
    for number, tokens in group.answers.items():
        answers.answers[number].tokens = tokens
    report(options, model, [one for one in answers.answers if one.finished is not None])
    if options.metrics is not None:
        write_metrics(options.metrics, read_metrics(model, scheduler, 0, snapshots_size()))
    if options.session is not None:
        session_file.save(
            _session_path(options), scheduler, stack, group.tokens, _key(model, stack), model
        )
    if cancellation.is_cancelled:
        raise KeyboardInterrupt


class _Answers:
    """The answers so far; the text of the first one is streamed."""

    def __init__(self, options: Options) -> None:
        self.answers = [Answer() for _ in range(options.answers)]
        self._tagged = [TaggedText() for _ in self.answers]
        self._streams = not options.json and options.answers == 1

    def deliver(self, event: AnswerEvent) -> None:
        """Take in an event of the engine."""
        if isinstance(event, Text | Thought):
            text = self._tagged[event.answer].push(event)
            self.answers[event.answer].text += text
            self.answers[event.answer].logprobs += event.logprobs
            if self._streams:
                print(text, end="", flush=True)
        elif isinstance(event, Finished):
            self.answers[event.answer].finished = event


def _restored(
    options: Options, model: LoadedModel, scheduler: Scheduler, stack: Stack
) -> list[int]:
    """The tokens in the file of --session, if it exists; their KV pages are in the scheduler."""
    if options.session is None:
        return []
    path = _session_path(options)
    session_file.remove_leftovers(path)
    if not path.exists():
        return []
    try:
        return session_file.load(path, scheduler, stack, _key(model, stack))
    except SnapshotError as error:
        raise SnapshotError(
            str(error), f"Give --session another name, or delete {path} to start over."
        ) from error


def _session_path(options: Options) -> Path:
    """The file of --session, links resolved; raises before the answer if it is not writable."""
    path = Path(os.path.realpath(options.session))
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "not a regular file"
        raise RequestError(
            f"--session {options.session!r} is {kind}.", "Give it the name of a file."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise RequestError(
            f"The folder of --session, {path.parent}, is not writable.",
            "Give a name in another folder, or change the folder's permissions.",
        )
    return path


def _key(model: LoadedModel, stack: Stack) -> StateKey:
    paths = [Path(one.path) for one in model.files]
    files = ModelFiles(paths, model.files, data_folder() / "hashes.json")
    return disk_tier.identify(files, model, stack)
