"""Answers of a model on two devices: batches, shared pages, and pages in files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import tiny
from answers import GREEDY, Request, answer, answered, run_all
from engine import CacheType, Event, Failed, Save
from engine.adapters.stack import NO_ADAPTERS
from engine.core.handle import RequestHandle
from engine.core.scheduler import Scheduler
from engine.errors import SnapshotError
from engine.loading.identity import ModelFiles, stamps
from engine.loading.loader import LoadedModel, load
from engine.state.disk.disk_tier import DiskTier, RestoreResult, state_key
from engine.state.disk.restore import check_origin
from engine.state.disk.saver import Saver
from engine.state.disk.sequence_file import SavedSequence
from engine.state.disk.store import PageStore
from kernels.backends import BACKENDS
from other_device import Elsewhere, OtherDevice

pytestmark = pytest.mark.sweep

NATIVE = next(iter(BACKENDS))
PROMPT = [(37 * at + 11) % 90 for at in range(600)]
SHA = "0" * 64


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of four layers, or of seven of which six have a window."""
    layers, file = {"llama": 4, "gemma3": 7}[request.param], tmp_path_factory.mktemp("model")
    return tiny.write(file / "tiny.gguf", architecture=request.param, layers=layers, context=2048)


@pytest.fixture
def device() -> Iterator[OtherDevice]:
    with OtherDevice() as device:
        yield device


def split(path: Path, first: str, second: str, type: CacheType = CacheType.F16) -> LoadedModel:
    return load(path, parts=[(first, 2), (second, 0)], cache=type, context=1024)


def on_devices(scheduler: Scheduler) -> set[bool]:
    """Whether cached pages are on the other device, on the host, or both; checks each place."""
    layout = scheduler.pool.layout
    found: set[bool] = set()
    for leaf in scheduler.tree.leaves(""):
        for node in leaf.path():
            for page in node.pages:
                if page is not None:
                    found.add(isinstance(page.data, Elsewhere))
                    assert isinstance(page.data, Elsewhere) == ("meta" in layout.places[page.group])
    return found


def test_answers_run_together(path: Path, device: OtherDevice) -> None:
    """Pages are shared, forked and copied on each device."""
    model = split(path, NATIVE, "torch:meta")
    scheduler = model.new_scheduler()
    requests = [Request(PROMPT[:length], GREEDY, max_tokens=6, count=2) for length in (300, 290)]
    for ticket in run_all(scheduler, *requests):
        wanted = answer(model, ticket.request.prompt, max_tokens=6)
        assert [answered(ticket, at).tokens for at in range(2)] == [wanted.tokens] * 2
    assert on_devices(scheduler) == {False, True}


def test_pages_of_another_placement_are_refused(
    path: Path, device: OtherDevice, tmp_path: Path
) -> None:
    """Their groups have other layers, though perhaps the same sizes."""
    models = [
        load(path, parts=parts, context=1024)
        for parts in (
            [(NATIVE, 1), ("torch:meta", 2), (NATIVE, 0)],
            [(NATIVE, 1), ("torch:meta", 1), (NATIVE, 1), ("torch:meta", 0)],
            [(NATIVE, 0)],
        )
    ]
    keys = [state_key(SHA, NO_ADAPTERS, model) for model in models]
    assert len(set(keys)) == 3
    assert state_key(SHA, NO_ADAPTERS, load(path, backend=NATIVE, context=64)) == keys[2]
    # The pages of another device have the same layout; it rounds otherwise.
    assert state_key(SHA, NO_ADAPTERS, load(path, backend="torch:meta", context=64)) not in keys
    saved = SavedSequence(tmp_path, 0, 0, keys[0])
    for key in keys[1:]:
        with pytest.raises(SnapshotError, match="another layout of the cache"):
            check_origin(saved, key, 1024)


def test_the_disk_tier_saves_and_restores_pages_of_both_devices(
    path: Path, device: OtherDevice, tmp_path: Path
) -> None:
    model, events = split(path, "torch:meta", NATIVE), list[Event]()
    files = ModelFiles([path], stamps([path]), tmp_path / "hashes.json")
    saver = Saver()

    def tier(scheduler: Scheduler) -> DiskTier:
        return DiskTier(PageStore(tmp_path / "store"), saver, scheduler, files, model)

    def restore(into: Scheduler, tokens: list[int]) -> RestoreResult:
        steps = tier(into).restore(NO_ADAPTERS, tokens, "talk", lambda: None)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value

    scheduler, restored = model.new_scheduler(), model.new_scheduler()
    tokens = [*PROMPT, *answer(scheduler, PROMPT, max_tokens=4).tokens]
    saving = tier(scheduler)
    saving.note(1, "talk", NO_ADAPTERS, tokens)
    save = Save("talk", 10**9, answer=1)
    assert saving.save(save, RequestHandle(save, events.append)) is None
    saver.wait()
    assert not [event for event in events if isinstance(event, Failed)]
    length = scheduler.tree.match("", tokens).length
    assert length > 512
    found = restore(restored, tokens)
    assert (found.tokens, found.refused) == (length, None)
    assert on_devices(restored) == {False, True}
    for one, other in zip(pages(scheduler, tokens), pages(restored, tokens), strict=True):
        assert torch.equal(one, other)


def pages(scheduler: Scheduler, tokens: list[int]) -> list[torch.Tensor]:
    """Copies of the cached pages of these tokens, in the host's memory."""
    match = scheduler.tree.match("", tokens)
    return [page.data.cpu() for some in match.pages for page in some if page is not None]
