"""Unsent text: what is in the composer and what waits comes back from the store as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytestqt.qtbot import QtBot

from app.domain.parts import FilePart, ImagePart, Part, TextPart, attachments, typed_text
from app.domain.unsent import Unsent
from app.store.store import Store
from app.store.unsent import unsent_of, unsent_text
from app.ui.chat.composer.composer import Composer

# Spaces, joiners, marks, separators and noncharacters that programs alter, and our own notation.
PIECES = st.one_of(
    st.characters(exclude_categories=["Cs"]),
    st.sampled_from(
        [*"\u00a0\u2028\ufeff\ufffe\x00\x85\u200d\u0301\u202e\\\U0001f600", "\r\n", " \n"]
    ),
    st.sampled_from(['{"unsent": ', "[[]]}", "<think>", "x" * 5000]),
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)
FILES = st.builds(FilePart, TEXTS, TEXTS, st.sampled_from(["", "ab" * 32]))
IMAGES = st.builds(ImagePart, TEXTS, st.just("cd" * 32), TEXTS, st.integers(0, 9))
MESSAGES = st.tuples(
    st.lists(st.one_of(FILES, IMAGES), max_size=2), TEXTS.filter(bool).map(TextPart)
).map(lambda pair: (*pair[0], pair[1]))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    path: Path = tmp_path_factory.mktemp("unsent") / "conversations.sqlite"
    with closing(Store.open(path)) as store:
        yield store


@pytest.fixture
def composers(qtbot: QtBot) -> list[Composer]:
    made = [Composer(), Composer()]
    for each in made:
        qtbot.addWidget(each)
    return made


@given(
    st.builds(Unsent, st.one_of(MESSAGES, st.just(())), st.lists(MESSAGES, max_size=3).map(tuple))
)
@settings(deadline=None, max_examples=150)
def test_what_is_unsent_is_stored_exactly(store: Store, unsent: Unsent) -> None:
    assert unsent_of(unsent_text(unsent)) == unsent
    store.set_draft(None, unsent)
    assert store.draft(None) == unsent


def as_in_the_field(text: str) -> str:
    """With line ends of one kind, which is all that the field changes."""
    for end in ("\r\n", "\r", "\u2029", "\ufdd0", "\ufdd1"):
        text = text.replace(end, "\n")
    return text


@given(MESSAGES)
@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # the field is filled anew by each example
def test_the_composer_gives_back_what_was_stored(
    composers: list[Composer], store: Store, parts: tuple[Part, ...]
) -> None:
    first, second = composers
    first.set_text(parts)
    typed = first.parts()
    assert attachments(typed) == attachments(parts)
    assert typed_text(typed) == as_in_the_field(typed_text(parts))
    store.set_draft(None, Unsent(typed))
    second.set_text(store.draft(None).field)
    assert second.parts() == typed
    second.put_before((TextPart("Before"),))
    assert typed_text(second.parts()) == f"Before\n{typed_text(typed)}"
