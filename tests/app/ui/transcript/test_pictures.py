"""Pictures in the transcript: their places, when they are asked for, and what opens them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QAccessible, QColor
from pytestqt.qtbot import QtBot

from app.domain.parts import ImagePart, TextPart
from app.state.pictures import PictureCopy
from app.ui.pictures import thumbnails
from app.ui.pictures.thumbnails import PIXELS, Thumbnails
from app.ui.transcript.message.message_view import MessageView
from app.ui.transcript.message.pictures import HIGHEST, LONGEST, SHORTEST, tip
from app.ui.transcript.view import Transcript
from transcript_driver import LONG, click, message, wait_for_layout

LAKE = ImagePart("lake.jpg", "a" * 64, "/home/ada/lake.jpg", 1600, 1000, description="A lake")
TALL = ImagePart("tower.png", "b" * 64, "", 500, 2000)
WIDE = ImagePart("panorama.png", "c" * 64, "", 5000, 100)
ODD = ImagePart("odd.png", "d" * 64)  # of a size that is not known


def copy(image: ImagePart, width: int = 40, height: int = 20, color: bytes = b"\xc0\0\0") -> object:
    return PictureCopy(image.sha256, PIXELS, width, height, color * (width * height), ".png")


def shown(view: Transcript, qtbot: QtBot, *images: ImagePart) -> MessageView:
    parts = (*images, TextPart("What is it?"))
    view.set_messages([replace(message(1, "", is_user=True), parts=parts)])
    wait_for_layout(view, qtbot)
    return view.stack.views[0]


def sizes(one: MessageView) -> list[tuple[float, float]]:
    return [(round(row.area.width(), 1), round(row.area.height(), 1)) for row in one.rows]


def middle(view: Transcript, index: int, row: int) -> QPoint:
    area = view.stack.views[index].rows[row].area
    corner = QPointF(view.message_layout.left_of(index), view.message_layout.message_top(index))
    return (corner + area.center()).toPoint()


def test_a_picture_alone_is_larger_than_one_of_several(view: Transcript, qtbot: QtBot) -> None:
    assert sizes(shown(view, qtbot, LAKE)) == [(LONGEST, LONGEST * 1000 / 1600)]
    assert sizes(shown(view, qtbot, TALL)) == [(LONGEST / 4, LONGEST)]
    one = shown(view, qtbot, LAKE, TALL, WIDE, ODD)
    assert all(high <= HIGHEST and wide <= LONGEST for wide, high in sizes(one))
    assert all(wide >= SHORTEST and high >= SHORTEST for wide, high in sizes(one))
    assert sizes(one)[1][0] == SHORTEST  # its true width would be less


def test_pictures_are_in_lines_that_fit_in_the_card(view: Transcript, qtbot: QtBot) -> None:
    one = shown(view, qtbot, *[replace(LAKE, sha256=f"{n}" * 64) for n in range(7)])
    areas = [row.area for row in one.rows]
    assert len({area.top() for area in areas}) == 4  # two in a line of this view
    for n, area in enumerate(areas):
        assert one.card.contains(area)
        assert not any(area.intersects(other) for other in areas[:n])
    assert one.parts[0].y > areas[-1].bottom()


def test_pictures_begin_at_the_right_in_a_right_to_left_window(
    view: Transcript, qtbot: QtBot
) -> None:
    from PySide6.QtGui import QGuiApplication

    QGuiApplication.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
    try:
        one = shown(view, qtbot, LAKE, TALL)
        first, second = (row.area for row in one.rows)
        assert first.left() > second.right()
        assert one.card.contains(first)
        assert one.card.contains(second)
    finally:
        QGuiApplication.setLayoutDirection(Qt.LayoutDirection.LeftToRight)


def test_only_what_is_painted_is_asked_for_once(view: Transcript, qtbot: QtBot) -> None:
    asked: list[str] = []
    view.thumbnails.wanted.connect(lambda image, longest: asked.append(image.sha256))
    question = replace(message(1, "", is_user=True), parts=(LAKE, TextPart("What is it?")))
    last = replace(message(3, "", is_user=True), parts=(TALL,))
    view.set_messages([question, message(2, LONG), last])
    wait_for_layout(view, qtbot)
    for _ in range(2):
        view.grab()
        assert asked == [TALL.sha256]
    view.scroller.scroll_to(0)
    view.grab()
    assert asked == [TALL.sha256, LAKE.sha256]


def test_nothing_moves_when_a_picture_is_there_or_is_gone(view: Transcript, qtbot: QtBot) -> None:
    one = shown(view, qtbot, LAKE, ODD)
    before, height = sizes(one), one.height
    before_image = view.grab().toImage()
    view.thumbnails.show(copy(LAKE, 440, 275))  # type: ignore[arg-type]
    image = view.grab().toImage()
    point = middle(view, 0, 0)
    assert QColor(image.pixel(point)) == QColor(0xC0, 0, 0)
    fault = PictureCopy(ODD.sha256, PIXELS, fault="The file of this picture is not there any more.")
    view.thumbnails.show(fault)
    assert view.grab().toImage() != image != before_image
    assert (sizes(one), one.height) == (before, height)


def test_a_picture_is_opened_by_a_click_and_by_enter(view: Transcript, qtbot: QtBot) -> None:
    shown(view, qtbot, LAKE, TALL)
    opened: list[ImagePart] = []
    view.image_opened.connect(opened.append)
    click(qtbot, view, middle(view, 0, 1))
    view.setFocus(Qt.FocusReason.TabFocusReason)
    view.keys.enter(backwards=False)
    qtbot.keyClick(view, Qt.Key.Key_Return)
    assert opened == [TALL, LAKE]


def test_a_description_is_what_screen_readers_and_the_tooltip_say_first(
    view: Transcript, qtbot: QtBot
) -> None:
    shown(view, qtbot, LAKE, TALL)
    listed = QAccessible.queryAccessibleInterface(view).child(0)
    names = [listed.child(n).text(QAccessible.Text.Name) for n in range(2)]
    assert names == ["A lake", "tower.png, 500 × 2,000"]
    assert "lake.jpg" in listed.child(0).text(QAccessible.Text.Description)
    assert (tip(LAKE), tip(TALL)) == ("A lake\nlake.jpg, 1,600 × 1,000", names[1])
    assert view.pointer.tip(QPointF(middle(view, 0, 0))) == tip(LAKE)


@pytest.mark.parametrize("query", ["a lake", "lake.jpg"])
def test_a_picture_is_found_by_its_words(view: Transcript, qtbot: QtBot, query: str) -> None:
    shown(view, qtbot, TALL, LAKE)
    view.finder.search(query)
    assert view.finder.total == 1
    matches, current = view.finder.in_message(1)
    assert current == matches[0]
    assert (current.row, current.in_file) == (1, True)
    before = view.grab().toImage()
    view.finder.search("nothing like it")
    assert view.grab().toImage() != before


def test_the_thumbnails_that_were_shown_longest_ago_give_way(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thumbnails, "MOST_BYTES", 2 * 4 * 40 * 20)
    made, asked = Thumbnails(), list[str]()
    made.wanted.connect(lambda image, longest: asked.append(image.sha256))
    for image in (LAKE, TALL):
        made.show(copy(image))  # type: ignore[arg-type]
    assert made.of(LAKE) is not None
    made.show(copy(WIDE))  # type: ignore[arg-type]
    assert [made.of(each) is None for each in (LAKE, TALL, WIDE)] == [False, True, False]
    assert asked == [TALL.sha256]
    made.show(PictureCopy(TALL.sha256, PIXELS, fault="Gone."))
    assert made.of(TALL) == "Gone."
    made.forget_faults()
    assert made.of(TALL) is None  # its file may be there again
