"""Images of prompts are encoded between passes, beside which other answers go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import tiny
from answers import GREEDY, Request
from chosen_backend import ops
from engine.core import image_encoding
from engine.core.scheduler import Scheduler
from engine.errors import RequestError
from engine.loading.loader import load
from engine.messages import Finished, FinishReason
from engine.models.seeing import Seeing
from engine.vision.registry import ImageRegistry
from engine.vision.sight import Sight
from kernels.cpu import library

LAYERS = 6
Hook = Callable[[], None]


class Encoder:
    """Rows of ones after some layers, before each of which something happens."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.before: list[Hook] = []
        self.encoded = self.unloaded = 0

    def encode(self, pixels: Tensor, checkpoint: Hook) -> Tensor:
        """One row for each value."""
        for layer in range(LAYERS):
            for each in self.before[layer : layer + 1]:
                each()
            checkpoint()
        self.encoded += 1
        return torch.ones(len(pixels), self.width)

    def unload(self) -> None:
        """Count it."""
        self.unloaded += 1


@pytest.fixture(autouse=True)
def native() -> Iterator[None]:
    if not library.available():
        pytest.skip(library.reason())
    with ops.only("cpu"):
        yield


@pytest.fixture
def scheduler(tmp_path: Path) -> Scheduler:
    tiny.write(tmp_path / "model.gguf", context=256)
    model = load(tmp_path / "model.gguf")
    width = model.decoder.embedding.columns
    registry = ImageRegistry(model.decoder.head.weight.shape[0])
    sight = Sight(Seeing(width), registry, Encoder(width))
    return replace(model, sight=sight).new_scheduler()


def pictured(scheduler: Scheduler, key: str = "a picture") -> Request:
    assert scheduler.sight is not None
    image = scheduler.sight.registry.add(key, 5, 1, 5, lambda: torch.zeros(5))
    return Request([7, *image.ids, 8], GREEDY, max_tokens=3)


def encoder(scheduler: Scheduler) -> Encoder:
    assert scheduler.sight is not None
    found = scheduler.sight.encoder
    assert isinstance(found, Encoder)
    return found


def reason(request: Request) -> FinishReason:
    (finished,) = [one for one in request.events if isinstance(one, Finished)]
    return finished.reason


def test_an_image_is_encoded_once_for_all_that_show_it(scheduler: Scheduler) -> None:
    first, second = pictured(scheduler), pictured(scheduler)
    for request in (first, second):
        scheduler.run(request)
    assert encoder(scheduler).encoded == 1
    assert reason(first) is reason(second) is FinishReason.LENGTH


def test_rows_beyond_the_limit_are_freed_but_none_that_a_prompt_reads(
    scheduler: Scheduler,
) -> None:
    assert scheduler.sight is not None
    registry = scheduler.sight.registry
    registry._rows_bytes = 0
    images = [registry.add(key, 5, 1, 5, lambda: torch.zeros(5)) for key in "abc"]
    prompt = [7, *(id for one in images for id in one.ids), 8]
    group = scheduler.submit(all_of_them := Request(prompt, GREEDY, max_tokens=3))
    for _ in range(20):  # not for ever, were one freed for another
        scheduler.step()
    assert group.done
    assert reason(all_of_them) is FinishReason.LENGTH
    assert encoder(scheduler).encoded == 3
    assert [one.rows is not None for one in images] == [True] * 3  # until another is encoded
    scheduler.run(pictured(scheduler, "d"))
    assert [one.rows for one in images] == [None] * 3
    scheduler.run(again := Request([9, *images[0].ids, 8], GREEDY, max_tokens=3))
    assert reason(again) is FinishReason.LENGTH
    assert encoder(scheduler).encoded == 5


def test_memory_that_runs_out_is_looked_for_in_the_encoder_and_its_rows(
    scheduler: Scheduler,
) -> None:
    assert scheduler.sight is not None
    group = scheduler.submit(pictured(scheduler))
    scheduler.step()  # encodes, and the prompt is not read yet
    (image,) = scheduler.sight.registry.images
    scheduler._give_memory_back()
    assert image.rows is not None
    while not group.done:
        scheduler.step()
    scheduler._give_memory_back()
    assert image.rows is None
    assert encoder(scheduler).unloaded == 2


def test_answers_go_on_while_an_image_is_encoded(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_encoding, "_BESIDE_SECONDS", 0.0)
    beside = Request([5, 6], GREEDY, max_tokens=20)
    group = scheduler.submit(beside)
    scheduler.step()
    lengths: list[int] = []
    encoder(scheduler).before = [lambda: lengths.append(len(scheduler.sequences[0]))] * LAYERS
    shown = scheduler.submit(pictured(scheduler))
    while not (group.done and shown.done):
        scheduler.step()
    assert len(lengths) == LAYERS
    assert lengths == list(range(lengths[0], lengths[0] + LAYERS))
    alone = Request([5, 6], GREEDY, max_tokens=20)
    assert scheduler.run(alone).answers == group.answers


def test_a_request_is_cancelled_while_its_image_is_encoded(scheduler: Scheduler) -> None:
    shown = pictured(scheduler)
    group = scheduler.submit(shown)
    encoder(scheduler).before = [lambda: None, shown.cancellation.cancel]
    while not group.done:
        scheduler.step()
    assert reason(shown) is FinishReason.CANCELLED
    assert encoder(scheduler).encoded == 0
    scheduler.run(again := pictured(scheduler))
    assert reason(again) is FinishReason.LENGTH


def test_only_the_request_whose_image_is_gone_fails(scheduler: Scheduler) -> None:
    assert scheduler.sight is not None
    beside = scheduler.submit(Request([5, 6], GREEDY, max_tokens=5))
    lost = pictured(scheduler, "lost")
    scheduler.sight.registry.add("lost", 5, 1, 5).pixels = None
    group = scheduler.submit(lost)
    while not (beside.done and group.done):
        scheduler.step()
    assert isinstance(group.error, RequestError)
    assert str(group.error).startswith("A picture of this chat is not there any more.")
    assert beside.error is None
    assert len(beside.answers[0]) == 5
