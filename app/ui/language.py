"""Sets the window's language: the catalog, Qt's own strings, the number formats and the direction.

Called once, before the window is made; what is open keeps its language until the next start.
"""

from __future__ import annotations

import logging

from PySide6.QtCore import QLibraryInfo, QLocale, Qt, QTranslator
from PySide6.QtWidgets import QApplication

from app.system.translation import (
    ENGLISH,
    LANGUAGES,
    Catalog,
    catalog_file,
    language_of,
    read_catalog,
    use,
)

_log = logging.getLogger(__name__)


def set_language(application: QApplication, chosen: str = "") -> str:
    """Use the chosen language, or if it is empty the system's; returns the code of the one used.

    A catalog that cannot be read is logged, and the window is English.
    """
    system = QLocale.system()
    code = chosen if chosen in LANGUAGES else language_of(system.uiLanguages())
    catalog = Catalog()
    if code != ENGLISH:
        try:
            catalog = read_catalog(catalog_file(code))
        except (OSError, ValueError):
            _log.exception("the catalog of the language %s cannot be read", code)
            code = ENGLISH
    locale = locale_of(code, system)
    mirrored = locale.textDirection() is Qt.LayoutDirection.RightToLeft
    use(
        catalog,
        lambda value, decimals: locale.toString(float(value), "f", decimals),
        language=code,
        right_to_left=mirrored,
    )
    QLocale.setDefault(locale)
    if code != ENGLISH:
        texts = QTranslator(application)
        folder = QLibraryInfo.path(QLibraryInfo.LibraryPath.TranslationsPath)
        if texts.load(f"qtbase_{code}", folder):
            application.installTranslator(texts)
        else:
            _log.warning("Qt's strings in the language %s are missing in %s", code, folder)
    application.setLayoutDirection(locale.textDirection())
    return code


def locale_of(code: str, system: QLocale) -> QLocale:
    """The formats of a language: in the system's territory where the language has some for it."""
    language = QLocale(code)
    return QLocale(language.language(), language.script(), system.territory())
