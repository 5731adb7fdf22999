"""Tests of the observable state of attached files."""

from __future__ import annotations

import pytest

from app.state.attachments import Attachment, AttachmentsState, Editing, FitEstimate


def test_places_have_their_own_files_in_order() -> None:
    state, seen = AttachmentsState(), list[object]()
    state.changed.connect(seen.append)
    first, second = Attachment(1, "a.txt"), Attachment(2, "b.txt")
    state.set(None, (first, second))
    state.set(Editing(5), (second,))
    state.set(Editing(5), (second,))  # nothing changes
    state.set(None, ())
    assert seen == [None, Editing(5), None]
    assert state.of(None) == ()
    assert state.find(2) == (Editing(5), second)
    assert state.find(1) is None


@pytest.mark.parametrize(
    ("context", "fits"), [(0, True), (1000, False), (1100, True), (1099, False)]
)
def test_a_prompt_fits_with_its_answer(context: int, fits: bool) -> None:
    assert FitEstimate(1000, context, answer_tokens=100).fits is fits


def test_a_new_estimate_ends_a_refusal() -> None:
    state, seen = AttachmentsState(), list[bool]()
    state.fit_changed.connect(lambda: seen.append(state.refused))
    estimate = FitEstimate(10, 5)
    state.set_fit(estimate, refused=True)
    state.set_fit(estimate, refused=True)
    state.set_fit(FitEstimate(4, 5))
    assert seen == [True, False]
