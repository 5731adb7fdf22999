"""An engine with a thread of its own, whose events a test waits for."""

from __future__ import annotations

import queue
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gguf import GGUFReader

from engine import (
    DEFAULT_CACHE,
    AdaptersSet,
    AdapterUse,
    CacheType,
    Command,
    Engine,
    Event,
    Failed,
    Finished,
    Generate,
    LoadModel,
    LoadSnapshot,
    ModelLoaded,
    PromptProgress,
    Role,
    Sampling,
    SaveSnapshot,
    SetAdapters,
    SnapshotLoaded,
    SnapshotSaved,
    Text,
    Turn,
)
from engine.gguf.reader import GGUFFile
from engine.tokenizer.tokenizer import Tokenizer

GREEDY = Sampling(temperature=0)
SEEDED = Sampling(temperature=0.8, seed=11)
TIMEOUT_SECONDS = 60  # seconds for any one event, on a busy machine
AMPLE_BYTES = 1 << 40  # bytes of budget
E = TypeVar("E", bound=Event)


def turns_of(*texts: str) -> tuple[Turn, ...]:
    """The user's and the assistant's words in turn, the user's first."""
    roles = (Role.USER, Role.ASSISTANT)
    return tuple(Turn(roles[at % 2], text) for at, text in enumerate(texts))


def answer_text(events: list[Event]) -> str:
    """The answer among the events of one request."""
    return "".join(event.text for event in events if isinstance(event, Text))


def with_printable_output(path: Path) -> Path:
    """Make a tiny model choose letters, digits, signs and spaces only, and never end an answer.

    It must not break characters nor choose control tokens, for its text would not tell its ids.
    """
    with GGUFFile.open(path) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    tensors = {tensor.name: tensor for tensor in GGUFReader(path, "r+").tensors}
    head = tensors.get("output.weight", tensors["token_embd.weight"])
    for token in range(tokenizer.size):
        text = tokenizer.piece(token).decode("latin-1")
        if tokenizer.is_control(token) or not (text.isprintable() and text.isascii()):
            head.data[token] = 0  # a logit below the best of all the others
    head.data.base.flush()
    return path


class Bench:
    """An engine whose events are waited for."""

    def __init__(self) -> None:
        self.events: queue.Queue[Event] = queue.Queue()
        self.react: Callable[[Event], None] = lambda event: None
        self.engine = Engine(self._deliver)
        self.engine.start()

    def _deliver(self, event: Event) -> None:
        self.react(event)
        self.events.put(event)

    def until(self, *kinds: type) -> list[Event]:
        """Every event up to the first of these kinds."""
        seen: list[Event] = []
        while not seen or not isinstance(seen[-1], kinds):
            seen.append(self.events.get(timeout=TIMEOUT_SECONDS))
        return seen

    def load(
        self, path: Path, request: int = 1, cache: CacheType = DEFAULT_CACHE, context: int = 0
    ) -> ModelLoaded:
        self.engine.send(LoadModel(request, path, context=context, cache=cache))
        last = self.until(ModelLoaded, Failed)[-1]
        assert isinstance(last, ModelLoaded), last
        return last

    def generate(self, request: int, *texts: str, **options: object) -> list[Event]:
        sampling = options.pop("sampling", GREEDY)
        turns = turns_of(*texts)
        self.engine.send(Generate(request, turns, sampling=sampling, **options))  # type: ignore[arg-type]
        return self.until(Finished, Failed)

    def expect(self, command: Command, kind: type[E]) -> E:
        """Send a command; its last event, which must be of this kind."""
        self.engine.send(command)
        (*_, last) = self.until(kind, Failed)
        assert isinstance(last, kind), last
        assert last.request == command.request
        return last

    def save(
        self, request: int, conversation: str = "one", budget: int = AMPLE_BYTES
    ) -> SnapshotSaved:
        return self.expect(SaveSnapshot(request, conversation, budget), SnapshotSaved)

    def load_snapshot(self, request: int, *texts: str, conversation: str = "one") -> SnapshotLoaded:
        return self.expect(LoadSnapshot(request, turns_of(*texts), conversation), SnapshotLoaded)

    def set_adapters(self, request: int, *adapters: tuple[Path, float]) -> AdaptersSet:
        uses = tuple(AdapterUse(path, strength) for path, strength in adapters)
        return self.expect(SetAdapters(request, uses), AdaptersSet)


def finished(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished), events[-1]
    return events[-1]


def computed_prompt_tokens(events: list[Event]) -> int:
    """How many tokens of the prompt were computed."""
    progress = [event for event in events if isinstance(event, PromptProgress)]
    end = finished(events)
    assert progress[-1].done_tokens == end.prompt_tokens
    assert progress[0].reused_tokens == end.reused_tokens == progress[0].done_tokens
    return end.prompt_tokens - end.reused_tokens


def run_turns(bench: Bench, turns: int, tokens: int = 12) -> list[str]:
    """A conversation of so many questions, each answered; all its texts."""
    texts: list[str] = []
    for turn in range(turns):
        texts.append(f"question number {turn}")
        texts.append(answer_text(bench.generate(100 + turn, *texts, max_tokens=tokens)))
    return texts


def count_tokens(bench: Bench, request: int, *texts: str) -> int:
    """Tokens of a conversation, as it is rendered."""
    return bench.load_snapshot(request, *texts, conversation="nobody").total_tokens
