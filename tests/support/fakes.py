"""Fake engine: records the requests it receives and delivers the events a test chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, make_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from engine import (
    AdapterInfo,
    AdaptersSet,
    ApplyTemplate,
    Chat,
    CountTokens,
    DevicePart,
    DeviceRefusal,
    Event,
    Failed,
    Fault,
    Finished,
    FinishReason,
    ImagePart,
    Load,
    LoadProgress,
    ModelLoaded,
    ModelUnloaded,
    Priority,
    PromptProgress,
    Request,
    Restore,
    Sampling,
    Save,
    SetAdapters,
    SnapshotLoaded,
    SnapshotSaved,
    TemplateApplied,
    Text,
    Thought,
    TokensCounted,
    ToolCallDelta,
    Unload,
)

CONTEXT = 8192


@dataclass(frozen=True)
class Cancel:
    """That a test's engine was told to cancel a request."""

    request: int


@cache
def _numbered(kind: type[Request]) -> type[Any]:
    """The class of requests of a kind that have their id as `request`."""
    number = ("request", int, field(kw_only=True))
    return make_dataclass(kind.__name__, [number], bases=(kind,), frozen=True, slots=True)


def kind_of(command: object) -> type:
    """The class of a recorded request."""
    return type(command) if isinstance(command, Cancel) else type(command).__bases__[0]


@dataclass(frozen=True)
class FakeHandle:
    """The handle of a request; cancelling it is recorded."""

    id: int
    commands: list[Any]

    def cancel(self) -> None:
        self.commands.append(Cancel(self.id))


def words_in(request: ApplyTemplate) -> int:
    """The tokens of a prompt by this engine: its words."""
    return sum(len(turn.text.split()) for turn in request.turns)


class FakeEngine:
    """Has the interface of `engine.Engine`; events are delivered only by a test's call.

    With `answers` it replies by itself: loads succeed at once, and each `Chat` streams the next
    of the texts, word by word.
    """

    def __init__(self, notify: Callable[[Event], None], answers: list[str] | None = None) -> None:
        self.deliver = notify  # of all events: the app has one place for them
        self.commands: list[Any] = []  # the requests, each with its id as `request`, and `Cancel`
        self.priorities: dict[int, Priority] = {}  # by id
        self._last = 0  # id of the last request
        self.answers = answers
        self.running = False
        self.counts = True  # tokens are counted at once
        self.image_tokens: Callable[[ImagePart], int] = lambda image: 0
        self._ended: set[int] = set()  # requests of answers
        self._calls: dict[int, int] = {}  # index of the last call, by request

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        self.running = False

    def submit(
        self, request: Request, deliver: Callable[[Event], None], priority: Priority
    ) -> FakeHandle:
        self._last += 1
        values = {each.name: getattr(request, each.name) for each in fields(request)}
        command = _numbered(type(request))(**values, request=self._last)
        self.commands.append(command)
        self.priorities[self._last] = priority
        handle = FakeHandle(self._last, self.commands)
        if isinstance(command, CountTokens) and self.counts:
            images = sum(map(self.image_tokens, command.images))
            self.deliver(TokensCounted(command.request, len(command.text.split()) + images))
        if isinstance(command, ApplyTemplate) and self.counts:
            self.deliver(TemplateApplied(command.request, "", words_in(command)))
        if self.answers is not None and isinstance(command, Load):
            self.finish_load()
        if self.answers and isinstance(command, Chat):
            self.write(self.answers.pop(0))
            self.finish()
        return handle

    # --- requests received ------------------------------------------------------------------

    def last(self, kind: type) -> Any:
        """The newest request of a kind."""
        return next(command for command in reversed(self.commands) if isinstance(command, kind))

    @property
    def load(self) -> Any:
        return self.last(Load)

    @property
    def last_generate(self) -> Any:
        return self.last(Chat)

    def count(self, kind: type) -> int:
        return sum(isinstance(command, kind) for command in self.commands)

    # --- events to deliver ------------------------------------------------------------------

    def progress(self, share: float) -> None:
        """Report that this share of the file is loaded, 0 to 1."""
        self.deliver(LoadProgress(self.load.request, int(98e6 * share), int(98e6)))

    def finish_load(
        self,
        name: str = "Small Model 135M",
        request: int = 0,
        sampling: Sampling | None = None,
        offloaded: int = 0,
        runs_on: tuple[DevicePart, ...] = (),
        moved: DeviceRefusal | None = None,
        *,
        can_think: bool = False,
        can_call: bool = True,
        template_problem: str = "",
        unusable: tuple[str, ...] = (),
        encoder: Path | None = None,
    ) -> None:
        """Report the model as loaded; so many of its layers are read from the disk."""
        load = self.load
        self.deliver(
            ModelLoaded(
                request=request or load.request,
                path=load.path,
                name=name,
                architecture="llama",
                layout="4-bit, groups of 32",
                parameters=134_515_008,
                context=CONTEXT,
                file_bytes=98_362_432,
                memory_bytes=712_000_000,
                kernels="reference",
                slow=(),
                seconds=0.8,
                format="Q4_1",
                sampling=sampling,
                sampling_fields=_fields(sampling),
                offloaded_layers=offloaded,
                offloaded_bytes=offloaded * 100_000_000,
                offloaded_seconds=offloaded * 0.1,
                runs_on=runs_on,
                moved=moved,
                has_thinking_switch=can_think,
                can_think=can_think,
                can_call=can_call,
                template_problem=template_problem,
                sampling_unusable=unusable,
                encoder=encoder,
            )
        )

    def fail_load(
        self, message: str, remedy: str, *, model_gone: bool = True, fault: Fault | None = None
    ) -> None:
        if model_gone:
            self.deliver(ModelUnloaded(self.load.request))
        self.deliver(Failed(self.load.request, message, remedy, fault=fault or Fault()))

    def cancel_load(self) -> None:
        """End a cancelled load, with no model loaded before it."""
        assert self.last(Cancel).request == self.load.request
        self.deliver(ModelUnloaded(self.load.request))

    def finish_unload(self, freed_bytes: int = 612_000_000) -> None:
        self.deliver(ModelUnloaded(self.last(Unload).request, freed_bytes, 90_000_000))

    def set_adapters(self, *, changed: bool = True) -> None:
        """Report that the requested adapter stack is applied."""
        command = self.last(SetAdapters)
        infos = tuple(
            AdapterInfo(
                use.path, use.path.stem, "5a" * 32, "GGUF", 16, 210, 4_900_000, use.strength
            )
            for use in command.adapters
        )
        self.deliver(AdaptersSet(command.request, infos, changed))

    def load_snapshot(
        self, restored: int, ready: int, total: int, *, reading: float = 0.0, refused: str = ""
    ) -> None:
        """Report that the conversation's snapshot was restored, or refused and why."""
        request = self.last(Restore).request
        self.deliver(SnapshotLoaded(request, restored, ready, total, 0.2, reading, refused))

    def save_snapshot(self, tokens: int = 4096) -> None:
        self.deliver(SnapshotSaved(self.last(Save).request, tokens, 96_000_000, 0.3, 0))

    @property
    def unfinished(self) -> list[Any]:
        """The answers requested and not ended, the oldest first."""
        generates = (command for command in self.commands if isinstance(command, Chat))
        return [command for command in generates if command.request not in self._ended]

    # The events of an answer; request 0 is that of the newest one.

    def report_prompt_progress(
        self, done: int, total: int, dropped: int = 0, request: int = 0
    ) -> None:
        self.deliver(PromptProgress(self._request(request), done, total, 0, dropped))

    def write(self, text: str, tokens: int = 0, request: int = 0) -> None:
        """Stream a part of an answer, one event per word."""
        for index, piece in enumerate(_words(text)):
            count = tokens or index + 1
            self.deliver(Text(self._request(request), piece, count, 40 + count))

    def call(self, name: str, arguments: str = "{}", id: str = "", request: int = 0) -> None:
        """Stream a call of a tool, in two pieces; each call of an answer has an id of its own."""
        request = self._request(request)
        index = self._calls[request] = self._calls.get(request, -1) + 1
        half = len(arguments) // 2
        made = id or f"call_{request}_{index}"
        self.deliver(ToolCallDelta(request, index, made, name, arguments[:half], 5, 45))
        self.deliver(ToolCallDelta(request, index, "", "", arguments[half:], 9, 49))

    def think(self, text: str, request: int = 0) -> None:
        """Stream a part of the thoughts before an answer."""
        self.deliver(Thought(self._request(request), text, 1, 41))

    def interleave(self, texts: Mapping[int, str]) -> None:
        """Stream parts of several answers, by request: a word of each in turn."""
        words = {request: _words(text) for request, text in texts.items()}
        for index in range(max(map(len, words.values()), default=0)):
            for request, pieces in words.items():
                if index < len(pieces):
                    self.deliver(Text(request, pieces[index], index + 1, 41 + index))

    def finish(
        self,
        reason: FinishReason = FinishReason.END,
        tokens: int = 24,
        request: int = 0,
        *,
        prompt_tokens: int = 40,
        thought_tokens: int = 0,
        thought_seconds: float = 0.0,
        thought_budget_reached: bool = False,
    ) -> None:
        request = self._request(request)
        self._ended.add(request)
        self.deliver(
            Finished(
                request,
                reason,
                prompt_tokens,
                0,
                tokens,
                0.2,
                tokens / 38.5,
                prompt_tokens + tokens,
                7,
                thought_tokens=thought_tokens,
                thought_seconds=thought_seconds,
                thought_budget_reached=thought_budget_reached,
            )
        )

    def fail(self, message: str, remedy: str, *, full: bool = False, request: int = 0) -> None:
        request = self._request(request)
        self._ended.add(request)
        self.deliver(Failed(request, message, remedy, full))

    def _request(self, request: int) -> int:
        return request or self.last_generate.request


def _words(text: str) -> list[str]:
    """The words of a text, each with the space after it."""
    words = text.split(" ")
    return [word + " " for word in words[:-1]] + words[-1:]


MODEL = Path("/models/Small-Model-135M-Q4_1.gguf")


def _fields(sampling: Sampling | None) -> tuple[str, ...]:
    """The values that differ from the usual ones: what a file would set."""
    usual = asdict(Sampling())
    found = asdict(sampling or Sampling())
    return tuple(name for name, value in found.items() if value != usual[name])
