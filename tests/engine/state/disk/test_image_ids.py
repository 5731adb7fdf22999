"""Ids of rows of images in files: from one process to another, which gives them other ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import snapshots_folder
from engine.state.disk import sequence_file
from engine.state.disk.image_ids import from_saved, to_saved
from engine.state.disk.page_file import PAGE_TOKENS, SavedImage, StateKey, pages_of
from engine.state.disk.sequence_file import SavedSequence, encoded_ids
from engine.state.disk.store import PageStore
from engine.vision.registry import ImageRegistry
from saved_pages import KEY, PLENTY, memory_pages

V = 1000
ENCODER, OTHER = "e" * 64, "f" * 64
SIZES = {"a": (6, 2, 3), "b": (6, 2, 3), "c": (300, 15, 20), "d": (1, 1, 1)}
TEXTS = st.lists(st.one_of(st.integers(0, V - 1), st.sampled_from(sorted(SIZES))), max_size=20)
Parts = Sequence[int | str]


def registry_of(order: Sequence[str]) -> ImageRegistry:
    """One that has given ids in this order."""
    made = ImageRegistry(V)
    for key in order:
        made.add(key, *SIZES[key])
    return made


def ids_of(parts: Parts, registry: ImageRegistry) -> list[int]:
    found: list[int] = []
    for one in parts:
        found += [one] if isinstance(one, int) else registry.add(one, *SIZES[one]).ids
    return found


@given(parts=TEXTS, orders=st.tuples(*[st.permutations(sorted(SIZES))] * 2), cut=st.integers(0))
def test_a_text_has_the_ids_of_the_process_that_reads_it(
    parts: Parts, orders: tuple[list[str], list[str]], cut: int
) -> None:
    first, second = map(registry_of, orders)
    ids = ids_of(parts, first)
    saved, images = to_saved(ids, first, ENCODER)
    assert from_saved(saved, images, second, V, encoder=ENCODER) == ids_of(parts, second)
    assert to_saved(ids_of(parts, second), second, ENCODER) == (saved, images)
    assert [one >= 0 for one in saved] == [one < V for one in ids]
    length = cut % (len(ids) + 1)
    part, shown = to_saved(ids[:length], first, ENCODER)
    assert (part, shown) == (saved[:length], images[: len(shown)])
    assert from_saved(part, images, second, V) == ids_of(parts, second)[:length]


def test_a_text_ends_for_a_process_at_the_first_row_that_it_does_not_know() -> None:
    registry = registry_of("abcd")
    saved, images = to_saved(ids_of([5, "a", 6, "b", 7], registry), registry, ENCODER)

    def known(made: ImageRegistry | None, **options: object) -> list[int]:
        return from_saved(saved, images, made, V, **options)  # type: ignore[arg-type]

    assert known(None) == [5]
    assert known(ImageRegistry(V)) == [5]
    made = registry_of("da")
    assert known(made) == [5, *made.images[1].ids, 6]
    assert known(made, encoder=OTHER) == [5]
    other = ImageRegistry(V)
    for key, count, lines, columns in (("a", 6, 3, 2), ("a", 7, 2, 3), ("b", 6, 2, 3)):
        other.add(key, count, lines, columns)
    assert known(other) == [5]
    assert known(other, adds=True) == ids_of([5, "a", 6, "b", 7], other)
    assert from_saved([5, V, 6], (), registry, V) == [5]
    assert from_saved([5, -1, 6], (), registry, V) == [5]
    assert from_saved([5, -13, 6], images, registry, V) == [5]


def test_pages_are_named_by_their_images_and_those_before_them() -> None:
    registry = registry_of("abcd")

    def names(*parts: int | str, encoder: str = ENCODER) -> list[str]:
        saved, images = to_saved(ids_of(parts, registry), registry, encoder)
        return [page.name for page in pages_of(KEY, encoded_ids(saved), images)]

    before, after = [*range(300)], [*range(250)]
    one = names(*before, "a", *after)
    assert names(*before, "a", *after, "c")[:2] == one[:2]
    for other in (names(*before, "b", *after), names(*before, "a", *after, encoder=OTHER)):
        assert [a == b for a, b in zip(one, other, strict=True)] == [True, False, False]
    assert names("a", "b") != names("b", "a") != names("a", "a")
    plain = [page.name for page in pages_of(KEY, encoded_ids(before))]
    assert names(*before) == plain
    assert one[0] == plain[0]
    digest = SavedImage(ENCODER, "a", 6, 2, 3)
    for changed in (
        replace(digest, key="b"), replace(digest, count=7), replace(digest, lines=3),
        replace(digest, columns=2), replace(digest, encoder=OTHER),
    ):  # fmt: skip
        assert changed.digest != digest.digest


# --- files --------------------------------------------------------------------------------------

IMAGES = (SavedImage(ENCODER, "a", 6, 2, 3), SavedImage(ENCODER, "c", 300, 15, 20))
IDS = [5, *range(-1, -7, -1), 7, *range(-7, -200, -1)]  # it ends inside of the second image


def written(
    folder: Path, ids: Sequence[int] = IDS, images: Sequence[SavedImage] = IMAGES
) -> SavedSequence:
    path = folder / "one.sequence"
    held = [1] * -(-len(ids) // PAGE_TOKENS)
    sequence_file.write(path, KEY, {}, encoded_ids(ids), held, {}, images)
    (found,) = sequence_file.read_all(folder)
    return found


def test_a_file_has_the_images_of_its_text(tmp_path: Path) -> None:
    saved = written(tmp_path)
    assert saved.fault is None
    assert (saved.tokens, saved.images) == (IDS, IMAGES)
    assert saved.pages == pages_of(KEY, encoded_ids(IDS), IMAGES)
    assert b'"version":5,' in saved.path.read_bytes()
    plain = written(tmp_path, [5, 6], ())
    assert (plain.tokens, plain.images) == ([5, 6], ())
    whole = plain.path.read_bytes()  # as older versions wrote and read it
    assert b'"version":4,' in whole
    assert b"images" not in whole


@pytest.mark.parametrize(
    "images",
    [
        (replace(IMAGES[0], count=0), IMAGES[1]),
        (replace(IMAGES[0], lines=-1), IMAGES[1]),
        (replace(IMAGES[0], columns=0), IMAGES[1]),
        (replace(IMAGES[0], count="6"), IMAGES[1]),
        (replace(IMAGES[0], key=7), IMAGES[1]),
        (IMAGES[0], replace(IMAGES[1], count=1 << 40)),
        IMAGES[:1],  # fewer rows than the text has
        (),
    ],
)
def test_a_file_with_impossible_images_is_damaged(
    images: tuple[SavedImage, ...], tmp_path: Path
) -> None:
    assert str(written(tmp_path, images=images).fault) == "The saved session is damaged."


def test_a_text_with_another_image_is_no_beginning_of_one(tmp_path: Path) -> None:
    other = (replace(IMAGES[0], key="b"), IMAGES[1])
    key = StateKey("a" * 64, "", "f16", (1000,))
    for images, conversation, left in (
        (other, "one", 2), (IMAGES, "one", 1), (IMAGES, "two", 2),
    ):  # fmt: skip
        store = PageStore(snapshots_folder())
        for saved in store.sequences():
            store.delete(saved)
        for length, shown, name in (
            (len(IDS) - 9, IMAGES, "one"),
            (len(IDS), images, conversation),
        ):
            ids = IDS[:length]
            store.save(
                name, key, {}, ids, memory_pages(ids, key), {}, images=shown, budget_bytes=PLENTY
            )
        assert len(store.sequences()) == left
