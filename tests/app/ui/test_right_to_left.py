"""A window from right to left: menus, Latin names, and what has no room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QLocale, Qt, QTranslator
from PySide6.QtGui import QFont, QFontMetrics
from PySide6.QtWidgets import QApplication, QMenu, QPushButton, QStyleOptionButton, QWidget
from pytestqt.qtbot import QtBot

from app.system.translation import Catalog, use
from app.ui.language import set_language
from app.ui.theme.theme import COLUMN_WIDTH
from app.ui.widgets.controls import icon_after_text
from app.ui.widgets.menus import popup_below
from fakes import MODEL
from stage import Stage
from transcript_driver import LONG, message, open_transcript


@pytest.fixture
def arabic(qapp: QApplication) -> Iterator[None]:
    before = QLocale()
    set_language(qapp, "ar")
    yield
    for translator in qapp.findChildren(QTranslator):
        qapp.removeTranslator(translator)
        translator.deleteLater()
    QLocale.setDefault(before)
    qapp.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
    use(Catalog())


@pytest.mark.qt_log_ignore("does not support (raise|grabbing)")
def test_a_menu_opens_towards_the_end_of_the_line(arabic: None, qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    window.setGeometry(0, 0, 700, 300)
    button = QPushButton("…", window)
    icon_after_text(button)  # which turns its own direction
    button.setGeometry(500, 20, 32, 32)
    window.show()
    menu = QMenu(window)
    menu.addAction("A preset with a name that is wider than its button")
    popup_below(menu, button)
    edge = button.mapToGlobal(button.rect().topRight()).x()
    assert abs(menu.geometry().right() - edge) <= 1


def test_latin_titles_keep_their_punctuation(arabic: None, stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("Why is the sky blue?")
    stage.engine.finish()
    stage.wait_until_idle()
    title = stage.window.top_bar.title.button.text()
    assert title == "\u2068Why is the sky blue?\u2069"


def test_the_text_column_is_centred_beside_a_scroll_bar(arabic: None, qtbot: QtBot) -> None:
    with open_transcript(qtbot) as view:
        view.resize(1000, 500)
        view.set_messages([message(1, LONG)])
        qtbot.waitUntil(lambda: view.viewport().x() > 0)  # the scroll bar is at the left
        left = view.viewport().x() + view.message_layout.left_of(0)
        assert left == (view.width() - COLUMN_WIDTH) / 2  # as that of the composer


def test_long_model_names_end_in_dots_and_not_in_half_letters(stage: Stage) -> None:
    stage.ready(MODEL)
    window = stage.window
    window.resize(420, 600)
    stage.wait_until_idle()
    name = "A model with a name that no narrow window has the room for"
    button, composer = window.top_bar.model_button, window.composer
    composer.set_model_name(name)
    metrics = QFontMetrics(QFont(composer.editor.font()))
    placeholder = composer.editor.placeholderText()
    assert "…" in placeholder
    assert metrics.horizontalAdvance(placeholder) <= composer.editor.viewport().width()
    button.setFixedWidth(100)
    option = QStyleOptionButton()
    button.initStyleOption(option)
    assert "…" in option.text  # pyright: ignore[reportAttributeAccessIssue]
    assert button.text() == "Small Model 135M · Q4_1"
