"""Find in conversation: matches in every kind of block, in order, and scrolling to each."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPointF
from PySide6.QtGui import QColor
from pytestqt.qtbot import QtBot

from app.domain.message import MessageState
from app.ui.theme.palette import DARK, HIGH_CONTRAST, LIGHT, show_palette
from app.ui.transcript.find import Finder
from app.ui.transcript.view import Transcript
from transcript_driver import (
    message,
    stream_text,
    streaming,
    wait_for_layout,
)

EVERYWHERE = """\
# A needle in the heading

A **need**le in bold, and `needle` in code.

> a needle in a quote

- needle in a list

```python
needle = "x" * 2  # a needle
```

| needle | b |
|--------|---|
| a      | a needle in a cell |

---

$$needle$$
"""


def search(view: Transcript, qtbot: QtBot, query: str) -> Finder:
    view.finder.search(query)
    qtbot.waitUntil(lambda: not view.finder.searching, timeout=60_000)
    return view.finder


def texts(view: Transcript) -> list[str]:
    """The text of every match, from first to last."""
    found: list[str] = []
    for each in view.stack.views:
        for match in view.finder.in_message(each.message.id)[0]:
            if match.row < 0:
                found.append(each.parts[match.part].view.text(match.start, match.end))
    return found


def visible(view: Transcript) -> bool:
    """Whether the current match is inside the viewport."""
    spots = view.finder.current_spots()
    assert spots is not None
    (index, number, start), (_, _, end) = spots
    part = view.stack.views[index].parts[number]
    area = next(part.view.areas(start, end)).translated(
        part.x, view.message_layout.message_top(index) + part.y
    )
    inside = 0 <= area.left() <= view.stack.column
    return inside and area.top() >= 0 and area.bottom() <= view.viewport().height()


def test_a_word_is_found_in_every_kind_of_block(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([message(1, "Where is my Needle?", is_user=True), message(2, EVERYWHERE)])
    finder = search(view, qtbot, "needle")
    assert [text.lower() for text in texts(view)] == ["needle"] * 11
    assert finder.total == 11
    first = finder.place
    for place in [*range(first + 1, 12), *range(1, first + 1)]:
        finder.step(forward=True)
        assert finder.place == place
        assert visible(view)
    finder.step(forward=False)
    assert finder.place == (first - 2) % 11 + 1


def test_long_conversation_is_searched_and_scrolled_to(view: Transcript, qtbot: QtBot) -> None:
    filler = "\n\n".join(f"Paragraph {n} with some words that fill the line." for n in range(30))
    chat = [message(n, f"{filler}\n\nneedle {n}\n\n{filler}") for n in range(1, 60)]
    view.set_messages(chat)
    view.jump_to_end()
    finder = search(view, qtbot, "needle")
    assert finder.total == 59
    assert visible(view)
    first = finder.place
    assert first == 59  # nearest to what was visible
    for _ in range(70):
        finder.step(forward=True)
        assert visible(view), finder.place
    assert finder.place == (first + 70 - 1) % 59 + 1


def test_matches_above_the_viewport_come_last(view: Transcript, qtbot: QtBot) -> None:
    text = "\n\n".join(f"needle {n}" for n in range(80))
    view.set_messages([message(1, text)])
    wait_for_layout(view, qtbot)
    view.scroller.follow = False
    view.message_layout.scroll_to(900)
    finder = search(view, qtbot, "needle")
    assert finder.total == 80
    assert 15 < finder.place < 40
    finder.search("needle 0")
    assert (finder.place, finder.total) == (1, 1)


def test_growing_query_stays_where_the_search_began(view: Transcript, qtbot: QtBot) -> None:
    filler = "\n\n".join("words" for _ in range(60))
    chat = [message(n, f"ab {filler}") for n in (1, 2)] + [message(3, f"abc {filler}")]
    view.set_messages(chat)
    wait_for_layout(view, qtbot)
    view.scroller.follow = False
    view.message_layout.scroll_to(0)
    finder = search(view, qtbot, "ab")
    finder.step(forward=True)
    assert finder.place == 2
    search(view, qtbot, "abc")
    assert (finder.place, finder.total) == (1, 1)
    assert visible(view)


def test_words_that_are_nowhere_together_are_found_one_by_one(
    view: Transcript, qtbot: QtBot
) -> None:
    view.set_messages([message(1, "red and blue"), message(2, "a blue line\n\nred blue")])
    finder = search(view, qtbot, "red blue")
    assert (finder.total, finder.separate_words) == (1, False)
    search(view, qtbot, "line red")
    assert finder.separate_words
    assert texts(view) == ["red", "line", "red"]
    search(view, qtbot, "and and")
    assert not finder.total


def test_folded_thoughts_unfold_at_their_match(view: Transcript, qtbot: QtBot) -> None:
    thought = "<think>\nA secret, and another secret.\n</think>\n\nThe answer."
    view.set_messages([message(1, "q", is_user=True), message(2, thought)])
    finder = search(view, qtbot, "answer")
    assert view.stack.views[1].rows[0].folded
    search(view, qtbot, "secret")
    assert not view.stack.views[1].rows[0].folded
    assert texts(view) == ["secret", "secret"]
    assert (finder.place, finder.total) == (1, 2)
    assert visible(view)


def test_streamed_text_is_found(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([message(1, "needle", is_user=True), streaming(2)])
    finder = search(view, qtbot, "needle")
    assert finder.total == 1
    stream_text(view, qtbot, 2, "One needle and a second need")
    qtbot.waitUntil(lambda: finder.total == 2)
    stream_text(view, qtbot, 2, "le.")
    qtbot.waitUntil(lambda: finder.total == 3)
    assert finder.place == 1
    view.update_message(message(2, "No more.", state=MessageState.STOPPED))
    qtbot.waitUntil(lambda: finder.total == 1)


def test_other_messages_restart_the_search(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([message(1, "needle"), message(2, "needle needle")])
    finder = search(view, qtbot, "needle")
    view.set_messages([message(1, "needle"), message(3, "thread")])
    qtbot.waitUntil(lambda: not finder.searching)
    assert (finder.place, finder.total) == (1, 1)
    view.remove_message(1)
    qtbot.waitUntil(lambda: not finder.searching)
    assert (finder.place, finder.total) == (0, 0)
    finder.step(forward=True)
    assert finder.place == 0


def test_wide_code_scrolls_to_the_match(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([message(1, "```\n" + "x" * 400 + " needle\n```")])
    search(view, qtbot, "needle")
    assert visible(view)
    assert view.stack.views[0].parts[0].view.horizontal_scroll.offset > 1000  # type: ignore[union-attr]


@pytest.mark.parametrize("palette", [LIGHT, DARK, HIGH_CONTRAST], ids=lambda p: p.name)
def test_matches_are_painted_and_the_current_one_differs(
    view: Transcript, qtbot: QtBot, palette: object
) -> None:
    assert isinstance(palette, type(LIGHT))
    show_palette(palette)
    view.set_messages([message(1, "needle\n\nneedle\n\nneedle other")])
    finder = search(view, qtbot, "needle")

    def ground(part: int) -> str:
        place = view.stack.views[0].parts[part]
        corner = QPointF(place.x + 1.0, view.message_layout.message_top(0) + place.y + 4.0)
        picture = view.viewport().grab().toImage()
        at = corner + QPointF(view.message_layout.column_left(), 0)
        return QColor(picture.pixel(round(at.x()), round(at.y()))).name()

    before = [ground(n) for n in range(3)]
    assert before[0] != before[1] == before[2]
    finder.step(forward=True)
    assert [ground(n) for n in range(3)] == [before[1], before[0], before[1]]
    view.stop_finding()
    assert ground(2) == palette.background.lower()
    assert view.selected_text() == "needle"


def test_right_to_left_text_is_found(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([message(1, "هذا كتاب جديد and another كِتَاب here")])
    finder = search(view, qtbot, "كتاب")
    assert finder.total == 2
    assert texts(view) == ["كتاب", "كِتَاب"]
    part = view.stack.views[0].parts[0]
    for match in finder.in_message(1)[0]:
        areas = list(part.view.areas(match.start, match.end))
        assert areas
        assert all(area.width() > 0 for area in areas)


def test_a_quoted_phrase_is_found_without_its_quotes(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([message(1, "a blue line and a line blue")])
    finder = search(view, qtbot, '"blue line"')
    assert texts(view) == ["blue line"]
    assert finder.total == 1
