"""Transcript layout: following the end, scroll anchor, streaming, worst cases, themes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtGui import QColor, QImage
from pytestqt.qtbot import QtBot

from app.domain.message import MessageState
from app.ui.blocks.code import CodeView
from app.ui.blocks.style import ReadingStyle, contrast
from app.ui.blocks.table import TableView
from app.ui.theme.palette import DARK, HIGH_CONTRAST, LIGHT, show_palette
from app.ui.transcript.view import Transcript
from transcript_driver import (
    CODE,
    LONG,
    drag,
    grow,
    message,
    part_point,
    stream_text,
    streaming,
    wait_for_layout,
    wheel,
)

# --- following ----------------------------------------------------------------------------------


def test_view_follows_the_end_while_streaming(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([message(1, "Hello", is_user=True), streaming(2)])
    stream_text(view, qtbot, 2, LONG)
    bar = view.verticalScrollBar()
    assert bar.maximum() > 1000
    assert bar.value() == bar.maximum()
    assert view.at_end


def test_wheel_stops_following_and_keeps_the_anchor(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([message(1, LONG, is_user=True), streaming(2)])
    stream_text(view, qtbot, 2, LONG)
    with qtbot.waitSignal(view.at_end_changed, check_params_cb=lambda end: not end):
        wheel(view, 400)
    before = view.message_layout.offset()
    stream_text(view, qtbot, 2, "\n\n" + LONG)
    assert view.message_layout.offset() == before
    assert not view.at_end


def test_jumping_to_the_end_follows_again(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([message(1, LONG, is_user=True), streaming(2)])
    stream_text(view, qtbot, 2, LONG)
    wheel(view, 400)
    with qtbot.waitSignal(view.at_end_changed, check_params_cb=bool):
        view.jump_to_end()
    stream_text(view, qtbot, 2, "\n\n" + LONG)
    assert view.message_layout.offset() == view.verticalScrollBar().maximum()


def test_new_user_message_scrolls_to_the_end(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([message(1, LONG)])
    view.message_layout.scroll_to(0)
    view.append_message(message(2, "Next question", is_user=True))
    assert view.message_layout.offset() == view.verticalScrollBar().maximum()


def test_selecting_stops_following(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([message(1, LONG), streaming(2)])
    stream_text(view, qtbot, 2, "Some words here")
    view.jump_to_end()
    part = view.stack.views[0].part_at(-view.message_layout.message_top(0) + 100)
    drag(qtbot, view, part_point(view, 0, part, 5, 5), part_point(view, 0, part, 90, 5))
    before = view.message_layout.offset()
    stream_text(view, qtbot, 2, "\n\n" + LONG)
    assert view.message_layout.offset() == before


def test_idle_layout_keeps_the_scroll_anchor(view: Transcript, qtbot: QtBot) -> None:
    texts = [LONG[: 200 + n * 137 % 1500] + CODE for n in range(120)]
    view.set_messages([message(n, text, is_user=n % 2 == 0) for n, text in enumerate(texts, 1)])
    view.message_layout.scroll_to(view.message_layout.offset() - 700)
    anchor = view.scroller.anchor()
    assert anchor is not None
    assert view.working
    wait_for_layout(view, qtbot)
    index, part, y = anchor
    assert view.message_layout.message_top(index) + view.stack.views[index].parts[part].y == y


def test_resize_keeps_the_scroll_anchor(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([message(n, LONG) for n in range(1, 6)])
    wait_for_layout(view, qtbot)
    view.message_layout.scroll_to(view.message_layout.offset() - 3000)
    anchor = view.scroller.anchor()
    assert anchor is not None
    view.resize(420, 500)
    wait_for_layout(view, qtbot)
    index, part, y = anchor
    place = view.message_layout.message_top(index) + view.stack.views[index].parts[part].y
    assert abs(place - y) <= 1


def test_scrolling_up_through_unbuilt_messages_shows_each_paragraph(
    view: Transcript, qtbot: QtBot
) -> None:
    view.set_messages([message(n, f"Start {n}.\n\n" + LONG) for n in range(1, 40)])
    while view.message_layout.offset() > 0:
        before = view.message_layout.offset()
        wheel(view, 300)
        assert view.message_layout.offset() != before
        top, bottom = (
            view.message_layout.offset(),
            view.message_layout.offset() + view.viewport().height(),
        )
        assert all(view.stack.is_built(index) for index in view.stack.between(top, bottom))
    wait_for_layout(view, qtbot)


def test_opening_lays_out_only_visible_messages(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([message(n, LONG) for n in range(1, 200)])
    built = sum(shown.built for shown in view.stack.views)
    assert 1 <= built <= 3
    wait_for_layout(view, qtbot)
    assert all(shown.built for shown in view.stack.views)


# --- streaming ----------------------------------------------------------------------------------


def test_streamed_answer_renders_like_the_same_answer_opened(
    view: Transcript, qtbot: QtBot
) -> None:
    text = f"# T\n\n{CODE}\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n1. one\n2. two\n\n> said"
    done = message(2, text)
    view.set_messages([streaming(2)])
    stream_text(view, qtbot, 2, text)
    view.update_message(done)
    streamed = view.stack.views[0]
    view.set_messages([])
    view.set_messages([done])
    opened = view.stack.views[0]
    assert [part.view.block for part in streamed.parts] == [
        part.view.block for part in opened.parts
    ]
    assert [(part.x, part.y) for part in streamed.parts] == [
        (part.x, part.y) for part in opened.parts
    ]
    assert streamed.height == opened.height


def test_finished_blocks_are_not_rebuilt(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([streaming(1)])
    stream_text(view, qtbot, 1, LONG)
    before = [part.view for part in view.stack.views[0].parts][:-1]
    stream_text(view, qtbot, 1, " more words.\n\nAnd a new paragraph.")
    after = [part.view for part in view.stack.views[0].parts]
    assert after[: len(before)] == before


def test_growing_code_block_and_table_are_updated_in_place(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([streaming(1)])
    stream_text(view, qtbot, 1, "```python\na = 1\nb")
    code = view.stack.views[0].parts[0].view
    stream_text(view, qtbot, 1, " = 2\nc = 3\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    table = view.stack.views[0].parts[1].view
    stream_text(view, qtbot, 1, "| 3 | 4 |\n| 5 | 6 |\n")
    assert view.stack.views[0].parts[0].view is code
    assert view.stack.views[0].parts[1].view is table
    assert isinstance(code, CodeView)
    assert code.code == "a = 1\nb = 2\nc = 3"
    assert isinstance(table, TableView)
    assert table.text(0, table.length) == "a\tb\n1\t2\n3\t4\n5\t6"


def test_waiting_note_is_shown_until_text_arrives(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([streaming(1)])
    view.set_waiting(1, "Reading the prompt, 40 %")
    assert view.stack.views[0].note == "Reading the prompt, 40 %"
    height = view.stack.views[0].height
    stream_text(view, qtbot, 1, "Yes")
    assert view.stack.views[0].note == ""
    assert view.stack.views[0].height == height


def test_text_for_a_removed_message_is_ignored(view: Transcript) -> None:
    view.set_messages([streaming(1)])
    grow(view, 1, "a")
    grow(view, 1, "b")
    view.remove_message(1)
    grow(view, 1, "c")
    assert len(view.stack) == 0


WORST = {
    "paragraph": "word " * 8000,
    "table": "| a | b | c |\n|---|---|---|\n" + "| one | two words | `three` |\n" * 500,
    "list": "".join(f"- item number {n}\n" for n in range(500)),
    "code": "```python\n" + "".join(f"value_{n} = {n}  # text\n" for n in range(2000)) + "```",
    "fences": "```\n````\n~~~\n```\n" * 50,
    "nested": ">" * 200 + " deep\n" + "- " * 200 + "deep",
    "line": "x" * 1_000_000,
    "controls": "a\x00b\u202ec\u200bd\u2066e\u0301" * 200,
}


@pytest.mark.parametrize("name", WORST)
def test_worst_case_messages_are_shown_completely(
    view: Transcript, qtbot: QtBot, name: str
) -> None:
    text = WORST[name]
    view.set_messages([streaming(1)])
    for at in range(0, len(text), 5000):
        grow(view, 1, text[at : at + 5000])
    view.update_message(message(1, text))
    view.select_all()
    view.grab()
    assert view.selection.text(view.stack.views).replace("\ufffd", "") != ""
    assert view.stack.views[0].height > 20
    view.message_layout.scroll_to(0)
    view.grab()


# --- conversations ------------------------------------------------------------------------------


def test_switching_answer_versions_keeps_the_scroll_position(
    view: Transcript, qtbot: QtBot
) -> None:
    first = [message(1, LONG, is_user=True), message(2, "One", siblings=2)]
    view.set_messages(first)
    view.message_layout.scroll_to(view.message_layout.offset() - 200)
    before = view.message_layout.offset()
    view.set_messages([first[0], message(3, "Two", sibling=2, siblings=2)])
    assert view.message_layout.offset() == before
    assert view.stack.views[1].message.text == "Two"


def test_continued_answer_appends_to_its_text(view: Transcript, qtbot: QtBot) -> None:
    stopped = message(1, "One **two", state=MessageState.STOPPED)
    view.set_messages([stopped])
    view.update_message(replace(stopped, state=MessageState.STREAMING))
    stream_text(view, qtbot, 1, "** three")
    view.update_message(message(1, "One **two** three"))
    (part,) = view.stack.views[0].parts
    assert part.view.text(0, part.view.length) == "One two three"


def test_removing_a_message_closes_the_gap(view: Transcript) -> None:
    view.set_messages([message(1, "a"), message(2, "b"), message(3, "c")])
    second = view.stack.top(1)
    view.remove_message(2)
    assert view.stack.top(1) == second
    assert [shown.message.id for shown in view.stack.views] == [1, 3]


# --- looks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("palette", [LIGHT, DARK, HIGH_CONTRAST], ids=lambda palette: palette.name)
def test_code_colours_have_readable_contrast(view: Transcript, palette: object) -> None:
    style = ReadingStyle(palette)  # type: ignore[arg-type]
    for role, look in style.syntax.items():
        assert contrast(look.foreground().color(), style.sunken) >= 4.5, role
        assert contrast(look.foreground().color(), style.selection) >= 3, role


def test_theme_change_repaints_without_scrolling(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([message(1, LONG, is_user=True), message(2, CODE)])
    wait_for_layout(view, qtbot)
    before = view.message_layout.offset(), view.stack.height
    show_palette(DARK)
    wait_for_layout(view, qtbot)
    assert (view.message_layout.offset(), view.stack.height) == before
    image: QImage = view.grab().toImage()
    assert QColor(image.pixel(3, 3)) == QColor(DARK.background)


def test_right_to_left_text_is_right_aligned(view: Transcript) -> None:
    view.set_messages([message(1, "مرحبا\n\n- عنصر\n\nplain")])
    hebrew, item, plain = view.stack.views[0].parts
    assert hebrew.view.right_to_left
    assert item.view.right_to_left
    assert not plain.view.right_to_left
    image = view.grab().toImage()
    row = round(view.message_layout.message_top(0) + hebrew.y + 12)
    inked = [
        x for x in range(image.width()) if QColor(image.pixel(x, row)) != QColor(LIGHT.background)
    ]
    assert min(inked) > view.width() // 2


def test_complete_code_block_is_highlighted_exactly(view: Transcript, qtbot: QtBot) -> None:
    body = '"""A text\nthat goes on\n"""\n' + "".join(f"x{n} = {n}\n" for n in range(400))
    view.set_messages([message(1, f"```python\n{body}```")])
    code = view.stack.views[0].parts[0].view
    assert isinstance(code, CodeView)
    view.message_layout.scroll_to(0)
    view.grab()
    wait_for_layout(view, qtbot)
    assert code.roles(1) == [(0, len("that goes on"), "string")]


def test_wide_table_scrolls_horizontally_without_breaking_words(view: Transcript) -> None:
    head = "| " + " | ".join(f"Heading{n}" for n in range(12)) + " |\n|" + "---|" * 12 + "\n"
    row = "| " + " | ".join(f"several words in cell {n}" for n in range(12)) + " |\n"
    view.set_messages([message(1, head + row)])
    table = view.stack.views[0].parts[0].view
    assert isinstance(table, TableView)
    assert table.horizontal_scroll.overflows
    assert not view.horizontalScrollBar().isVisible()
    assert table.horizontal_scroll.move_to(1e6)
    assert table.hit(table.horizontal_scroll.viewport_width - 30, 10) > table.hit(30, 10)


def test_scrolling_to_the_top_at_once_shows_the_first_message(
    view: Transcript, qtbot: QtBot
) -> None:
    view.set_messages([message(n, LONG, is_user=n % 2 == 1) for n in range(1, 40)])
    view.message_layout.scroll_to(0)
    wait_for_layout(view, qtbot)
    assert view.message_layout.offset() == 0
