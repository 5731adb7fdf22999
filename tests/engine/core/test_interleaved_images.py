"""Random interleavings of prompts with images: the bits of each run alone, see `interleaving`.

The images lie in one page, across two, and are longer than the window of a layer. Their rows are
encoded when a pass needs them, and forgotten at random. Amid a run the program is started again:
memory is empty, what is on the disk is there, and images have other ids.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from answers import GREEDY, Request, next_logits
from chosen_backend import ops
from engine.messages import CacheType
from engine.models.mixers import Attention
from engine.models.seeing import Seeing
from engine.vision.registry import ImageRegistry
from engine.vision.sight import Sight
from interleaving import ASKED, QUICK, RUNS, Alone, Asked, Hashes, Run, alone
from kernels.cpu import library
from kernels.ops import Spans

IMAGES = ((20, 5, 8), (205, 4, 6), (249, 11, 20))  # place in the text, lines, columns
MOST = 550  # tokens of a prompt, without its own
OTHER = 2  # seed of the requests whose second image is another one of its size
FORGOTTEN = 5  # of so many passes before one the rows of all images are dropped
LEAST_DISK = 5  # pages of a disk with which the program is started again


class Encoder:
    """Rows of an image by its pixels, which are a seed; it yields and can be cancelled."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.calls = 0

    def encode(self, pixels: Tensor, checkpoint: Callable[[], None]) -> Tensor:
        """Random rows, a checkpoint between each of three layers."""
        self.calls += 1
        for _ in range(3):
            checkpoint()
        seed, count = pixels.tolist()
        return torch.randn(count, self.width, generator=torch.Generator().manual_seed(seed))

    def unload(self) -> None:
        """It has no weights."""


@dataclass(frozen=True)
class Pictured(Asked):
    """A request whose prompt has those images that begin in the part it keeps."""

    registry: ImageRegistry | None = None

    @property
    def prompt(self) -> list[int]:
        """Text with whole images."""
        assert self.registry is not None
        text = super().prompt
        common, own = text[: self.kept], text[self.kept :]
        for number, (place, lines, columns) in reversed(list(enumerate(IMAGES))):
            shown = number + 10 * (number == 1 and self.seed == OTHER)
            image = self.registry.add(str(shown), lines * columns, lines, columns)
            image.pixels = lambda shown=shown, n=image.count: torch.tensor([shown, n])
            if place < len(common):
                common[place:place] = image.ids
        return [*common[:MOST], *own]


@cache
def seeing(folder: Path, architecture: str, spans: Spans, type: CacheType) -> Alone:
    """A tiny model that sees, with three adapter stacks."""
    made = alone(folder, architecture, type)
    decoder = made.model.decoder
    registry = ImageRegistry(decoder.head.weight.shape[0], rows_bytes=0)  # only needed rows stay
    axes = None
    if architecture == "qwen35":
        mixers = (block.attention for block in decoder.blocks)
        pairs = next(one.rope.frequencies.numel() for one in mixers if isinstance(one, Attention))
        axes = torch.arange(pairs, dtype=torch.int32) % 3
    width = decoder.embedding.columns
    deep = 2 if architecture == "llama" else 0
    encoder = Encoder((1 + deep) * width)
    sight = Sight(Seeing(width, axes, spans, deep), registry, encoder)
    return Alone(replace(made.model, sight=sight), made.stacks)


class Restarted(Alone):
    """The same model as after a restart: with other ids for images, and the answers that it had."""

    def __init__(self, before: Alone) -> None:
        sight = before.model.sight
        assert sight is not None
        self.before, self.registry = before, sight.registry
        registry = ImageRegistry(self.registry.vocabulary, rows_bytes=0)
        registry.add("of another chat", 7, 1, 7)
        seen = Sight(sight.seeing, registry, sight.encoder)
        super().__init__(replace(before.model, sight=seen), before.stacks, is_restarted=True)

    def answers(self, asked: Asked) -> list[tuple[list[int], Hashes]]:
        """Those before the restart."""
        return self.before.answers(replace(asked, registry=self.registry))


class SeeingRun(Run):
    """A run that forgets rows of images now and then."""

    passes = 0

    def step(self) -> None:
        """A pass, before which rows may be dropped."""
        self.passes += 1
        sight = self.scheduler.sight
        assert sight is not None
        # Not every fifth time: as many prompts would take turns in being forgotten for ever.
        if random.Random(self.passes).randrange(FORGOTTEN) == 0:
            for image in sight.registry.images:
                image.rows = None
        super().step()


def check(
    reference: Alone, requests: Sequence[Asked], actions: list[tuple[str, int]], **sizes: int
) -> None:
    """Run the actions, then all requests to their end, and compare each with itself alone."""
    if sizes["disk_pages"] < LEAST_DISK:
        run_of(reference, requests, actions, **sizes).check_disk()
        return
    half = len(actions) // 2
    run_of(reference, requests, actions[:half], **sizes)
    after = Restarted(reference)
    run_of(after, requests[::-2], actions[half:], **sizes).check_disk()


def run_of(
    reference: Alone, requests: Sequence[Asked], actions: list[tuple[str, int]], **sizes: int
) -> SeeingRun:
    run = SeeingRun(reference, pictured(requests, reference), **sizes)
    run.submit()
    for action, number in actions:
        run.act(action, number)
        run.step()
    run.finish()
    run.check_answers()
    run.check_nothing_leaked()
    return run


def pictured(requests: Sequence[Asked], reference: Alone) -> list[Asked]:
    """The requests with the images of a model."""
    assert reference.model.sight is not None
    registry = reference.model.sight.registry
    names = Asked.__dataclass_fields__
    return [Pictured(*(getattr(one, name) for name in names), registry) for one in requests]


@pytest.fixture(autouse=True)
def native() -> Iterator[None]:
    if not library.available():
        pytest.skip(library.reason())
    with ops.only("cpu"):
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


MODELS = (
    ("gemma3", Spans.WHOLE),
    ("gemma3", Spans.WINDOWED),
    ("qwen35", Spans.CAUSAL),
    ("llama", Spans.CAUSAL),
)
SOME = {**RUNS, "requests": st.lists(ASKED, min_size=2, max_size=6)}


@pytest.mark.parametrize(("architecture", "spans"), MODELS)
@settings(max_examples=50, suppress_health_check=QUICK)  # 200 in all
@given(**SOME)
def test_answers_about_images_do_not_depend_on_how_requests_interleave(
    folder: Path,
    architecture: str,
    spans: Spans,
    requests: list[Asked],
    actions: list[tuple[str, int]],
    **sizes: int,
) -> None:
    check(seeing(folder, architecture, spans, CacheType.F16), requests, actions, **sizes)


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "spans"), MODELS)
@pytest.mark.parametrize("type", list(CacheType), ids=lambda type: type.value)
@settings(max_examples=1_700, suppress_health_check=QUICK)  # 20,400 in all
@given(**SOME)
def test_answers_about_images_do_not_depend_on_how_requests_interleave_in_many_runs(
    folder: Path,
    architecture: str,
    spans: Spans,
    type: CacheType,
    requests: list[Asked],
    actions: list[tuple[str, int]],
    **sizes: int,
) -> None:
    check(seeing(folder, architecture, spans, type), requests, actions, **sizes)


@pytest.mark.parametrize(("architecture", "spans"), MODELS)
def test_different_images_give_different_answers_and_the_same_one_the_same(
    folder: Path, architecture: str, spans: Spans
) -> None:
    model = seeing(folder, architecture, spans, CacheType.F32).model
    assert model.sight is not None
    found: list[Tensor] = []
    for number, seed in enumerate((11, 12, 11)):
        image = model.sight.registry.add(f"{spans} {number}", 12, 3, 4)
        image.pixels = lambda seed=seed: torch.tensor([seed, 12])
        scheduler = model.new_scheduler()
        scheduler.run(Request([5, 6, *image.ids, 7, 8], GREEDY, max_tokens=1))
        found.append(next_logits(scheduler, [5, 6, *image.ids, 7, 8]))
    assert torch.equal(found[0], found[2])
    assert not torch.allclose(found[0], found[1])
