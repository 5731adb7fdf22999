"""Formulas in the transcript: layout once typeset, sources, copying, scrolling and themes."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPointF
from PySide6.QtGui import QColor, QContextMenuEvent
from PySide6.QtWidgets import QApplication, QMenu
from pytestqt.qtbot import QtBot

from app.domain.message import Message, MessageState
from app.domain.parts import split
from app.markdown.blocks import Formula, Paragraph, Place
from app.markdown.formulas import Tex
from app.markdown.stream import parse
from app.ui.blocks.blocks import TextView
from app.ui.blocks.formula import SMALLEST_SCALE, FormulaView, formula_view
from app.ui.blocks.style import ReadingStyle
from app.ui.blocks.table import TableView
from app.ui.blocks.typesetting import TYPESETTER
from app.ui.theme.palette import DARK, HIGH_CONTRAST, LIGHT, Palette, show_palette
from app.ui.transcript.view import Transcript
from engine import Role
from transcript_driver import grow

ANSWER = r"""Let $a_1 = \frac{1}{2}$ and **so** \(x\).

$$
\sum_{i=1}^n x_i
$$

| a | b |
|---|---|
| $\mu$ | mean |

Wrong: $\frac{1$ and $\nocommand$."""


def message(text: str, state: MessageState = MessageState.COMPLETE) -> Message:
    return Message(1, 1, 0, Role.ASSISTANT, split(text), state, 0.0, "", "", 0, 0, 4.0, 1, 1)


def typeset(qtbot: QtBot, *sources: Tex) -> None:
    for source in sources:
        TYPESETTER.ask(source)
    qtbot.waitUntil(lambda: not TYPESETTER.busy)


@pytest.fixture
def view(qtbot: QtBot) -> Transcript:
    transcript = Transcript()
    qtbot.addWidget(transcript)
    transcript.resize(700, 600)
    transcript.show()
    return transcript


def settle(qtbot: QtBot, view: Transcript) -> None:
    view.grab()
    qtbot.waitUntil(lambda: not (TYPESETTER.busy or view.formulas.waiting or view.working))


def paragraph(text: str) -> TextView:
    (block,) = parse(text)
    assert isinstance(block, Paragraph)
    return TextView(block, ReadingStyle(LIGHT))


def test_formula_shows_its_source_and_then_its_picture(qtbot: QtBot, view: Transcript) -> None:
    view.set_messages([message(ANSWER)])
    parts = view.stack.views[0].parts
    assert isinstance(parts[1].view, TextView)
    length = parts[0].view.length
    settle(qtbot, view)
    assert isinstance(parts[1].view, FormulaView)
    assert isinstance(parts[2].view, TableView)
    assert not any(part.view.waiting for part in parts)
    assert parts[0].view.length == length
    assert parts[0].view.height > view.message_layout.style.line
    assert parts[1].y == parts[0].y + parts[0].view.height + 10
    assert parts[3].view.text(0, 100) == r"Wrong: $\frac{1$ and $\nocommand$."


def test_streamed_formula_is_typeset_once_closed(qtbot: QtBot, view: Transcript) -> None:
    view.append_message(message("", MessageState.STREAMING))
    for piece in ("So $$\\fr", "ac{a}{b}$", "$ is it. \\[", " y_2\n\\]", "\n\n$$\nz_3\n$$\n\nEnd"):
        grow(view, 1, piece)
        view._updates.flush()
    settle(qtbot, view)
    parts = view.stack.views[0].parts
    assert [type(part.view) for part in parts] == [TextView, FormulaView, TextView]
    assert parts[0].view.height > view.message_layout.style.line


def test_selection_and_copy_have_the_source(qtbot: QtBot, view: Transcript) -> None:
    view.set_messages([message(ANSWER)])
    view.selection.set((0, 0, 4), (0, 0, 8))
    before = view.selection.text(view.stack.views)
    settle(qtbot, view)
    assert view.selection.text(view.stack.views) == before == "$a_1"
    view.select_all()
    view.copy()
    assert QApplication.clipboard().text() == ANSWER
    view.selection.set((0, 1, 0), (0, 1, 22))
    assert view.selection.text(view.stack.views) == "$$\n\\sum_{i=1}^n x_i\n$$"


def test_positions_around_a_formula_count_its_source(qtbot: QtBot) -> None:
    typeset(qtbot, Tex("a_1", display=False))
    text = paragraph("Let $a_1$ be 1.")
    text.layout(600)
    assert text.text(0, text.length) == "Let $a_1$ be 1."
    hits = [text.hit(x / 2, 5) for x in range(400)]
    assert hits == sorted(hits)
    assert set(hits) == {0, 1, 2, 3, 4, *range(9, 16)}
    assert text.word_around(4) == (4, 9)
    assert text.word_around(10) == (10, 12)
    left = hits.index(4) / 2 + 6
    assert text.formula_at(left, 5) == "$a_1$"
    assert text.formula_at(5, 5) == ""


def test_formula_wider_than_the_column(qtbot: QtBot) -> None:
    code = " + ".join(["a_1"] * 30)
    block = Formula(Place(0, 1), f"$${code}$$", code)
    typeset(qtbot, Tex(code, display=True), Tex(code, display=False))
    wide = formula_view(block, ReadingStyle(LIGHT))
    assert isinstance(wide, FormulaView)
    natural = wide.natural_width
    wide.layout(natural * 0.9)
    assert not wide.horizontal_scroll.overflows
    height = wide.height
    wide.layout(natural * 0.5)
    assert wide.horizontal_scroll.overflows
    assert wide.horizontal_scroll.content_width == pytest.approx(natural * SMALLEST_SCALE)
    wide.layout(natural + 100)
    assert wide.height > height
    inline = paragraph(f"A ${code}$ b")
    inline.layout(300)
    assert inline.natural_width <= 300


@pytest.mark.parametrize("palette", [LIGHT, DARK, HIGH_CONTRAST])
def test_formulas_have_the_colour_of_the_text(
    qtbot: QtBot, view: Transcript, palette: Palette
) -> None:
    show_palette(palette)
    view.set_messages([message("$$\n\\blacksquare\n$$")])
    settle(qtbot, view)
    part = view.stack.views[0].parts[0]
    middle = QPointF(part.x + part.width / 2, part.y + part.view.height / 2)
    image = view.viewport().grab().toImage()
    x = round(view.message_layout.column_left() + middle.x())
    y = round(view.message_layout.message_top(0) + middle.y())
    assert image.pixelColor(x, y) == QColor(palette.text)


def test_theme_change_typesets_nothing_again(qtbot: QtBot, view: Transcript) -> None:
    view.set_messages([message(ANSWER)])
    settle(qtbot, view)
    misses = TYPESETTER.misses
    show_palette(DARK)
    view.grab()
    assert TYPESETTER.misses == misses
    assert isinstance(view.stack.views[0].parts[1].view, FormulaView)


@pytest.mark.qt_log_ignore("This plugin does not support", extend=True)
def test_menu_copies_the_formula(qtbot: QtBot, view: Transcript) -> None:
    view.set_messages([message(ANSWER)])
    settle(qtbot, view)
    part = view.stack.views[0].parts[1]
    middle = QPointF(part.x + part.width / 2, part.y + part.view.height / 2)
    point = middle + QPointF(view.message_layout.column_left(), view.message_layout.message_top(0))
    target = view.pointer.target(point)
    assert target.formula == "$$\n\\sum_{i=1}^n x_i\n$$"
    place = point.toPoint()
    event = QContextMenuEvent(QContextMenuEvent.Reason.Mouse, place, view.mapToGlobal(place))
    view.contextMenuEvent(event)
    (menu,) = view.findChildren(QMenu)
    (action,) = [each for each in menu.actions() if each.text() == "Copy formula as LaTeX"]
    action.trigger()
    assert QApplication.clipboard().text() == target.formula
    menu.close()


def test_formulas_above_do_not_move_what_is_read(qtbot: QtBot, view: Transcript) -> None:
    fractions = "\n\n".join(f"$$\n\\frac{{a}}{{{n}}}\n$$" for n in range(10, 30))
    rest = "\n\n".join(f"Paragraph {n}." for n in range(40))
    view.set_messages([message(f"{fractions}\n\n{rest}")])
    view.scroller.follow = False
    parts = view.stack.views[0].parts
    view.scroller.scroll_to(view.stack.top(0) + parts[30].y)
    before = view.message_layout.message_top(0) + parts[30].y
    settle(qtbot, view)
    assert isinstance(parts[0].view, FormulaView)
    assert abs(view.message_layout.message_top(0) + parts[30].y - before) <= 1


def test_list_marker_is_on_the_baseline_of_a_high_first_line(qtbot: QtBot) -> None:
    typeset(qtbot, Tex("\\frac{a}{b}", display=True))
    plain, high = paragraph("Some text"), paragraph("So $$\\frac{a}{b}$$")
    plain.layout(600)
    high.layout(600)
    assert plain.first_line_drop == 0
    assert high.first_line_drop > 2
    high.layout(30)  # the formula is on the second line
    assert high.first_line_drop == 0
