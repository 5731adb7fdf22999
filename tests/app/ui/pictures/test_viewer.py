"""The viewer of pictures: zoom, keys, the clipboard, other pictures, and what is not sent."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image
from PySide6.QtCore import QPointF, QSizeF, Qt
from PySide6.QtGui import QColor, QGuiApplication, QImage
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from app.domain.parts import ImagePart, TextPart
from app.state.attachments import Attachment, AttachmentPhase, DetailTokens
from app.store.blobs import Blobs
from app.store.store import Store
from app.ui.pictures.canvas import MOST, PictureCanvas
from app.ui.pictures.card import MOST_PIXELS, PictureCard, longest_side
from app.ui.pictures.options import PictureMenu
from engine import Detail, Role
from fakes import MODEL
from stage import Stage, flush

Key = Qt.Key
pytestmark = pytest.mark.qt_log_ignore("This plugin does not support", extend=True)


def png(width: int, height: int, color: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), color).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.close()


def _kept(stage: Stage, name: str, width: int, height: int, color: str) -> ImagePart:
    content = png(width, height, color)
    sha256 = Blobs(stage.folder / "conversations.sqlite").add(content)
    return ImagePart(name, sha256, "", width, height, len(content))


@pytest.fixture
def card(stage: Stage) -> PictureCard:
    """Of a chat with three pictures, of which the file of the last one is gone; the first is shown."""
    images = (
        _kept(stage, "red.jpg", 300, 200, "#c00000"),
        _kept(stage, "blue", 4000, 100, "#0000c0"),
        ImagePart("gone.png", "0" * 64, "", 10, 10),
    )
    store = Store.open(stage.folder / "conversations.sqlite")
    chat = store.create_conversation("Colours").id
    own = store.add_message(chat, None, Role.USER, (*images[:2], TextPart("Which?"))).id
    store.add_message(chat, own, Role.USER, images[2:])
    store.close()
    stage.ready(MODEL)
    stage.controller.open_conversation(chat)
    stage.wait_until_idle()
    stage.window.transcript.image_opened.emit(images[0])
    stage.wait_until_idle()
    found = stage.window.attaching.pictures.card
    assert found is not None
    return found


def test_the_arrow_keys_go_to_the_other_pictures_of_the_chat(
    stage: Stage, card: PictureCard, qtbot: QtBot
) -> None:
    canvas = card.canvas
    assert canvas.image is not None
    assert QColor(canvas.image.pixel(0, 0)) == QColor("#c00000")
    assert (card.previous.isEnabled(), card.next.isEnabled()) == (False, True)
    qtbot.keyClick(canvas, Key.Key_Left)
    assert card.image.name == "red.jpg"
    qtbot.keyClick(canvas, Key.Key_Right)
    assert canvas.image is None  # until it is read
    stage.wait_until_idle()
    assert canvas.image is not None
    assert QColor(canvas.image.pixel(0, 0)) == QColor("#0000c0")
    assert "2 of 3" in card.about.text()
    qtbot.keyClick(canvas, Key.Key_Right)
    stage.wait_until_idle()
    assert canvas.image is None
    assert canvas._fault == "The file of this picture is not there any more."
    assert not card.copy_button.isEnabled()
    assert not card.next.isEnabled()
    qtbot.keyClick(canvas, Key.Key_Escape)
    popover = stage.window.attaching.pictures.popover
    assert popover is not None
    assert popover.isHidden()


def test_a_picture_is_copied_to_the_clipboard(card: PictureCard, qtbot: QtBot) -> None:
    qtbot.keyClick(card.canvas, Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    copied = QGuiApplication.clipboard().image()
    assert (copied.width(), copied.height()) == (300, 200)
    assert QColor(copied.pixel(5, 5)) == QColor("#c00000")


def test_the_file_itself_is_saved_with_the_right_ending(
    stage: Stage, card: PictureCard, tmp_path: Path
) -> None:
    card.save_button.click()
    (dialog,) = card.findChildren(QFileDialog)
    assert [Path(each).name for each in dialog.selectedFiles()] == ["red.jpg.png"]
    target = tmp_path / "saved.png"
    dialog.filesSelected.emit([str(target)])
    stage.wait_until_idle()
    assert target.read_bytes() == png(300, 200, "#c00000")
    assert list(tmp_path.glob("*.new")) == []
    dialog.filesSelected.emit([str(tmp_path / "none" / "saved.png")])
    stage.wait_until_idle()
    assert "could not be written" in stage.state.notices["pictures"].sentence
    dialog.close()


def test_the_pixels_are_let_go_of_when_it_is_closed(stage: Stage, card: PictureCard) -> None:
    card.close_button.click()
    assert (card.canvas.image, card._copy) == (None, None)
    assert stage.window.focusWidget() is not card.canvas


@pytest.mark.parametrize(
    ("size", "longest"), [((300, 200), 300), ((12_000, 9_000), 4_618), ((100, 40_000), 40_000)]
)
def test_a_copy_has_a_bounded_number_of_pixels(size: tuple[int, int], longest: int) -> None:
    image = ImagePart("", width=size[0], height=size[1])
    assert longest_side(image) == longest
    share = min(1.0, longest / max(size))
    assert size[0] * share * size[1] * share <= MOST_PIXELS


@pytest.fixture
def canvas(qtbot: QtBot) -> PictureCanvas:
    made = PictureCanvas()
    qtbot.addWidget(made)
    made.resize(424, 324)
    made.show()
    made.show_image(QImage(800, 600, QImage.Format.Format_RGB888), QSizeF(1600, 1200))
    return made


def test_a_picture_is_fitted_and_zoomed_by_keys(canvas: PictureCanvas, qtbot: QtBot) -> None:
    assert (canvas.is_fitted, canvas.scale) == (True, 0.25)
    assert canvas.rect().contains(canvas._area().toRect())
    qtbot.keyClick(canvas, Key.Key_Plus)
    assert (canvas.is_fitted, canvas.scale) == (False, 0.3125)
    qtbot.keyClick(canvas, Key.Key_Minus)
    assert canvas.is_fitted
    qtbot.keyClick(canvas, Key.Key_1)
    assert canvas.scale == 1.0
    assert canvas._area().size() == QSizeF(1600, 1200)  # of the picture, not of its copy
    for _ in range(40):
        qtbot.keyClick(canvas, Key.Key_Plus)
    assert canvas.scale == MOST
    qtbot.keyClick(canvas, Key.Key_0)
    assert canvas.is_fitted


def test_the_point_below_the_mouse_stays_there(canvas: PictureCanvas) -> None:
    def share(at: QPointF) -> tuple[float, float]:
        area = canvas._area()
        x, y = (at.x() - area.left()) / area.width(), (at.y() - area.top()) / area.height()
        return round(x, 6), round(y, 6)

    at = QPointF(260, 150)
    canvas.set_scale(1.0)
    before = share(at)
    canvas.zoom(2, at)
    assert share(at) == before
    canvas.zoom(-1, at)
    assert share(at) == before


def test_a_drag_moves_the_picture_up_to_its_edge(canvas: PictureCanvas, qtbot: QtBot) -> None:
    left, middle = Qt.MouseButton.LeftButton, canvas.rect().center()
    canvas.set_scale(1.0)
    before = canvas._area().topLeft()
    qtbot.mousePress(canvas, left, pos=middle)
    qtbot.mouseMove(canvas, middle - QPointF(30, 20).toPoint())
    assert canvas._area().topLeft() == before - QPointF(30, 20)
    canvas._pan(QPointF(9000, 9000), canvas._middle)
    assert canvas._area().topLeft() == QPointF(0, 0)
    canvas._pan(QPointF(-9000, -9000), canvas._middle)
    assert canvas._area().bottomRight() == QPointF(424, 324)


# --- before it is sent ----------------------------------------------------------------------------


@pytest.fixture
def attach(stage: Stage) -> Callable[[], Attachment]:
    def attach() -> Attachment:
        stage.ready(MODEL)
        part = _kept(stage, "red.jpg", 300, 200, "#c00000")
        item = Attachment(1, part.name, "", AttachmentPhase.READY, part)
        stage.states.attachments.set(None, [item])
        flush()
        return item

    return attach


def test_detail_and_description_are_chosen_beside_the_picture(
    stage: Stage, attach: Callable[[], Attachment], qtbot: QtBot
) -> None:
    attach()
    state = stage.states.attachments
    chip = stage.window.composer.chips.chips[0]
    qtbot.keyClick(chip, Key.Key_Return)
    stage.wait_until_idle()
    viewer = stage.window.attaching.pictures
    assert viewer.card is not None
    options = viewer.card.options
    assert options.isVisible()
    assert not viewer.card.description.isVisible()
    state.set_details(1, DetailTokens(64, 256, 1024))
    assert options.choices[Detail.HIGH].text() == "High detail · 1,024 tokens"
    options.choices[Detail.HIGH].click()
    assert _part(stage).detail is Detail.HIGH
    options.number.setFocus()
    options.number.setText("300")
    qtbot.keyClick(options.number, Key.Key_Return)
    assert _part(stage).detail == 300
    assert not any(each.isChecked() for each in options.choices.values())
    options.words.setFocus()
    options.words.setText("  All  red ")
    viewer.card.close_button.click()
    assert _part(stage).description == "All red"
    assert chip.accessibleName().startswith("All red")


def _part(stage: Stage) -> ImagePart:
    part = stage.states.attachments.of(None)[0].part
    assert isinstance(part, ImagePart)
    return part


def test_a_model_with_one_size_offers_no_detail(
    stage: Stage, attach: Callable[[], Attachment]
) -> None:
    attach()
    viewer, state = stage.window.attaching.pictures, stage.states.attachments
    viewer.show_attachment(1)
    state.set_details(1, DetailTokens(256, 256, 256))
    assert viewer.card is not None
    options = viewer.card.options
    assert options.choices[Detail.LOW].isHidden() or options._row.isHidden()
    assert "256 tokens" in options.fixed.text()
    assert options.words.isVisible()


def test_the_menu_of_a_chip_says_what_each_detail_costs(
    stage: Stage, attach: Callable[[], Attachment], monkeypatch: pytest.MonkeyPatch
) -> None:
    attach()
    made: list[PictureMenu] = []
    start = PictureMenu.__init__

    def remember(self: PictureMenu, *values: object) -> None:
        start(self, *values)  # type: ignore[arg-type]
        made.append(self)

    monkeypatch.setattr(PictureMenu, "__init__", remember)
    stage.window.composer.chips.chips[0].menu_requested.emit()
    (menu,) = made
    stage.states.attachments.set_details(1, DetailTokens(64, 256, 1024))
    assert menu.choices[Detail.LOW].text() == "Low detail · 64 tokens"
    assert [each.isChecked() for each in menu.choices.values()] == [False, True, False]
    menu.choices[Detail.LOW].trigger()
    assert _part(stage).detail is Detail.LOW
    stage.states.attachments.set_details(1, DetailTokens(256, 256, 256))
    assert not any(each.isVisible() for each in menu.choices.values())
    assert "256 tokens" in menu.fixed.text()
    menu._menu.close()
    stage.states.attachments.set_details(1, None)  # nothing follows it any more
