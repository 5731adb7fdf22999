"""Theme: applies the palette, the style sheet and the bundled fonts to the application.

The Fusion style with our palette looks the same on every platform; only the colour scheme and the
contrast preference come from the desktop. Widgets with a `paintEvent` use the shown `Palette`.
"""

from __future__ import annotations

import logging
from functools import cache

from PySide6.QtCore import QLocale, QObject, Qt
from PySide6.QtGui import QFont, QFontDatabase
from PySide6.QtWidgets import QApplication

from app.system import paths
from app.ui.theme.palette import CHOICES, PALETTES, Palette, palette_for, qt_palette, show_palette
from app.ui.theme.stylesheet import style_sheet

_log = logging.getLogger(__name__)


# The type scale in pixels, and the corner radii.
SMALL, BODY, READING, HEADING = 12, 13, 15, 20
RADIUS_CONTROL, RADIUS_CARD = 6, 12
READING_LINE_HEIGHT = 1.5
COLUMN_WIDTH = 760  # pixels: maximum width of the text column
SIDEBAR_WIDTH = 264
TEXT_FONT, CODE_FONT = "Inter", "JetBrains Mono"


_FALLBACKS = ("Segoe UI", "SF Pro Text", "Noto Sans", "DejaVu Sans")
_CODE_FALLBACKS = ("Cascadia Mono", "SF Mono", "Noto Sans Mono", "DejaVu Sans Mono")
# Fonts of Windows, macOS and Linux with the letters of a language. Chinese and Japanese share code
# points whose shapes differ, so the language of the window decides whose are shown.
_FONTS_OF = {
    QLocale.Language.Chinese: (
        "Microsoft YaHei UI", "PingFang SC", "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC",
    ),
    QLocale.Language.Japanese: (
        "Yu Gothic UI", "Meiryo UI", "Hiragino Sans", "Noto Sans CJK JP", "Noto Sans JP",
        "Source Han Sans JP",
    ),
    QLocale.Language.Korean: (
        "Malgun Gothic", "Apple SD Gothic Neo", "Noto Sans CJK KR", "Noto Sans KR",
        "Source Han Sans KR",
    ),
}  # fmt: skip


class Theme(QObject):
    """Chooses the palette that the application shows."""

    def __init__(self, application: QApplication, choice: str = "system") -> None:
        super().__init__(application)
        self._application = application
        self._choice = choice
        self._desktop_scheme = application.styleHints().colorScheme()
        self._request_scheme()
        self.palette = self._current_palette()
        load_fonts()
        application.setStyle("Fusion")
        self._apply()
        hints = application.styleHints()
        hints.colorSchemeChanged.connect(self._update_palette)
        hints.accessibility().contrastPreferenceChanged.connect(self._update_palette)

    @property
    def choice(self) -> str:
        """The setting: one of `CHOICES`."""
        return self._choice

    def next_choice(self) -> str:
        """The setting after this one whose palette is another: "system" may look like "light"."""
        at = CHOICES.index(self._choice)
        following = (*CHOICES[at + 1 :], *CHOICES[:at])
        return next(one for one in following if self._palette_of(one) != self.palette)

    def choose(self, choice: str) -> None:
        """Set the theme setting and apply its palette."""
        self._choice = choice
        self._request_scheme()
        self._update_palette()

    def _request_scheme(self) -> None:
        """Have the system draw its part of the window, such as the title bar, as the theme is.

        Windows and macOS do; Qt then returns the requested scheme as that of the desktop.
        """
        hints, palette = self._application.styleHints(), PALETTES.get(self._choice)
        if palette is None:
            hints.unsetColorScheme()
        else:
            hints.setColorScheme(Qt.ColorScheme.Dark if palette.dark else Qt.ColorScheme.Light)

    def _update_palette(self) -> None:
        palette = self._current_palette()
        if palette != self.palette:
            self.palette = palette
            self._apply()

    def _current_palette(self) -> Palette:
        return self._palette_of(self._choice)

    def _palette_of(self, choice: str) -> Palette:
        hints = self._application.styleHints()
        if self._choice not in PALETTES:  # no other scheme is requested
            self._desktop_scheme = hints.colorScheme()
        contrast = hints.accessibility().contrastPreference()
        return palette_for(
            choice, self._desktop_scheme, contrast is Qt.ContrastPreference.HighContrast
        )

    def _apply(self) -> None:
        self._application.setPalette(qt_palette(self.palette))
        self._application.setStyleSheet(style_sheet(self.palette))
        # After the style sheet, which gives menus and tips the fonts of Windows or macOS again.
        self._application.setFont(font(BODY))
        show_palette(self.palette)


@cache
def load_fonts() -> int:
    """Register the bundled fonts once and return their number; Qt substitutes missing fonts."""
    loaded = 0
    for file in sorted((paths.resources() / "fonts").glob("*.[ot]tf")):
        if QFontDatabase.addApplicationFont(str(file)) < 0:
            _log.warning("the font %s cannot be used", file.name)
        else:
            loaded += 1
    return loaded


def font(pixels: int, weight: QFont.Weight = QFont.Weight.Normal) -> QFont:
    """The text font at a pixel size, with system fonts as fallbacks."""
    result = QFont()
    result.setFamilies([TEXT_FONT, *_FALLBACKS, *_fonts_of_language()])
    result.setPixelSize(pixels)
    result.setWeight(weight)
    result.setHintingPreference(QFont.HintingPreference.PreferNoHinting)  # even spacing
    return result


def _fonts_of_language() -> tuple[str, ...]:
    return _FONTS_OF.get(QLocale().language(), ())


def figures(pixels: int) -> QFont:
    """The text font with tabular figures, for numbers that change in place."""
    result = font(pixels)
    result.setFeature(QFont.Tag("tnum"), 1)
    return result


def code_font(pixels: int) -> QFont:
    """The monospace font, with system fonts as fallbacks."""
    result = QFont()
    result.setFamilies([CODE_FONT, *_CODE_FALLBACKS, *_fonts_of_language()])
    result.setStyleHint(QFont.StyleHint.Monospace)
    result.setPixelSize(pixels)
    return result
