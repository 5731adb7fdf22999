"""Harness of random interleavings of requests, each compared with itself alone."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from hypothesis import HealthCheck
from hypothesis import strategies as st

import every_architecture
import tiny
import tiny_lora
from answers import Request, cached_rows, texts
from chosen_backend import ops
from drafters import PartlyRight, verify_every_draft
from engine import Event, Failed, delete_snapshots, snapshots_folder, snapshots_size
from engine.adapters.stack import Stack, load_adapter
from engine.core.handle import RequestHandle
from engine.core.request import SequenceGroup
from engine.core.scheduler import Scheduler
from engine.errors import RequestError
from engine.loading.identity import ModelFiles, stamps
from engine.loading.loader import LoadedModel, load
from engine.messages import CacheType, Finished, FinishReason, Priority, Sampling, Save
from engine.speculative.drafter import Drafter
from engine.speculative.lookup import LookupDrafter
from engine.state.disk.disk_tier import DiskTier
from engine.state.disk.saver import Saver
from engine.state.disk.store import PageStore
from poisoned_pool import check_references, poisoned

CONTEXT = 600
ARCHITECTURES = ("llama", "qwen3", "gemma3")
WINDOW = 200  # tokens, of layers that have one
AMPLE_BYTES = 1 << 40
_POLL_SECONDS = 0.0002  # lets the thread that reads files run
SEEDED = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=1)
KEPT = (1, 30, 255, 256, 257, 400, 512)  # tokens of a common text at the beginning of a prompt
QUICK = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


@dataclass(frozen=True)
class Asked:
    """A request of a test."""

    kept: int
    own: int  # tokens after the common ones, that differ between prompts
    seed: int
    stack: int
    count: int
    most: int
    priority: Priority
    drafts: str = ""  # "lookup", or "some": partly right ones

    @property
    def prompt(self) -> list[int]:
        common = [5 + at * 11 % 180 for at in range(self.kept)]
        return [*common, *(6 + (self.seed + at * 3) % 180 for at in range(self.own))]

    @property
    def sampling(self) -> Sampling:
        return replace(SEEDED, seed=self.seed) if self.seed else Sampling(temperature=0)


Hashes = dict[int, str]  # by the length of the text


@dataclass
class Alone:
    """The answers of requests that ran alone on one model, computed once."""

    model: LoadedModel
    stacks: Sequence[Stack]
    known: dict[Asked, list[tuple[list[int], Hashes]]] = field(default_factory=dict)
    is_restarted: bool = False  # a run finds what an earlier one has saved

    def answers(self, asked: Asked) -> list[tuple[list[int], Hashes]]:
        """Generated ids of each answer, and hashes of all its keys, values and states."""
        key = replace(asked, priority=Priority.NORMAL, drafts="")
        if key not in self.known:
            scheduler = self.model.new_scheduler()
            ticket = scheduler.run(request_of(asked, self.stacks))
            self.known[key] = [
                (tokens, row_hashes(scheduler, asked, tokens, self.stacks))
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
        priority=asked.priority,
    )


def row_hashes(
    scheduler: Scheduler, asked: Asked, tokens: list[int], stacks: Sequence[Stack]
) -> Hashes:
    """Hashes of what is cached of an answer, without its last token and with it.

    The last token may have been processed or not, and a state of fixed size is known only after the
    token that was processed last.
    """
    stack, hashes = stacks[asked.stack], Hashes()
    for text in ([*asked.prompt, *tokens][:-1], [*asked.prompt, *tokens]):
        if scheduler.tree.match(stack.key, text).length == len(text):
            found = hashlib.sha256()
            for rows in cached_rows(scheduler, text, stack):
                found.update(rows.contiguous().numpy().tobytes())
            hashes[len(text)] = found.hexdigest()
    return hashes


@cache
def alone(folder: Path, architecture: str, type: CacheType) -> Alone:
    """A tiny model with three adapter stacks."""
    path = folder / f"{architecture}.gguf"
    if not path.exists():
        if architecture in ARCHITECTURES:
            keys = {"gemma3.attention.sliding_window": WINDOW} if architecture == "gemma3" else None
            tiny.write(path, architecture=architecture, layers=6, context=CONTEXT, metadata=keys)
        else:
            every_architecture.write(architecture, path, context=CONTEXT, window=WINDOW)
    with ops.only("cpu"):
        model = load(path, cache=type)
    base, stacks = model.decoder.base, [Stack(())]
    for seed in (1, 2):
        adapter = folder / f"{architecture}-{seed}.gguf"
        if not adapter.exists():
            tiny_lora.write(adapter, path, seed=seed)
        stacks.append(Stack([(load_adapter(adapter, base), 1.0)]))
    return Alone(model, stacks)


ASKED = st.builds(
    Asked,
    kept=st.sampled_from(KEPT),
    own=st.sampled_from([1, 2, 40]),
    seed=st.integers(0, 2),
    stack=st.sampled_from([0, 0, 0, 1, 2]),
    count=st.sampled_from([1, 1, 1, 2, 3]),
    most=st.sampled_from([1, 5, 12]),
    priority=st.sampled_from(Priority),
    drafts=st.sampled_from(["", "", "lookup", "some"]),
)
STEP, SUBMIT, CANCEL, EVICT, TIGHTEN, CLEAR = (
    "step",
    "submit",
    "cancel",
    "evict",
    "tighten",
    "clear",
)
SAVE, RESTORE, DELETE, WRITTEN = "save", "restore", "delete", "written"
OFTEN = [STEP] * 8 + [SUBMIT] * 4 + [EVICT, SAVE, RESTORE] * 2
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from([*OFTEN, CANCEL, TIGHTEN, CLEAR, DELETE, WRITTEN]), st.integers(0, 5)
    ),
    min_size=12,
    max_size=60,
)
RUNS = {
    "requests": st.lists(ASKED, min_size=2, max_size=6),
    "actions": ACTIONS,
    "chunk": st.sampled_from([16, 100, 512]),
    "spare_pages": st.sampled_from([2, 3, 6, 100]),
    "lent_pages": st.sampled_from([0, 1, 3, 100]),
    "disk_pages": st.sampled_from([0, 2, 5, 1000, 1000]),
}


class Run:
    """Requests on a small pool over a disk tier."""

    def __init__(
        self,
        reference: Alone,
        requests: list[Asked],
        chunk: int,
        spare_pages: int,
        lent_pages: int,
        disk_pages: int,
    ) -> None:
        model = reference.model
        if not reference.is_restarted:
            shutil.rmtree(snapshots_folder(), ignore_errors=True)
        self.reference = reference
        self.scheduler = model.new_scheduler()
        self.scheduler.runner.chunk = chunk
        verify_every_draft(self.scheduler)
        self.pool = self.scheduler.pool
        self.pool._memory = [poisoned] * self.pool.layout.groups
        self.size = self.pool.layout.bytes_per_page
        self.pool.budget_bytes = (-(-CONTEXT // 256) + spare_pages) * self.size
        self.pool.most_lent_bytes = lent_pages * self.size
        self.waiting, self.cancelled = list(requests), set[int]()
        self.tickets: list[tuple[Asked, SequenceGroup]] = []
        self.noted: list[dict[int, list[int]]] = []  # of each ticket, answers the tier knows
        self.events: list[Event] = []
        self.saver = Saver()
        self.tier = self.new_tier(self.scheduler)
        self.budget_bytes = disk_pages * (self.size + 10_000)
        self.tier.set_budget(self.budget_bytes)

    def new_tier(self, scheduler: Scheduler) -> DiskTier:
        """The disk tier of a scheduler, over the same files."""
        model = self.reference.model
        cached = model.path.with_suffix(".json")
        files = ModelFiles([model.path], stamps([model.path]), cached)
        encoder = None if model.sight is None else files  # images have no file of their own here
        return DiskTier(PageStore(snapshots_folder()), self.saver, scheduler, files, model, encoder)

    def drafter(self, asked: Asked) -> Drafter:
        """A new drafter for an answer."""
        if asked.drafts == "lookup":
            return LookupDrafter()
        texts = [[*asked.prompt, *tokens] for tokens, _ in self.reference.answers(asked)]
        return PartlyRight(texts, self.reference.model.config.vocabulary, asked.own)

    def submit(self) -> None:
        asked, number = self.waiting.pop(0), len(self.tickets)
        made = request_of(asked, self.reference.stacks)
        if asked.drafts:
            made.drafter = lambda _: self.drafter(asked)
        self.tickets.append((asked, self.scheduler.submit(made)))
        self.noted.append({})
        self.tier.evicted.note(number + 1, str(number), made.stack, made.prompt)

    def act(self, action: str, number: int) -> None:
        """Do something between two passes."""
        if action == SUBMIT and self.waiting:
            if number % 2:  # as the engine does
                self.restore(self.waiting[0], "")
            self.submit()
        elif action == CANCEL and number < len(self.tickets):
            self.cancelled.add(number)
            self.tickets[number][1].request.cancellation.cancel()
        elif action == EVICT:
            room = self.pool.budget_bytes - self.pool.used_bytes
            self.scheduler.tree.evict(room + (number + 1) * self.size)
        elif action == TIGHTEN:
            self.pool.budget_bytes = (-(-CONTEXT // 256) + 2) * self.size
        elif action == CLEAR:
            stacks = self.reference.stacks
            self.scheduler.tree.clear(stacks[number % len(stacks)].key)
        elif action == SAVE and number < len(self.tickets):
            save = Save(str(number), max(self.budget_bytes, 1), number + 1)
            try:
                self.tier.save(save, RequestHandle(save, self.events.append))
            except RequestError:
                assert self.budget_bytes < AMPLE_BYTES
            self.tier.set_budget(self.budget_bytes)
        elif action == RESTORE:
            asked = self.waiting[0] if self.waiting else self.tickets[-1][0]
            self.restore(asked, "" if number else str(len(self.tickets) - 1))
        elif action == DELETE:
            delete_snapshots(None if number == 5 else [str(number)])
        elif action == WRITTEN:
            self.saver.wait()

    def restore(self, asked: Asked, conversation: str) -> None:
        """Restore a prompt from disk, with passes of the answers in progress in between."""
        stack = self.reference.stacks[asked.stack]
        for _ in self.tier.restore(stack, asked.prompt, conversation, lambda: None):
            self.step()
            time.sleep(_POLL_SECONDS)

    def step(self) -> None:
        """Run a pass, and tell the tier what has ended."""
        self.scheduler.step()
        for number, (asked, ticket) in enumerate(self.tickets):
            for index, tokens in ticket.answers.items():
                if index not in self.noted[number]:
                    self.noted[number][index] = tokens
                    text = [*asked.prompt, *tokens]
                    stack = self.reference.stacks[asked.stack]
                    self.tier.note(number + 1, str(number), stack, text)

    def finish(self) -> None:
        """Run what is left until everything has ended, and wait for the disk."""
        while self.waiting:
            self.submit()
        for _ in range(20_000):
            if not self.scheduler.is_busy:
                break
            self.step()
        assert not self.scheduler.is_busy, "requests wait for each other"
        self.saver.wait()
        assert self.pool.lent_bytes == 0
        assert snapshots_size() <= max(self.budget_bytes, 0)
        assert not [event for event in self.events if isinstance(event, Failed)]

    def check_answers(self) -> None:
        """Compare every answer, and its keys and values, with those of the request alone."""
        for number, (asked, ticket) in enumerate(self.tickets):
            assert ticket.error is None, ticket.error
            assert ticket.done
            wanted = self.reference.answers(asked)
            reasons = {
                one.answer: one.reason for one in ticket.request.events if isinstance(one, Finished)
            }
            assert sorted(reasons) == sorted(ticket.answers)
            assert texts(ticket) >= sum(map(len, ticket.answers.values()))
            if self.continues_another(asked):
                continue
            for index, tokens in ticket.answers.items():
                if reasons[index] is FinishReason.CANCELLED:
                    assert number in self.cancelled
                    assert tokens == wanted[index][0][: len(tokens)]
                    continue
                assert tokens == wanted[index][0]
                if tokens:
                    self.check_rows(self.scheduler, asked, tokens, wanted[index][1])
            if number not in self.cancelled:
                assert len(ticket.answers) == asked.count

    def continues_another(self, asked: Asked) -> bool:
        """Whether its prompt is by chance another drawn answer, whose seed then goes on."""
        others = [(one, ticket) for one, ticket in self.tickets if one.seed == asked.seed != 0]
        texts_of = ([*one.prompt, *ids] for one, done in others for ids in done.answers.values())
        return asked.prompt in texts_of

    def check_rows(
        self, scheduler: Scheduler, asked: Asked, tokens: list[int], wanted: Hashes
    ) -> None:
        """Compare the keys, values and states of an answer, if they are all cached."""
        found = row_hashes(scheduler, asked, tokens, self.reference.stacks)
        common = found.keys() & wanted.keys()
        assert {key: found[key] for key in common} == {key: wanted[key] for key in common}

    def check_disk(self) -> None:
        """Restore every answer into an empty pool, and compare keys and values again."""
        scheduler = self.reference.model.new_scheduler()
        tier = self.new_tier(scheduler)
        for asked, ticket in self.tickets:
            if self.continues_another(asked):
                continue
            wanted, stack = self.reference.answers(asked), self.reference.stacks[asked.stack]
            for index, tokens in ticket.answers.items():
                for _ in tier.restore(stack, [*asked.prompt, *tokens], "", lambda: None):
                    time.sleep(_POLL_SECONDS)
                if tokens == wanted[index][0] and tokens:
                    self.check_rows(scheduler, asked, tokens, wanted[index][1])
        scheduler.tree.clear()
        assert scheduler.pool.used_bytes == 0

    def check_nothing_leaked(self) -> None:
        tree, keys = self.scheduler.tree, [stack.key for stack in self.reference.stacks]
        check_references(self.pool, [], tree, keys)
        tree.clear()
        assert self.pool.used_bytes == 0
        assert self.pool.lent_bytes == 0


def check(
    reference: Alone, requests: list[Asked], actions: list[tuple[str, int]], **sizes: int
) -> None:
    """Run the actions, then all requests to their end, and compare each with itself alone."""
    run = Run(reference, requests, **sizes)
    run.submit()
    for action, number in actions:
        run.act(action, number)
        run.step()
    run.finish()
    run.check_answers()
    run.check_disk()
    run.check_nothing_leaked()
