"""StopFilter: the first stop string, however many there are and however the text is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import RequestError
from engine.frontend.answer_stream import Kind
from engine.frontend.stop_filter import StopFilter

TEXTS = st.text("ab", min_size=1, max_size=5)


@given(st.lists(TEXTS, min_size=1, max_size=8), st.lists(TEXTS, max_size=12))
def test_the_text_before_the_first_stop_string_is_kept(stops: list[str], chunks: list[str]) -> None:
    found = StopFilter(stops)
    shown = ""
    for chunk in chunks:
        shown += "".join(text for _, text in found.push([(Kind.TEXT, chunk)]))
        if found.stopped:
            break
    shown += "".join(text for _, text in found.flush())
    whole = "".join(chunks)
    places = [at for stop in stops if (at := whole.find(stop)) >= 0]
    assert found.stopped == bool(places)
    if not places:
        assert shown == whole
    else:
        assert whole.startswith(shown + found.found)
        assert not any(stop in shown for stop in stops)


def test_only_what_may_become_a_stop_string_is_held() -> None:
    found = StopFilter([f"stop {at}" for at in range(10_000)] + ["halt"])
    assert list(found.push([(Kind.TEXT, "one st")])) == [(Kind.TEXT, "one ")]
    assert list(found.push([(Kind.TEXT, "ep ha")])) == [(Kind.TEXT, "st"), (Kind.TEXT, "ep ")]
    assert not found.push([(Kind.TEXT, "l")])
    assert not found.push([(Kind.TEXT, "t!")])
    assert found.found == "halt"


def test_a_stop_string_that_would_hold_an_answer_is_refused() -> None:
    StopFilter(["a" * 4096])
    with pytest.raises(RequestError, match="4,097 characters"):
        StopFilter(["a" * 4097])
