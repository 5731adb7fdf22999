"""Requests beside each other with the model on another device: the bits of the processor.

The same actions are carried out twice by the torch backend, on the processor and on a device that is
simulated there, whose tensors may not meet those of the host in any operation. Forks, a cancellation,
preemptions, adapters, drafts, evictions, saved and restored pages: what is left of each is equal. That
a tensor of the wrong device is found is tested in `tests/engine/models/test_placement.py`.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import every_architecture
import tiny
import tiny_lora
from answers import Request
from drafters import verify_every_draft
from engine import Event, Failed, snapshots_folder
from engine.adapters.stack import Stack, load_adapter
from engine.core.handle import RequestHandle
from engine.core.request import SequenceGroup
from engine.core.scheduler import Scheduler
from engine.loading.identity import ModelFiles, stamps
from engine.loading.loader import LoadedModel, load
from engine.messages import CacheType, Finished, Sampling, Save, Text
from engine.speculative.lookup import LookupDrafter
from engine.state.disk.disk_tier import DiskTier
from engine.state.disk.saver import Saver
from engine.state.disk.store import PageStore
from kernels.states.layer_state import AT_END
from other_device import OtherDevice

pytestmark = pytest.mark.sweep

CONTEXT = 600
LAYERS = 2
SEEDED = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=1)
STEP, SUBMIT, CANCEL, EVICT, CLEAR = "step", "submit", "cancel", "evict", "clear"
SAVE, RESTORE = "save", "restore"


@dataclass(frozen=True)
class Asked:
    """A request of a test."""

    kept: int  # tokens of a common text at the beginning
    own: int
    stack: int
    count: int
    most: int
    seeded: bool
    drafts: bool

    @property
    def prompt(self) -> list[int]:
        common = [5 + at * 11 % 180 for at in range(self.kept)]
        return [*common, *(6 + at * 3 % 180 for at in range(self.own))]


@dataclass
class Placed:
    """A model on one of the two devices, and its stacks of adapters."""

    model: LoadedModel
    stacks: list[Stack]


@cache
def placed(folder: Path, architecture: str, type: CacheType, device: str) -> Placed:
    path = folder / f"{architecture}.gguf"
    if not path.exists():
        if architecture == "llama":
            tiny.write(path, layers=LAYERS, context=CONTEXT)
        else:
            every_architecture.write(architecture, path, context=CONTEXT, window=200)
    model = load(path, backend=f"torch:{device}", cache=type)
    adapter = folder / f"{architecture}-lora.gguf"
    if not adapter.exists():
        tiny_lora.write(adapter, path, seed=1)
    stack = Stack([(load_adapter(adapter, model.decoder.base), 1.0)])
    return Placed(model, [Stack(()), stack])


class Run:
    """Requests on a small pool over a disk tier; nothing happens at a time of its own."""

    def __init__(self, one: Placed, pages: int) -> None:
        shutil.rmtree(snapshots_folder(), ignore_errors=True)
        model = one.model
        self.placed = one
        self.scheduler: Scheduler = model.new_scheduler()
        self.scheduler.runner.chunk = 100
        # The bits of torch depend on the batch: no pass may depend on how long others took.
        self.scheduler._chunk = lambda prompt, rows: 16 if rows else 100
        verify_every_draft(self.scheduler)
        pool = self.scheduler.pool
        pool.budget_bytes = (-(-CONTEXT // 256) + pages) * pool.layout.bytes_per_page
        self.waiting = list(REQUESTS)
        self.restored = 0  # tokens
        self.tickets: list[SequenceGroup] = []
        self.events: list[Event] = []  # of saving
        self.saver = Saver()
        files = ModelFiles([model.path], stamps([model.path]), model.path.with_suffix(".json"))
        store = PageStore(snapshots_folder())
        self.tier = DiskTier(store, self.saver, self.scheduler, files, model)
        self.tier.set_budget(1 << 40)

    def submit(self) -> None:
        asked, number = self.waiting.pop(0), len(self.tickets)
        sampling = SEEDED if asked.seeded else Sampling(temperature=0)
        request = Request(
            asked.prompt,
            sampling,
            max_tokens=asked.most,
            count=asked.count,
            stack=self.placed.stacks[asked.stack],
        )
        if asked.drafts:
            request.drafter = lambda _: LookupDrafter()
        self.tickets.append(self.scheduler.submit(request))
        self.tier.evicted.note(number + 1, str(number), request.stack, request.prompt)

    def act(self, action: str, number: int) -> None:
        """Do something between two passes, and wait until it is done."""
        pool, tree = self.scheduler.pool, self.scheduler.tree
        if action == SUBMIT and self.waiting:
            self.submit()
        elif action == CANCEL:
            self.tickets[number].request.cancellation.cancel()
        elif action == EVICT:
            room = pool.budget_bytes - pool.used_bytes
            tree.evict(room + (number + 1) * pool.layout.bytes_per_page)
        elif action == CLEAR:
            tree.clear(self.placed.stacks[number % 2].key)
        elif action == SAVE and number < len(self.tickets) and self.tickets[number].done:
            ticket = self.tickets[number]
            stack = ticket.request.stack
            self.tier.note(number + 1, str(number), stack, ticket.tokens)
            save = Save(str(number), 1 << 40, number + 1)
            self.tier.save(save, RequestHandle(save, self.events.append))
        elif action == RESTORE and self.tickets:
            request = self.tickets[number % len(self.tickets)].request
            text = [*request.prompt, 7, 8, 9]
            before = tree.match(request.stack.key, text).length
            for _ in self.tier.restore(request.stack, text, str(number), lambda: None):
                self.saver.wait()
            self.restored += tree.match(request.stack.key, text).length - before
        self.saver.wait()

    def finish(self) -> list[object]:
        """Run what is left; everything that the requests got."""
        while self.waiting:
            self.submit()
        for _ in range(2_000):
            if not self.scheduler.is_busy:
                break
            self.scheduler.step()
            self.saver.wait()
        assert not self.scheduler.is_busy, "requests wait for each other"
        assert not [event for event in self.events if isinstance(event, Failed)]
        found: list[object] = []
        for ticket in self.tickets:
            assert ticket.error is None, ticket.error
            reasons = [one.reason for one in ticket.request.events if isinstance(one, Finished)]
            shown = "".join(one.text for one in ticket.request.events if isinstance(one, Text))
            found.append((sorted(ticket.answers.items()), reasons, shown))
        self.tier.evicted.drop()
        self.scheduler.tree.clear()
        assert self.scheduler.pool.used_bytes == 0
        return found


REQUESTS = (
    Asked(300, 20, stack=0, count=1, most=6, seeded=False, drafts=True),
    Asked(300, 1, stack=0, count=3, most=6, seeded=True, drafts=False),
    Asked(257, 20, stack=1, count=1, most=6, seeded=True, drafts=True),
    Asked(30, 1, stack=0, count=1, most=6, seeded=False, drafts=False),
)
# A pass follows each.
ACTIONS = (
    *[(STEP, 0)] * 12,
    *[(SUBMIT, 0), (STEP, 0), (STEP, 0), (SUBMIT, 0), (SAVE, 0), (EVICT, 3)],
    *[(STEP, 0)] * 4,
    *[(CLEAR, 0), (RESTORE, 0), (SUBMIT, 0), (CANCEL, 3), (CLEAR, 1), (RESTORE, 2)],
)


@contextlib.contextmanager
def device(name: str) -> Iterator[None]:
    """The simulated device exists for the model on it."""
    with OtherDevice() if name == "meta" else contextlib.nullcontext():
        yield


def check(folder: Path, architecture: str, type: CacheType, pages: int) -> None:
    """Carry out the actions on both devices and compare what comes of them."""
    results: list[list[object]] = []
    for name in ("cpu", "meta"):
        with device(name):
            run = Run(placed(folder, architecture, type, name), pages)
            run.submit()
            for action, number in ACTIONS:
                run.act(action, number)
                run.scheduler.step()
            results.append(run.finish())
            # A state inside a text is evicted first: the text may have none to be read on from.
            has_states = AT_END in run.scheduler.pool.layout.windows
            assert run.restored >= 256 or (has_states and pages < 100), name
    assert results[0] == results[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.mark.parametrize("pages", [2, 100], ids=["short of memory", "ample"])
def test_answers_on_another_device_are_those_of_the_processor(folder: Path, pages: int) -> None:
    check(folder, "llama", CacheType.Q8_0, pages)


@pytest.mark.parametrize("architecture", every_architecture.KINDS)
def test_every_architecture_loads_on_another_device(folder: Path, architecture: str) -> None:
    """Loading runs and checks all of its ops there, and mixes no tensors of two devices.

    Those of `oracle.py` are read there by tests/engine/models/test_placement.py.
    """
    with device("meta"):
        found = placed(folder, architecture, CacheType.F16, "meta")
    assert found.model.backends


@pytest.mark.slow
@pytest.mark.parametrize("architecture", every_architecture.names())
@pytest.mark.parametrize("pages", [2, 100], ids=["short of memory", "ample"])
def test_answers_of_every_architecture_on_another_device(
    folder: Path, architecture: str, pages: int
) -> None:
    check(folder, architecture, CacheType.F16, pages)
