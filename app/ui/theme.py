"""Colours, type and spacing: the one table, and how it reaches the screen.

Fusion drawn with a palette of our own looks the same everywhere; the platform only says whether it
is dark. Widgets that paint themselves get the `Palette`; the others get the style sheet.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, fields
from functools import cache

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QPalette
from PySide6.QtWidgets import QApplication

from app import paths
from app.ui.style import style_sheet

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Palette:
    """One theme's colours by role, each `#RRGGBB`."""

    name: str
    dark: bool
    background: str  # paper
    surface: str  # cards, composer
    sunken: str  # sidebar, code
    text: str  # ink
    secondary: str
    faint: str  # large or decorative text only
    hairline: str
    accent: str  # moss: the one action, focus ring, selection
    on_accent: str
    accent_soft: str  # hover, own message
    danger: str
    warning: str


LIGHT = Palette(
    name="light",
    dark=False,
    background="#FAF8F4",
    surface="#FFFFFF",
    sunken="#F1EEE7",
    text="#1F1D1A",
    secondary="#5E5A52",
    faint="#736E64",
    hairline="#E2DDD3",
    accent="#3B6848",
    on_accent="#FFFFFF",
    accent_soft="#E3EDE4",
    danger="#A5382C",
    warning="#84540A",
)

DARK = Palette(
    name="dark",
    dark=True,
    background="#171614",
    surface="#1F1E1B",
    sunken="#121110",
    text="#EBE7DF",
    secondary="#AFA99E",
    faint="#948E83",
    hairline="#34312C",
    accent="#93C29E",
    on_accent="#12201A",
    accent_soft="#24332A",
    danger="#EA9386",
    warning="#D9A957",
)

HIGH_CONTRAST = Palette(
    name="high contrast",
    dark=True,
    background="#000000",
    surface="#000000",
    sunken="#000000",
    text="#FFFFFF",
    secondary="#FFFFFF",
    faint="#FFFFFF",
    hairline="#FFFFFF",
    accent="#FFFFFF",
    on_accent="#000000",
    accent_soft="#000000",
    danger="#FFFFFF",
    warning="#FFFFFF",
)

# The type scale in pixels, and the corner radii.
SMALL, BODY, READING, HEADING = 12, 13, 15, 20
RADIUS_CONTROL, RADIUS_CARD = 6, 12
READING_LINE_HEIGHT = 1.5
COLUMN_WIDTH = 760  # pixels: the widest a line of reading gets
SIDEBAR_WIDTH = 264
TEXT_FONT, CODE_FONT = "Inter", "JetBrains Mono"


# The setting's words for the palettes; "system" follows the desktop.
PALETTES = {palette.name: palette for palette in (LIGHT, DARK, HIGH_CONTRAST)}
CHOICES = ("system", *PALETTES)
_FALLBACKS = ("Segoe UI", "SF Pro Text", "Noto Sans", "DejaVu Sans")
_CODE_FALLBACKS = ("Cascadia Mono", "SF Mono", "Noto Sans Mono", "DejaVu Sans Mono")


class Theme(QObject):
    """The palette the application shows now; `changed` carries the new one."""

    changed = Signal(object)

    def __init__(self, application: QApplication, choice: str = "system") -> None:
        super().__init__(application)
        self._application = application
        self._choice = choice
        self.palette = self._chosen()
        load_fonts()
        application.setStyle("Fusion")
        application.setFont(font(BODY))
        self._apply()
        hints = application.styleHints()
        hints.colorSchemeChanged.connect(self._follow)
        hints.accessibility().contrastPreferenceChanged.connect(self._follow)

    @property
    def choice(self) -> str:
        """The setting: one of `CHOICES`."""
        return self._choice

    def choose(self, choice: str) -> None:
        """Show another theme, or follow the system again."""
        self._choice = choice
        self._follow()

    def _follow(self) -> None:
        palette = self._chosen()
        if palette != self.palette:
            self.palette = palette
            self._apply()
            self.changed.emit(palette)

    def _chosen(self) -> Palette:
        hints = self._application.styleHints()
        contrast = hints.accessibility().contrastPreference()
        return palette_for(
            self._choice, hints.colorScheme(), contrast is Qt.ContrastPreference.HighContrast
        )

    def _apply(self) -> None:
        self._application.setPalette(qt_palette(self.palette))
        self._application.setStyleSheet(style_sheet(self.palette))


def palette_for(choice: str, scheme: Qt.ColorScheme, contrast: bool = False) -> Palette:
    """The palette for a setting, on a desktop of this scheme that may ask for high contrast.

    A desktop that does not say is light.
    """
    system = DARK if scheme is Qt.ColorScheme.Dark else LIGHT
    return PALETTES.get(choice, HIGH_CONTRAST if contrast else system)


def qt_palette(palette: Palette) -> QPalette:
    """What Qt's own drawing (text cursor, selection, menus) takes its colours from."""
    role = QPalette.ColorRole
    colors = {
        role.Window: palette.background,
        role.WindowText: palette.text,
        role.Base: palette.surface,
        role.AlternateBase: palette.sunken,
        role.Text: palette.text,
        role.PlaceholderText: palette.faint,
        role.Button: palette.surface,
        role.ButtonText: palette.text,
        role.BrightText: palette.danger,
        role.ToolTipBase: palette.surface,
        role.ToolTipText: palette.text,
        role.Highlight: palette.accent,
        role.HighlightedText: palette.on_accent,
        role.Accent: palette.accent,
        role.Link: palette.accent,
        role.LinkVisited: palette.accent,
        role.Light: palette.surface,
        role.Midlight: palette.hairline,
        role.Mid: palette.hairline,
        role.Dark: palette.faint,
        role.Shadow: palette.hairline,
    }
    result = QPalette()
    for which, color in colors.items():
        result.setColor(which, QColor(color))
    for which in (role.WindowText, role.Text, role.ButtonText):
        result.setColor(QPalette.ColorGroup.Disabled, which, QColor(palette.faint))
    return result


@cache
def load_fonts() -> int:
    """Register the bundled fonts once; returns how many there are. Missing ones cost only looks."""
    loaded = 0
    for file in sorted((paths.resources() / "fonts").glob("*.[ot]tf")):
        if QFontDatabase.addApplicationFont(str(file)) < 0:
            _log.warning("the font %s cannot be used", file.name)
        else:
            loaded += 1
    return loaded


def font(pixels: int, weight: QFont.Weight = QFont.Weight.Normal) -> QFont:
    """The text font at a size of the scale, with system fonts behind it for what it lacks."""
    result = QFont()
    result.setFamilies([TEXT_FONT, *_FALLBACKS])
    result.setPixelSize(pixels)
    result.setWeight(weight)
    result.setHintingPreference(QFont.HintingPreference.PreferNoHinting)  # even spacing
    return result


def figures(pixels: int) -> QFont:
    """The text font with figures of one width, for numbers that change in place."""
    result = font(pixels)
    result.setFeature(QFont.Tag("tnum"), 1)
    return result


def code_font(pixels: int) -> QFont:
    """The font of code, with system fonts behind it."""
    result = QFont()
    result.setFamilies([CODE_FONT, *_CODE_FALLBACKS])
    result.setStyleHint(QFont.StyleHint.Monospace)
    result.setPixelSize(pixels)
    return result


def recolored(drawing: str, palette: Palette) -> str:
    """SVG text drawn in the light theme's colours, in those of `palette`.

    White there means surface, which in the light theme is also the ink on the accent.
    """
    mapping = {
        getattr(LIGHT, field.name): getattr(palette, field.name)
        for field in fields(Palette)
        if field.name != "on_accent" and str(getattr(LIGHT, field.name)).startswith("#")
    }
    return re.sub("#[0-9A-F]{6}", lambda found: mapping.get(found[0], found[0]), drawing)


def mix(first: str, second: str, share: float) -> str:
    """The colour `share` of the way from `first` to `second`, as `#RRGGBB`."""
    a, b = QColor(first), QColor(second)
    parts = zip((a.red(), a.green(), a.blue()), (b.red(), b.green(), b.blue()), strict=True)
    return "#" + "".join(f"{round(x + (y - x) * share):02X}" for x, y in parts)
