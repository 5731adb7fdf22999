"""Boxes and points over a picture: when they are offered, what is drawn, hidden, copied and saved."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QGuiApplication, QImage, QPainter
from PySide6.QtWidgets import QFileDialog, QMenu
from pytestqt.qtbot import QtBot

from app.domain.marks import Grid, Mark
from app.domain.parts import ImagePart, Part, TextPart
from app.store.blobs import Blobs
from app.store.store import Store
from app.ui.pictures.card import PictureCard
from app.ui.pictures.mark_painting import COLORS, label_colors, marks_words, paint_marks
from engine import Role
from fakes import MODEL
from stage import Stage

pytestmark = pytest.mark.qt_log_ignore("This plugin does not support", extend=True)
GREY = "#808080"
ANSWER = """```json
[{"bbox_2d": [100, 100, 400, 500], "label": "cat"}, {"bbox_2d": [500, 100, 900, 500], "label": "cat"},
 {"bbox_2d": [100, 600, 400, 900], "label": "dog"}, {"point_2d": [700, 750], "label": "eye"}]
```"""


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.close()


def picture(stage: Stage, name: str = "cats.png", color: str = GREY) -> ImagePart:
    file = io.BytesIO()
    Image.new("RGB", (400, 200), color).save(file, "PNG")
    sha256 = Blobs(stage.folder / "conversations.sqlite").add(file.getvalue())
    return ImagePart(name, sha256, "", 400, 200, len(file.getvalue()))


Case = tuple[str, Sequence[Part]]  # an answer, and the parts of its question


def ask(stage: Stage, *cases: Case, model: str = "Qwen3-VL-4B") -> list[int]:
    """Make a chat of each question with its answer, and open the first; returns their ids."""
    store = Store.open(stage.folder / "conversations.sqlite")
    chats: list[int] = []
    for answer, parts in cases:
        chats.append(chat := store.create_conversation("Cats").id)
        question = store.add_message(chat, None, Role.USER, (*parts, TextPart("Where?"))).id
        store.add_message(chat, question, Role.ASSISTANT, (TextPart(answer),), model=model)
    store.close()
    stage.ready(MODEL)
    open_chat(stage, chats[0])
    return chats


def open_chat(stage: Stage, chat: int) -> None:
    stage.controller.open_conversation(chat)
    stage.wait_until_idle()


def names_of_tools(stage: Stage) -> list[str]:
    return [tool.name for tool in stage.window.transcript.tools.all(1)[0]]


def shown(stage: Stage) -> PictureCard:
    """The card, after the tool of the answer was used."""
    tools = stage.window.transcript.tools
    tools.use(1, next(tool for tool in tools.all(1)[0] if tool.name == "show_marks"))
    stage.wait_until_idle()
    card = stage.window.attaching.pictures.card
    assert card is not None
    return card


def color_at(card: PictureCard, x: float, y: float) -> QColor:
    """The colour of the canvas at shares of the picture."""
    image = card.canvas.grab().toImage()
    area, ratio = card.canvas._area(), image.devicePixelRatio()
    at = area.left() + x * area.width(), area.top() + y * area.height()
    return image.pixelColor(round(at[0] * ratio), round(at[1] * ratio))


def is_drawn(card: PictureCard, x: float, y: float) -> bool:
    return color_at(card, x, y) != QColor(GREY)


def test_marks_are_offered_where_an_answer_has_them_and_a_picture_is_before_it(
    stage: Stage,
) -> None:
    image = picture(stage)
    cases = (ANSWER, [image]), ("A cat and a dog.", [image]), (ANSWER, [])
    found: list[bool] = []
    for chat in ask(stage, *cases):
        open_chat(stage, chat)
        found.append("show_marks" in names_of_tools(stage))
    assert found == [True, False, False]
    assert stage.window.attaching.pictures.card is None  # nothing is drawn unasked


def test_boxes_and_points_are_drawn_and_hidden(stage: Stage, qtbot: QtBot) -> None:
    ask(stage, (ANSWER, [picture(stage)]))
    card = shown(stage)
    qtbot.waitUntil(lambda: card.canvas.image is not None)
    places = {"cat": (0.9 - 3 / 400, 0.3), "dog": (0.397, 0.75), "eye": (0.706, 0.75)}
    assert all(is_drawn(card, *place) for place in places.values())
    assert not is_drawn(card, 0.95, 0.95)
    card.marks.chips["dog"].click()
    assert [is_drawn(card, *place) for place in places.values()] == [True, False, True]
    qtbot.keyClick(card.canvas, Qt.Key.Key_M)
    assert not any(is_drawn(card, *place) for place in places.values())
    assert not card.marks.copy_button.isEnabled()
    qtbot.keyClick(card.canvas, Qt.Key.Key_M)
    assert [is_drawn(card, *place) for place in places.values()] == [True, False, True]
    assert card.marks.chips["cat"].text() == "cat · 2"
    assert card.canvas.accessibleDescription() == "2 boxes: cat, cat · 1 point: eye"
    assert not card.marks.reading.isVisible()


def test_a_picture_that_is_opened_itself_has_no_marks(stage: Stage) -> None:
    image = picture(stage)
    ask(stage, (ANSWER, [image]))
    card = shown(stage)
    assert is_drawn(card, 0.397, 0.75)
    stage.window.transcript.image_opened.emit(image)
    stage.wait_until_idle()
    assert card.marks.isHidden()
    assert not is_drawn(card, 0.397, 0.75)
    assert card.canvas.accessibleDescription() == ""


def test_of_several_pictures_the_last_is_shown_unless_the_answer_names_one(stage: Stage) -> None:
    images = [picture(stage, f"{name}.png", color) for name, color in
              (("a", "#0000c0"), ("b", "#00c000"), ("c", GREY))]  # fmt: skip
    named = '[{"image_index": 1, "bbox_2d": [1, 2, 300, 400], "label": "cat"}]'
    _, second = ask(stage, (ANSWER, images), (named, images))
    card = shown(stage)
    assert card.image.name == "c.png"
    card.move_on(-1)
    assert len(card.marks.drawn) == 4
    open_chat(stage, second)
    card = shown(stage)
    assert card.image.name == "a.png"
    assert len(card.marks.drawn) == 1
    card.move_on(1)
    assert card.marks.drawn == ()
    assert card.marks.none.text() == "Nothing is marked on this picture."


def test_coordinates_of_a_model_that_is_not_known_can_be_read_otherwise(stage: Stage) -> None:
    ask(stage, ('[{"bbox": [40, 100, 360, 180], "label": "cat"}]', [picture(stage)]), model="Other")
    card = shown(stage)
    assert card.marks.reading.text() == "Coordinates: 0 to 1000"
    assert card.marks.drawn == (Mark(0.04, 0.1, 0.36, 0.18, "cat"),)
    card.marks.reading.click()
    menu = card.marks.reading.findChild(QMenu)
    assert isinstance(menu, QMenu)
    names = [action.text() for action in menu.actions()]
    assert names == ["0 to 1000", "Pixels", "0 to 1000, height first"]
    menu.actions()[1].trigger()
    menu.close()
    assert card.marks.drawn == (Mark(0.1, 0.5, 0.9, 0.9, "cat"),)
    assert card.marks._shown is not None
    assert card.marks._shown.grid is Grid.PIXELS


def test_the_architecture_tells_how_a_renamed_model_writes(stage: Stage) -> None:
    ask(stage, (ANSWER, [picture(stage)]), model="mine")
    names, message = stage.window.attaching._names_of_model, stage.state.messages[1]
    assert names(message) == ["mine"]
    loaded = stage.state.model.loaded
    assert loaded is not None
    assert names(replace(message, model=loaded.path.name))[1:] == [loaded.architecture]


def test_the_picture_is_copied_and_saved_with_its_marks(stage: Stage, tmp_path: Path) -> None:
    ask(stage, (ANSWER, [picture(stage)]))
    card = shown(stage)
    card.marks.copy_button.click()
    copied = QGuiApplication.clipboard().image()
    assert (copied.width(), copied.height()) == (400, 200)
    assert copied.pixelColor(397, 190) == QColor(GREY)
    assert copied.pixelColor(282, 150) == QColor(COLORS[2])  # in the disc of the eye
    card.marks.save_button.click()
    (dialog,) = card.findChildren(QFileDialog)
    assert [Path(each).name for each in dialog.selectedFiles()] == ["cats with marks.png"]
    for name, kind in (("a.png", "PNG"), ("b.JPG", "JPEG")):
        dialog.filesSelected.emit([str(tmp_path / name)])
        stage.wait_until_idle()
        with Image.open(tmp_path / name) as saved:
            assert (saved.format, saved.size) == (kind, (400, 200))
    dialog.filesSelected.emit([str(tmp_path / "none" / "saved.png")])
    stage.wait_until_idle()
    assert "could not be written" in stage.state.notices["pictures"].sentence
    dialog.close()
    assert card.canvas.image is not None
    assert card.canvas.image.pixelColor(282, 150) == QColor(GREY)  # the shown one stays as it is


def test_labels_stay_within_the_picture(qtbot: QtBot) -> None:
    marks = [Mark(x, y, min(x + 0.1, 1), min(y + 0.1, 1), f"{n} {'long ' * n}", n % 2 == 0)
             for n, (x, y) in enumerate((x / 4, y / 4) for x in range(5) for y in range(5))]  # fmt: skip
    image = QImage(500, 400, QImage.Format.Format_RGB32)
    image.fill(QColor("#ffffff"))
    inner = QRectF(100, 100, 300, 200)
    painter = QPainter(image)
    paint_marks(painter, inner, QRectF(image.rect()), marks, label_colors(marks))
    painter.end()
    unclipped = image.copy()
    painter = QPainter(image)
    image.fill(QColor("#ffffff"))
    paint_marks(painter, inner, inner, marks, label_colors(marks))
    painter.end()
    assert unclipped != image  # plates are moved, not cut
    outside = [(x, y) for x in range(0, 500, 3) for y in range(0, 400, 3)
               if not inner.adjusted(-1, -1, 1, 1).contains(x, y)]  # fmt: skip
    assert all(image.pixelColor(x, y) == QColor("#ffffff") for x, y in outside)


def test_what_is_marked_is_said_in_words() -> None:
    boxes = [Mark(0, 0, 1, 1, each) for each in ("cat", "cat", "dog")]
    assert marks_words(boxes) == "3 boxes: cat, cat, dog"
    assert marks_words([Mark(0, 0, 1, 1)]) == "1 box"
    assert marks_words(()) == ""


def test_many_labels_share_one_chip(stage: Stage) -> None:
    rows = [
        f'{{"bbox_2d": [{n}, {n}, {n + 9}, {n + 9}], "label": "thing & {n}"}}' for n in range(60)
    ]
    ask(stage, (f"[{','.join(rows)}]", [picture(stage)]))
    card = shown(stage)
    assert len(card.marks.drawn) == 60
    assert card.marks.chips["thing & 0"].text() == "thing && 0 · 1"
    assert card.marks.rest is not None
    card.marks.rest.click()
    assert len(card.marks.drawn) == len(card.marks.chips)
    card.marks.rest.click()
    assert len(card.marks.drawn) == 60
