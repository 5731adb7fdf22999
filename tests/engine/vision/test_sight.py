"""Sight: where texts with images may be cut, and the rows, positions and spans of their segments."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.errors import RequestError
from engine.models.seeing import Seeing
from engine.vision.registry import Image, ImageRegistry
from engine.vision.sight import Sight
from kernels.ops import Segment, Spans

V = 100
AXES = torch.tensor([0, 1, 2], dtype=torch.int32)


class Sequence:
    """What Sight reads of a sequence."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens
        self.moved: tuple[int, int] | None = None

    def segment(self, tokens: list[int]) -> Segment:
        """A segment without images."""
        return Segment(tokens, len(self.tokens), ())


def image(registry: ImageRegistry, key: str, lines: int, columns: int) -> Image:
    made = registry.add(key, lines * columns, lines, columns)
    made.rows = torch.arange(made.count, dtype=torch.float32)[:, None] + 1000 * made.first
    return made


def sight_of(axes: torch.Tensor | None = None, spans: Spans = Spans.CAUSAL) -> tuple[Any, ...]:
    registry = ImageRegistry(V)
    first, second = image(registry, "first", 2, 3), image(registry, "second", 1, 4)
    return Sight(Seeing(1, axes, spans), registry, pad=7), first, second


def test_equal_images_have_equal_ids_and_others_have_others() -> None:
    registry = ImageRegistry(V)
    first, second = registry.add("a", 3, 1, 3), registry.add("b", 2, 1, 2)
    assert (list(first.ids), list(second.ids)) == ([100, 101, 102], [103, 104])
    assert registry.add("a", 3, 1, 3) is first
    assert [registry.find(one).key for one in range(100, 105)] == ["a", "a", "a", "b", "b"]
    text = [5, *first.ids, *second.ids, *first.ids, 6]
    assert registry.in_text(text) == [(1, first), (4, second), (6, first)]
    assert registry.in_text(text[2:5]) == [(-1, first), (2, second)]
    assert registry.in_text([1, 2]) == []


def test_prompts_on_several_threads_add_images_that_share_no_ids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def made(*operands: Any, **options: Any) -> Image:
        time.sleep(0)  # another thread goes on
        return Image(*operands, **options)

    monkeypatch.setattr("engine.vision.registry.Image", made)
    registry = ImageRegistry(V)

    def add(thread: int) -> None:
        for key in range(thread // 3 * 100, 300):  # some images are added by all of them
            one = registry.add(str(key), 2, 1, 2)
            assert registry.find(one.first + 1) is one

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(add, range(6)))
    ids = [one for image in registry.images for one in image.ids]
    assert ids == list(range(V, V + 2 * 300))


def test_the_rows_used_longest_ago_are_freed_beyond_the_limit() -> None:
    registry = ImageRegistry(V, rows_bytes=3 * 8)
    a, b, c, d = (registry.add(key, 2, 1, 2) for key in "abcd")
    for one in (a, b, c):
        registry.keep(one, torch.zeros(2, 1))
    Sight(Seeing(1), registry).segment(Sequence([]), [*a.ids])  # reads it
    registry.keep(d, torch.zeros(2, 1))
    assert [one.rows is not None for one in (a, b, c, d)] == [True, False, True, True]
    registry.keep(b, torch.zeros(2, 1), needed={c, a})
    assert [one.rows is not None for one in (a, b, c, d)] == [True, True, True, False]
    registry.keep(d, torch.zeros(8, 1), needed={c})  # larger than the limit
    assert [one.rows is not None for one in (a, b, c, d)] == [False, False, True, True]
    registry.free({d})
    assert [one.rows is not None for one in (a, b, c, d)] == [False, False, False, True]
    registry.free()
    assert d.rows is None


def test_the_pixels_that_prompts_had_longest_ago_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.vision.registry.PIXELS_BYTES", 30)
    registry = ImageRegistry(V)

    def add(key: str, size: int = 10) -> Image:
        return registry.add(key, 2, 1, 2, lambda: torch.zeros(2, 2, 3), size)

    a, b, c = map(add, "abc")
    assert add("a") is a  # in another prompt
    d = add("d")
    assert [one.pixels is not None for one in (a, b, c, d)] == [True, False, True, True]
    large = add("large", 100)
    assert [one.pixels is not None for one in (a, b, c, d, large)] == [False] * 4 + [True]
    assert add("b").pixels is not None


def test_rows_stand_at_their_tokens_which_become_the_pad() -> None:
    sight, first, second = sight_of()
    found = sight.segment(Sequence([1, 2]), [3, *first.ids, 4, *second.ids[:2]])
    assert list(found.tokens) == [3, *[7] * 6, 4, 7, 7]
    assert found.position == 2
    assert found.images.at.tolist() == [1, 2, 3, 4, 5, 6, 8, 9]
    assert torch.equal(found.images.rows, torch.cat((first.rows, second.rows[:2])))
    assert found.images.positions is None
    assert not found.images.spans


def test_a_text_without_images_is_as_it_was() -> None:
    sight, first, _ = sight_of()
    assert sight.segment(Sequence([1, *first.ids]), [3, 4]).images is None
    moving, first, _ = sight_of(AXES)
    assert moving.segment(Sequence([1, 2]), [3, 4]).images is None
    assert moving.segment(Sequence([1, *first.ids]), [3, 4]).images is not None


@pytest.mark.parametrize("cut", range(15))
def test_positions_go_on_behind_the_longer_side_of_an_image(cut: int) -> None:
    sight, first, second = sight_of(AXES)
    text = [1, 2, *first.ids, 3, *second.ids, 4, 5]  # 2 + 6 + 1 + 4 + 2
    wanted = [
        *([0, 0, 0], [1, 1, 1]),
        *([2, 2 + line, 2 + column] for line in range(2) for column in range(3)),
        [5, 5, 5],  # 2 and the three columns
        *([6, 6, 6 + column] for column in range(4)),
        *([10, 10, 10], [11, 11, 11]),
    ]
    parts = [text[:cut], text[cut:]]
    found: list[list[int]] = []
    sequence = Sequence([])
    for part in filter(None, parts):
        segment = sight.segment(sequence, part)
        start = len(sequence.tokens)
        plain = [[start + at] * 3 for at in range(len(part))]
        found += segment.images.positions.tolist() if segment.images else plain
        sequence = Sequence([*sequence.tokens, *part])
    assert found == wanted


def test_how_far_images_move_positions_is_found_anew_after_a_rewind() -> None:
    sight, first, _ = sight_of(AXES)
    sequence = Sequence([1, *first.ids, 2])
    assert sight.segment(sequence, [3]).images.positions.tolist() == [[5, 5, 5]]
    sequence.tokens, sequence.moved = [1, 2, 3, 4, 5, 6, 7, 8], None
    assert sight.segment(sequence, [3]).images is None


@pytest.mark.parametrize("spans", [Spans.WHOLE, Spans.WINDOWED])
def test_spans_are_not_divided(spans: Spans) -> None:
    sight, first, second = sight_of(spans=spans)
    text = [1, *first.ids, *second.ids, 2]  # spans at 1 to 7 and 7 to 11
    assert [sight.cut(text, n) for n in range(1, 13)] == [1, *[1] * 5, 7, 7, 7, 7, 11, 12]
    assert [sight.cut(text[1:], n) for n in range(1, 7)] == [6] * 6  # it begins with a span
    assert [sight.fits(text, n) for n in range(13)] == [0, 1, *[1] * 5, 7, 7, 7, 7, 11, 12]
    assert [sight.fits(text[1:], n) for n in range(7)] == [*[0] * 6, 6]
    found = sight.segment(Sequence([]), text).images
    assert found.spans == [range(1, 7), range(7, 11)]


def test_a_causal_image_may_be_cut_anywhere() -> None:
    sight, first, _ = sight_of(AXES)
    text = [1, *first.ids, 2]
    assert [sight.cut(text, n) for n in range(9)] == list(range(9))
    assert [sight.fits(text, n) for n in range(9)] == list(range(9))


def test_rows_are_encoded_once_they_are_missing() -> None:
    sight, first, second = sight_of()
    first.rows = None
    text = [1, *first.ids, *second.ids, *first.ids]
    assert sight.missing(text) == [first]
    with pytest.raises(KeyError):
        sight.segment(Sequence([]), text)
    with pytest.raises(RequestError, match=r"^A picture of this chat is not there any more\.$"):
        sight.encode(first, lambda: None)
    calls: list[object] = []

    def encode(pixels: torch.Tensor, checkpoint: object) -> torch.Tensor:
        calls.append(checkpoint)
        return pixels.view(6, 1)

    def nothing() -> None:
        pass

    sight.encoder = SimpleNamespace(encode=encode)
    first.pixels = lambda: torch.arange(6.0)
    sight.encode(first, nothing)
    assert sight.missing(text) == []
    assert calls == [nothing]
    assert first.rows is not None
    assert first.rows.flatten().tolist() == [0, 1, 2, 3, 4, 5]
