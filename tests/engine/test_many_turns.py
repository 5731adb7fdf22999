"""Ten thousand short turns with cancels, adapters, grammars, drafts, embeddings and evictions: memory
stays flat, every request ends, and no KV page is lost.
"""

from __future__ import annotations

import json
import queue
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

import tiny
import tiny_lora
from engine import (
    AdaptersSet,
    AdapterUse,
    Chat,
    Constraint,
    ConstraintKind,
    CountTokens,
    DraftKind,
    DraftSet,
    Embed,
    Embedded,
    Engine,
    Event,
    Failed,
    Finished,
    Load,
    Metrics,
    MetricsRead,
    ModelLoaded,
    Priority,
    Request,
    RequestHandle,
    Role,
    Sampling,
    Save,
    SetAdapters,
    SetDraft,
    SnapshotSaved,
    Text,
    TokensCounted,
    Turn,
    resident_memory,
)

TURNS = 10_000
TOGETHER = 4  # requests in progress
CONTEXT = 700
BUDGET_PAGES = 14  # of 256 tokens: two or three conversations
SNAPSHOT_BYTES = 3_000_000
MOST_GROWTH = 12_000_000  # bytes
WAIT_SECONDS = 120
WORDS = ("forest", "harbour", "kitchen", "mountain", "library", "üñï", "🙂")
CONSTRAINTS = (
    None,
    None,
    Constraint(ConstraintKind.CHOICES, json.dumps(["yes", "no", "perhaps"])),
    Constraint(ConstraintKind.REGEX, "[a-z]{3,12}(, [a-z]+)*"),
    Constraint(
        ConstraintKind.JSON_SCHEMA,
        json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}),
    ),
)
_LAST = (AdaptersSet, Embedded, Failed, MetricsRead, SnapshotSaved, TokensCounted)


@dataclass
class Turns:
    """Keeps random requests in progress."""

    folder: Path
    random: random.Random
    events: queue.Queue[Event] = field(default_factory=queue.Queue)
    number: int = 10
    open: set[int] = field(default_factory=set)
    cancel_at: dict[int, int] = field(default_factory=dict)  # request: tokens
    reasons: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.engine = Engine()
        self.handles: dict[int, RequestHandle] = {}
        self.adapters = [
            tiny_lora.write(self.folder / f"{at}.gguf", self.folder / "model.gguf", seed=at)
            for at in range(3)
        ]

    def start(self) -> None:
        self.engine.start()
        self.submit(1, Load(self.folder / "model.gguf", context=CONTEXT))
        self.wait_for(ModelLoaded)
        self.submit(2, SetDraft(self.folder / "draft.gguf"))
        self.wait_for(DraftSet)
        host = self.engine._loop._residents.main.session
        assert host is not None
        self.scheduler = host._scheduler
        pool = self.scheduler.pool
        pool.budget_bytes = BUDGET_PAGES * pool.layout.bytes_per_page
        pool.most_lent_bytes = pool.layout.bytes_per_page

    def wait_for(self, kind: type[Event]) -> None:
        while not isinstance(event := self.events.get(timeout=WAIT_SECONDS), kind):
            assert not isinstance(event, Failed), event

    def send(self) -> None:
        """Send one random request; most are answers."""
        self.number += 1
        self.open.add(self.number)
        self.submit(self.number, self.request(self.number))
        if self.random.random() < 0.05:
            self.handles[self.random.choice(sorted(self.open))].cancel()

    def submit(self, number: int, request: Request) -> None:
        """Submit a request, whose events have this number."""
        self.handles[number] = self.engine.submit(
            request,
            lambda event: self.events.put(replace(event, request=number)),
            Priority.BACKGROUND if self.random.random() < 0.1 else Priority.NORMAL,
        )

    def request(self, number: int) -> Request:
        some = self.random
        kind = some.random()
        if kind < 0.04:
            return SetAdapters(self.stack())
        if kind < 0.07:
            answer = self.handles[some.choice(sorted(self.handles))]
            name = getattr(answer.request, "conversation", "chat 0")
            return Save(name, SNAPSHOT_BYTES, answer.id)
        if kind < 0.09:
            return Embed(tuple(some.choices(WORDS, k=some.randint(1, 5))))
        if kind < 0.10:
            return Metrics()
        if kind < 0.12:
            return CountTokens(" ".join(some.choices(WORDS, k=9)))
        if some.random() < 0.15:
            self.cancel_at[number] = some.randint(1, 12)
        chat = some.randrange(6)
        turns = [Turn(Role.USER, f"Chat {chat}: {WORDS[chat]} " * some.choice((1, 3, 12)))]
        if some.random() < 0.5:
            turns += [Turn(Role.ASSISTANT, "words " * some.randint(1, 9)), Turn(Role.USER, "more")]
        return Chat(
            tuple(turns),
            Sampling(
                temperature=some.choice((0.0, 0.9)),
                seed=some.randrange(100),
                banned=some.choice(((), (), ("zq",))),
            ),
            max_tokens=some.randint(1, 24),
            conversation=f"chat {chat}",
            adapters=some.choice((None, None, self.stack())),
            answers=some.choice((1, 1, 1, 2)),
            drafts=some.choice(tuple(DraftKind)),
            constraint=some.choice(CONSTRAINTS),
            logprobs=some.choice((0, 0, 2)),
            budget_bytes=SNAPSHOT_BYTES,
        )

    def stack(self) -> tuple[AdapterUse, ...]:
        chosen = self.random.sample(self.adapters, self.random.randrange(3))
        return tuple(AdapterUse(path, self.random.choice((0.5, 1.0))) for path in chosen)

    def receive(self) -> None:
        """Handle one event."""
        event = self.events.get(timeout=WAIT_SECONDS)
        if isinstance(event, Text):
            at = self.cancel_at.get(event.request, 0)
            if at and event.generated_tokens >= at:
                self.handles[event.request].cancel()
        ended = isinstance(event, _LAST) or (isinstance(event, Finished) and event.last)
        if ended:
            self.open.remove(event.request)  # KeyError: it ended twice
            self.cancel_at.pop(event.request, None)
        if isinstance(event, Failed):
            self.reasons[event.message] = self.reasons.get(event.message, 0) + 1
        elif isinstance(event, Finished):
            name = event.reason.value
            self.reasons[name] = self.reasons.get(name, 0) + 1

    def run(self, turns: int) -> None:
        for _ in range(turns):
            while len(self.open) >= TOGETHER:
                self.receive()
            self.send()
        while self.open:
            self.receive()

    def check_pages(self) -> None:
        """All pages in use are those of the prefix tree, or on their way to the disk."""
        assert not self.scheduler.is_busy
        assert self.engine._loop._residents.main.session is not None
        self.engine._loop._wait_for_saver()
        self.scheduler.tree.clear()
        assert self.scheduler.pool.used_bytes == 0
        assert self.scheduler.pool.lent_bytes == 0


@pytest.fixture
def turns(tmp_path: Path) -> Iterator[Turns]:
    tiny.write(tmp_path / "model.gguf", context=CONTEXT)
    tiny.write(tmp_path / "draft.gguf", context=CONTEXT, layers=1)
    made = Turns(tmp_path, random.Random(24))
    made.start()
    yield made
    made.engine.stop()


@pytest.mark.sweep
def test_a_few_hundred_turns_lose_no_page(turns: Turns) -> None:
    turns.run(300)
    turns.check_pages()
    assert set(turns.reasons) <= {"end", "stop", "length", "context", "cancelled"}, turns.reasons


@pytest.mark.slow
def test_memory_stays_flat_over_ten_thousand_turns(turns: Turns) -> None:
    sizes: list[int] = []
    for _ in range(10):
        turns.run(TURNS // 10)
        sizes.append(resident_memory())
    grown = min(sizes[-3:]) - min(sizes[2:5])  # it goes up and down with pages being written
    turns.check_pages()
    assert set(turns.reasons) <= {"end", "stop", "length", "context", "cancelled"}, turns.reasons
    assert turns.reasons["cancelled"] > TURNS // 100
    assert grown < MOST_GROWTH
