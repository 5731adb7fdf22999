"""The window's language: Qt's own texts, numbers, dates and the direction of the layout."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QCoreApplication, QDate, QLocale, Qt, QTranslator
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.settings.table import SETTINGS
from app.system.byte_size import size
from app.system.translation import LANGUAGES, Catalog, number, tr, use
from app.ui.language import locale_of, set_language
from app.ui.settings.fields import ChoiceButton
from app.ui.widgets.units import day, typed_number


@pytest.fixture
def application(qapp: QApplication) -> Iterator[QApplication]:
    before = QLocale()
    yield qapp
    for translator in qapp.findChildren(QTranslator):
        qapp.removeTranslator(translator)
        translator.deleteLater()
    QLocale.setDefault(before)
    qapp.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
    use(Catalog())


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_language_sets_texts_numbers_and_direction(
    application: QApplication, language: str
) -> None:
    assert set_language(application, language) == language
    assert application.isRightToLeft() is (language == "ar")
    assert QLocale().name().partition("_")[0] == language.partition("_")[0]
    assert (tr("Settings") == "Settings") is (language == "en")
    cancel = QCoreApplication.translate("QPlatformTheme", "Cancel")
    assert (cancel == "Cancel") is (language == "en")


def test_each_language_is_offered_under_its_own_name(
    application: QApplication, qtbot: QtBot
) -> None:
    set_language(application, "ar")
    button = ChoiceButton(SETTINGS["language"])
    qtbot.addWidget(button)
    system, *names = (action.text() for action in button.menu_of_choices().actions())
    assert system == tr("System") != "System"
    assert names == list(LANGUAGES.values())


def test_german_numbers_sizes_and_dates(application: QApplication) -> None:
    set_language(application, "de")
    assert number(1234.5) == "1.234,5"
    assert size(4.1e9) == "4,1 GB"
    assert day(QDate(2026, 11, 26)).startswith("26. Nov")
    assert typed_number("16.384") == 16384
    assert typed_number("0,5") == 0.5


def test_english_on_a_german_system_keeps_its_territory(application: QApplication) -> None:
    german = QLocale(QLocale.Language.German, QLocale.Country.Germany)
    assert locale_of("en", german).name() == "en_DE"
    assert locale_of("de", german).name() == "de_DE"
    assert locale_of("zh_CN", german).name() == "zh_CN"
    austrian = QLocale(QLocale.Language.German, QLocale.Country.Austria)
    assert locale_of("de", austrian).name() == "de_AT"


def test_a_language_that_is_gone_is_english(application: QApplication) -> None:
    assert set_language(application, "xx") == "en"  # the tests' system has no language
