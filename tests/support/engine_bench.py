"""Engine test bench: a running `Engine` whose commands block until their last event arrives."""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from gguf import GGUFReader

from engine import (
    DEFAULT_CACHE,
    AdaptersSet,
    AdapterUse,
    CacheType,
    Chat,
    Engine,
    Event,
    Failed,
    Finished,
    Load,
    ModelLoaded,
    PromptProgress,
    Request,
    RequestHandle,
    Restore,
    Role,
    Sampling,
    Save,
    SetAdapters,
    SnapshotLoaded,
    SnapshotSaved,
    TaggedText,
    Text,
    Thought,
    Turn,
)
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.gguf.reader import GGUFFile

GREEDY = Sampling(temperature=0)
SEEDED = Sampling(temperature=0.8, seed=11)
TIMEOUT_SECONDS = 60  # for one event, on a busy machine
UNKNOWN = 1 << 40  # id of no request
AMPLE_BYTES = 1 << 40  # disk budget of snapshots that is never reached
E = TypeVar("E", bound=Event)


def turns_of(*texts: str) -> tuple[Turn, ...]:
    """Conversation turns with alternating roles, the user's first."""
    roles = (Role.USER, Role.ASSISTANT)
    return tuple(Turn(roles[at % 2], text) for at, text in enumerate(texts))


def answer_text(events: list[Event], *, is_thinking: bool = False) -> str:
    """The text of an answer, joined from the events of its request.

    `is_thinking`: it continues a text that ends in thoughts.
    """
    tagged = TaggedText(is_thinking=is_thinking)
    return "".join(tagged.push(event) for event in events if isinstance(event, Text | Thought))


def with_printable_output(path: Path) -> Path:
    """Make a tiny model generate printable ASCII tokens only, and never end an answer.

    Re-encoding such text gives the same token ids; partial characters and control tokens would not.
    """
    with GGUFFile.open(path) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    tensors = {tensor.name: tensor for tensor in GGUFReader(path, "r+").tensors}
    head = tensors.get("output.weight", tensors["token_embd.weight"])
    for token in range(tokenizer.size):
        text = tokenizer.piece(token).decode("latin-1")
        if tokenizer.is_control(token) or not (text.isprintable() and text.isascii()):
            head.data[token] = 0  # a logit of 0 is never the largest
    head.data.base.flush()
    return path


class Bench:
    """A running engine and the queue of its events, which carry the numbers that a test gives."""

    def __init__(self) -> None:
        self.events: queue.Queue[Event] = queue.Queue()
        self.react: Callable[[Event], None] = lambda event: None
        self.handles: dict[int, RequestHandle] = {}  # by the test's number, of the last one
        self._answer = 0  # number of the last answer
        self.engine = Engine(self._deliver)
        self.engine.start()

    def _deliver(self, event: Event) -> None:
        self.react(event)
        self.events.put(event)

    def send(self, number: int, request: Request, **options: Any) -> RequestHandle:
        """Submit a request, whose events have this number in place of its id."""
        if isinstance(request, Save) and request.answer in self.handles:
            request = replace(request, answer=self.handles[request.answer].id)

        def deliver(event: Event) -> None:
            self._deliver(replace(event, request=number))

        handle = self.handles[number] = self.engine.submit(request, deliver, **options)
        return handle

    def cancel(self, number: int) -> None:
        """Cancel the request of this number, if it was sent."""
        if number in self.handles:
            self.handles[number].cancel()

    def until(self, *kinds: type) -> list[Event]:
        """Wait for an event of one of these kinds; returns all events up to and including it."""
        seen: list[Event] = []
        while not seen or not isinstance(seen[-1], kinds):
            seen.append(self.events.get(timeout=TIMEOUT_SECONDS))
        return seen

    def load(
        self, path: Path, request: int = 1, cache: CacheType = DEFAULT_CACHE, context: int = 0
    ) -> ModelLoaded:
        self.send(request, Load(path, context=context, cache=cache))
        last = self.until(ModelLoaded, Failed)[-1]
        assert isinstance(last, ModelLoaded), last
        return last

    def generate(self, request: int, *texts: str, **options: object) -> list[Event]:
        sampling = options.pop("sampling", GREEDY)
        turns = turns_of(*texts)
        self._answer = request
        self.send(request, Chat(turns, sampling=sampling, **options))  # type: ignore[arg-type]
        return self.until(Finished, Failed)

    def expect(self, number: int, request: Request, kind: type[E]) -> E:
        """Submit a request and return its last event, which must be of this kind."""
        self.send(number, request)
        (*_, last) = self.until(kind, Failed)
        assert isinstance(last, kind), last
        assert last.request == number
        return last

    def saving(self, conversation: str = "one", budget: int = AMPLE_BYTES) -> Save:
        """The request that saves the last answer as one of this conversation."""
        return Save(conversation, budget, self._answer or UNKNOWN)

    def save(
        self, request: int, conversation: str = "one", budget: int = AMPLE_BYTES
    ) -> SnapshotSaved:
        return self.expect(request, self.saving(conversation, budget), SnapshotSaved)

    def load_snapshot(self, request: int, *texts: str, conversation: str = "one") -> SnapshotLoaded:
        return self.expect(request, Restore(turns_of(*texts), conversation), SnapshotLoaded)

    def set_adapters(self, request: int, *adapters: tuple[Path, float]) -> AdaptersSet:
        uses = tuple(AdapterUse(path, strength) for path, strength in adapters)
        return self.expect(request, SetAdapters(uses), AdaptersSet)


def finished(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished), events[-1]
    return events[-1]


def computed_prompt_tokens(events: list[Event]) -> int:
    """How many prompt tokens were prefilled rather than reused from the cache."""
    progress = [event for event in events if isinstance(event, PromptProgress)]
    end = finished(events)
    assert progress[-1].done_tokens == end.prompt_tokens
    assert progress[0].reused_tokens == end.reused_tokens == progress[0].done_tokens
    return end.prompt_tokens - end.reused_tokens


def run_turns(bench: Bench, turns: int, tokens: int = 12) -> list[str]:
    """Generate answers to `turns` questions in turn; returns all texts of the conversation."""
    texts: list[str] = []
    for turn in range(turns):
        texts.append(f"question number {turn}")
        texts.append(answer_text(bench.generate(100 + turn, *texts, max_tokens=tokens)))
    return texts


def count_tokens(bench: Bench, request: int, *texts: str) -> int:
    """Number of tokens of a conversation, rendered by the chat template."""
    return bench.load_snapshot(request, *texts, conversation="unsaved").total_tokens
