"""Random interleavings of requests against each run alone: equal ids, equal keys and values.

Requests are submitted, cancelled and preempted, cached pages evicted and adapters switched at
random between passes. Prompts share prefixes that end within pages and at their borders.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tiny
import tiny_lora
from answers import cached_rows, texts
from chosen_backend import ops
from engine.inference.generate import Request
from engine.inference.scheduler import Scheduler, Ticket
from engine.loading.loader import LoadedModel, load
from engine.lora.stack import Stack, load_adapter
from engine.messages import CacheType, Finished, FinishReason, Sampling
from kernels.cpu import library
from poisoned_pool import check_references, poisoned

CONTEXT = 600
ARCHITECTURES = ("llama", "qwen3", "gemma3")
SEEDED = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=1)
KEPT = (1, 30, 255, 256, 257, 400, 512)  # tokens of a common text at the beginning of a prompt
_QUICK = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


@dataclass(frozen=True)
class Asked:
    """A request of a test."""

    kept: int
    own: int  # tokens after the common ones, that differ between prompts
    seed: int
    stack: int
    count: int
    most: int
    background: bool

    @property
    def prompt(self) -> list[int]:
        common = [5 + at * 11 % 180 for at in range(self.kept)]
        return [*common, *(6 + (self.seed + at * 3) % 180 for at in range(self.own))]

    @property
    def sampling(self) -> Sampling:
        return replace(SEEDED, seed=self.seed) if self.seed else Sampling(temperature=0)


@dataclass
class Alone:
    """The answers of requests that ran alone on one model, computed once."""

    model: LoadedModel
    stacks: Sequence[Stack]
    known: dict[Asked, list[tuple[list[int], str]]] = field(default_factory=dict)

    def answers(self, asked: Asked) -> list[tuple[list[int], str]]:
        """Generated ids of each answer, and a hash of all its keys and values."""
        key = replace(asked, background=False)
        if key not in self.known:
            scheduler = self.model.new_scheduler()
            ticket = scheduler.run(request_of(asked, self.stacks))
            self.known[key] = [
                (tokens, rows_hash(scheduler, asked, tokens, self.stacks))
                for _, tokens in sorted(ticket.answers.items())
            ]
        return self.known[key]


def request_of(asked: Asked, stacks: Sequence[Stack]) -> Request:
    return Request(
        asked.prompt,
        asked.sampling,
        max_tokens=asked.most,
        count=asked.count,
        stack=stacks[asked.stack],
        background=asked.background,
    )


def rows_hash(
    scheduler: Scheduler, asked: Asked, tokens: list[int], stacks: Sequence[Stack]
) -> str:
    """A hash of the keys and values of an answer; "" if they are not all cached."""
    stack, text = stacks[asked.stack], [*asked.prompt, *tokens][:-1]
    if scheduler.tree.match(stack.key, text).length < len(text):
        return ""
    found = hashlib.sha256()
    for rows in cached_rows(scheduler, text, stack):
        found.update(rows.contiguous().numpy().tobytes())
    return found.hexdigest()


@cache
def alone(folder: Path, architecture: str, type: CacheType) -> Alone:
    """A tiny model with three adapter stacks. gemma3 has layers with a window."""
    path = folder / f"{architecture}.gguf"
    if not path.exists():
        keys = {"gemma3.attention.sliding_window": 200} if architecture == "gemma3" else None
        tiny.write(path, architecture=architecture, layers=6, context=CONTEXT, metadata=keys)
    with ops.only("cpu"):
        model = load(path, cache=type)
    base, stacks = model.decoder.base, [Stack(())]
    for seed in (1, 2):
        adapter = folder / f"{architecture}-{seed}.gguf"
        if not adapter.exists():
            tiny_lora.write(adapter, path, seed=seed)
        stacks.append(Stack([(load_adapter(adapter, base), 1.0)]))
    return Alone(model, stacks)


@pytest.fixture(autouse=True)
def native() -> Iterator[None]:
    if not library.available():
        pytest.skip(library.reason())
    with ops.only("cpu"):
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


ASKED = st.builds(
    Asked,
    kept=st.sampled_from(KEPT),
    own=st.sampled_from([1, 2, 40]),
    seed=st.integers(0, 2),
    stack=st.sampled_from([0, 0, 0, 1, 2]),
    count=st.sampled_from([1, 1, 1, 2, 3]),
    most=st.sampled_from([1, 5, 12]),
    background=st.booleans(),
)
STEP, SUBMIT, CANCEL, EVICT, TIGHTEN, CLEAR = (
    "step",
    "submit",
    "cancel",
    "evict",
    "tighten",
    "clear",
)
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from([STEP] * 8 + [SUBMIT] * 4 + [CANCEL, EVICT, TIGHTEN, CLEAR]),
        st.integers(0, 5),
    ),
    max_size=60,
)
RUNS = {
    "requests": st.lists(ASKED, min_size=2, max_size=6),
    "actions": ACTIONS,
    "chunk": st.sampled_from([16, 100, 512]),
    "spare_pages": st.sampled_from([2, 3, 6, 100]),
}


def check(
    reference: Alone,
    requests: list[Asked],
    actions: list[tuple[str, int]],
    chunk: int,
    spare_pages: int,
) -> None:
    """Run the actions, then all requests to their end, and compare each with itself alone."""
    scheduler = reference.model.new_scheduler()
    scheduler.runner.chunk = chunk
    pool = scheduler.pool
    pool._memory = [poisoned] * pool.layout.groups
    size = pool.layout.bytes_per_page
    pool.budget_bytes = (-(-CONTEXT // 256) + spare_pages) * size
    waiting, cancelled = list(requests), set[int]()
    tickets: list[tuple[Asked, Ticket]] = []

    def submit() -> None:
        asked, number = waiting.pop(0), len(tickets)
        made = request_of(asked, reference.stacks)
        made.cancelled = lambda: number in cancelled
        tickets.append((asked, scheduler.submit(made)))

    submit()
    for action, number in actions:
        if action == SUBMIT and waiting:
            submit()
        elif action == CANCEL and number < len(tickets):
            cancelled.add(number)
        elif action == EVICT:
            scheduler.tree.evict(pool.budget_bytes - pool.used_bytes + (number + 1) * size)
        elif action == TIGHTEN:
            pool.budget_bytes = (-(-CONTEXT // 256) + 2) * size
        elif action == CLEAR:
            scheduler.tree.clear(reference.stacks[number % len(reference.stacks)].key)
        scheduler.step()
    while waiting:
        submit()
    for _ in range(20_000):
        if not scheduler.is_busy:
            break
        scheduler.step()
    assert not scheduler.is_busy, "requests wait for each other"
    for number, (asked, ticket) in enumerate(tickets):
        assert ticket.error is None, ticket.error
        assert ticket.done
        wanted = reference.answers(asked)
        reasons = {one.answer: one.reason for one in ticket.events if isinstance(one, Finished)}
        assert sorted(reasons) == sorted(ticket.answers)
        assert texts(ticket) >= sum(map(len, ticket.answers.values()))
        for index, tokens in ticket.answers.items():
            if reasons[index] is FinishReason.CANCELLED:
                assert number in cancelled
                assert tokens == wanted[index][0][: len(tokens)]
                continue
            assert tokens == wanted[index][0]
            if tokens:
                found = rows_hash(scheduler, asked, tokens, reference.stacks)
                assert found in ("", wanted[index][1])
        if number not in cancelled:
            assert len(ticket.answers) == asked.count
    check_references(pool, [], scheduler.tree, [stack.key for stack in reference.stacks])
    scheduler.tree.clear()
    assert pool.used_bytes == 0


@settings(max_examples=200, suppress_health_check=_QUICK)
@given(**RUNS)
def test_answers_do_not_depend_on_how_requests_interleave(
    folder: Path,
    requests: list[Asked],
    actions: list[tuple[str, int]],
    chunk: int,
    spare_pages: int,
) -> None:
    check(alone(folder, "llama", CacheType.Q8_0), requests, actions, chunk, spare_pages)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@settings(max_examples=25, suppress_health_check=_QUICK)
@given(**RUNS)
def test_answers_of_each_architecture_do_not_depend_on_how_requests_interleave(
    folder: Path,
    architecture: str,
    requests: list[Asked],
    actions: list[tuple[str, int]],
    chunk: int,
    spare_pages: int,
) -> None:
    check(alone(folder, architecture, CacheType.F16), requests, actions, chunk, spare_pages)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("type", list(CacheType), ids=lambda type: type.value)
@pytest.mark.parametrize("part", range(3))
@settings(max_examples=750, suppress_health_check=_QUICK)  # 20,000 in all
@given(**RUNS)
def test_answers_do_not_depend_on_how_requests_interleave_in_many_runs(
    folder: Path,
    architecture: str,
    type: CacheType,
    part: int,
    requests: list[Asked],
    actions: list[tuple[str, int]],
    chunk: int,
    spare_pages: int,
) -> None:
    check(alone(folder, architecture, type), requests, actions, chunk, spare_pages)
