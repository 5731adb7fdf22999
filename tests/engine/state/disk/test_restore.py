"""Choice of a saved sequence for a prompt, and the reasons for refusing a conversation's own."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from engine import Fault, FaultKind, SnapshotError, snapshots_folder
from engine.state.disk import restore
from engine.state.disk.page_file import StateKey
from engine.state.disk.restore import Match, candidates, check_origin, matches
from engine.state.disk.sequence_file import SavedSequence, conversation_prefix
from engine.state.disk.store import PageStore
from saved_pages import KEY, Saves, find

CONTEXT = 4096


@pytest.fixture
def store() -> PageStore:
    return PageStore(snapshots_folder())


@pytest.fixture
def saves(store: PageStore) -> Saves:
    return Saves(store, metadata={"model": "Tiny"})


def shared_length(prompt: Sequence[int]) -> Callable[[SavedSequence], int]:
    """A function that counts the tokens a sequence shares with the beginning of the prompt."""

    def count(saved: SavedSequence) -> int:
        pairs = zip(prompt, saved.tokens, strict=False)
        return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))

    return count


def found(
    store: PageStore, prompt: Sequence[int], cached: int = 0, conversation: str = ""
) -> list[Match]:
    shared = shared_length(prompt)
    worth = candidates(store.sequences(), shared, cached, conversation)
    return matches(
        store, worth, KEY, shared, windows=(0,), cached=cached, conversation=conversation
    )


def refusal(
    store: PageStore, key: StateKey = KEY, conversation: str = "one", context: int = CONTEXT
) -> SnapshotError | None:
    return restore.refusal(store, store.sequences(), key, context, conversation)


# --- choice -------------------------------------------------------------------------------------


def test_longest_shared_prefix_comes_first_and_the_last_used_among_equals(
    saves: Saves, store: PageStore
) -> None:
    prompt = list(range(1000))
    short = saves.save([*range(300), 2000], "a")
    long = saves.save([*range(700), 2000], "b")
    equal = saves.save([*range(300), 2001], "c")
    saves.save([7, 8, 9] * 100, "d")
    saves.save(prompt, "e", key=replace(KEY, stack="x"))
    got = [(match.saved.path, match.tokens) for match in found(store, prompt)]
    assert got == [(long.path, 700), (equal.path, 300), (short.path, 300)]
    store.touch(find(store, short))
    assert found(store, prompt)[1].saved.path == short.path
    assert found(store, [5]) == []


def test_own_sequence_needs_one_token_more_and_others_several(
    saves: Saves, store: PageStore
) -> None:
    saves.save(list(range(300)))
    assert [m.tokens for m in found(store, range(400), 284)] == [300]
    assert found(store, range(400), 285) == []
    assert [m.tokens for m in found(store, range(400), 299, "one")] == [300]
    assert found(store, range(400), 300, "one") == []
    assert found(store, range(400), 299, "two") == []


def test_only_tokens_whose_pages_are_there_count(saves: Saves, store: PageStore) -> None:
    whole = saves.save(list(range(600)))
    saves.save([*range(300), 2000], "two")
    pages = find(store, whole).pages
    for page in pages[1:]:
        next((snapshots_folder() / "pages").glob(f"{page.name}.*")).unlink()
    assert [m.tokens for m in found(store, range(1000))] == [300, 256]


def test_sequences_of_other_conversations_that_share_little_are_no_candidates(
    saves: Saves, store: PageStore
) -> None:
    saves.save(list(range(300)), "one")
    saves.save([9, 9], "two")
    damaged = saves.save([9, 9, 9], "three").path
    damaged.write_bytes(b"x")

    def names(conversation: str) -> list[str]:
        shared = shared_length(range(300))
        got = candidates(store.sequences(), shared, 0, conversation)
        return [saved.path.name[:16] for saved in got]

    assert names("") == [conversation_prefix("one")]
    assert sorted(names("two")) == sorted(map(conversation_prefix, ("one", "two")))
    assert sorted(names("three")) == sorted(map(conversation_prefix, ("one", "three")))


# --- refusals -----------------------------------------------------------------------------------


def message(store: PageStore, key: StateKey, context: int = CONTEXT) -> str:
    error = refusal(store, key, context=context)
    assert error is not None
    assert error.remedy
    return str(error)


def test_usable_or_no_sequence_is_no_refusal(saves: Saves, store: PageStore) -> None:
    assert refusal(store) is None
    saves.save([1, 2, 3])
    assert refusal(store) is None
    assert refusal(store, replace(KEY, stack="x"), conversation="two") is None
    assert refusal(store, replace(KEY, stack="x"), conversation="") is None
    saves.save([1, 2, 3], key=replace(KEY, stack="x"))
    assert refusal(store, replace(KEY, stack="x")) is None


def test_another_model_is_named(saves: Saves, store: PageStore) -> None:
    saves.save([1, 2, 3])
    other = replace(KEY, model_sha256="b" * 64, stack="x")
    assert message(store, other) == "The session was saved with another model, Tiny."
    error = refusal(store, other)
    assert error is not None
    assert error.fault == Fault(FaultKind.SAVED_MODEL, "Tiny")


def test_a_name_from_a_file_is_shown_short_and_on_one_line(store: PageStore) -> None:
    Saves(store, metadata={"model": "a\nb\x1b[31m" + "c" * 10_000}).save([1, 2, 3])
    text = message(store, replace(KEY, model_sha256="b" * 64))
    assert len(text) < 200
    assert text.isprintable()


def test_other_adapters_are_named(saves: Saves, store: PageStore) -> None:
    saves.save([1, 2, 3])
    stack = replace(KEY, stack="x")
    assert message(store, stack) == "The session was saved without adapters."
    adapters = [{"name": f"leaf{n}", "sha256": "", "strength": 0.5} for n in range(6)]
    for entries, names in (
        (adapters[:1], "leaf0 at 0.5"),
        (adapters, "leaf0 at 0.5, leaf1 at 0.5, leaf2 at 0.5, leaf3 at 0.5, ..."),
    ):
        saved = Saves(store, metadata={"adapters": json.dumps(entries)})
        saved.save([1, 2, 3, len(entries)], "two", key=stack)
        error = refusal(store, KEY, "two")
        assert str(error) == f"The session was saved with other adapters or strengths ({names})."
    for text in ("[", "[" * 100_000, "{}", '[1, {"name": 2}]'):
        Saves(store, metadata={"adapters": text}).save([1], "three", key=stack)
        assert "without adapters" in str(refusal(store, KEY, "three"))


def test_cache_layout_and_length_are_named(saves: Saves, store: PageStore) -> None:
    saves.save(list(range(74)))
    text = message(store, replace(KEY, cache="q8_0"))
    assert "cache of type f16" in text
    assert "loaded with q8_0" in text
    assert "74 tokens, and the context only 60" in message(store, KEY, context=60)
    assert "another layout" in message(store, replace(KEY, layout="2"))
    assert "another layout" in message(store, replace(KEY, page_bytes=(7,)))
    assert "another context size" in message(store, replace(KEY, computation="2"))
    kinds = [
        (replace(KEY, cache="q8_0"), CONTEXT, FaultKind.SAVED_CACHE),
        (replace(KEY, stack="x"), CONTEXT, FaultKind.SAVED_ADAPTERS),
        (replace(KEY, layout="2"), CONTEXT, FaultKind.SAVED_VERSION),
        (replace(KEY, computation="2"), CONTEXT, FaultKind.SAVED_COMPUTATION),
        (KEY, 60, FaultKind.SAVED_LENGTH),
    ]
    (saved,) = store.sequences()
    for key, context, kind in kinds:
        with pytest.raises(SnapshotError) as refused:
            check_origin(saved, key, context)
        assert refused.value.fault.kind is kind


def test_the_reason_is_that_of_the_last_used(saves: Saves, store: PageStore) -> None:
    saves.save([1, 2, 3], key=replace(KEY, cache="f32"))
    saves.save([1, 2, 3], key=replace(KEY, stack="x"))
    assert "without adapters" in message(store, KEY)


def test_damaged_sequence_is_refused_once_and_deleted(saves: Saves, store: PageStore) -> None:
    path = saves.save([1, 2, 3]).path
    path.write_bytes(b"damaged")
    error = refusal(store)
    assert str(error) == "The saved session is damaged."
    assert not path.exists()
    assert refusal(store) is None


def test_damaged_sequence_of_another_conversation_stays(saves: Saves, store: PageStore) -> None:
    path = saves.save([1, 2, 3]).path
    path.write_bytes(b"damaged")
    assert refusal(store, conversation="two") is None
    assert path.exists()


def test_removed_file_of_an_older_version_is_the_reason_while_nothing_new_is_saved() -> None:
    folder = snapshots_folder()
    folder.mkdir(parents=True)
    (folder / f"{conversation_prefix('one')}-{'0' * 32}.safetensors").write_bytes(b"old")
    store = PageStore(folder)
    error = refusal(store)
    assert error is not None
    assert error.fault.kind is FaultKind.SAVED_VERSION
    assert refusal(store, conversation="two") is None
    Saves(store).save([1, 2, 3])
    assert refusal(store) is None
