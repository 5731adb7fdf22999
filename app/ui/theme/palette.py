"""Colour palettes: colours by role for each theme, the shown one, and conversion to QPalette.

A widget that paints itself calls `shown_palette` in its paint event: Qt repaints every widget when
the style sheet of the application changes. A widget that caches a rendered picture, or sets a style
sheet itself, registers a callback with `follow_palette` that rebuilds it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QPalette


@dataclass(frozen=True, slots=True)
class Palette:
    """One theme's colours by role, each `#RRGGBB`."""

    name: str
    dark: bool
    background: str  # page
    surface: str  # cards, composer
    sunken: str  # sidebar, code
    text: str
    secondary: str
    faint: str  # large or decorative text only
    hairline: str
    accent: str  # main action, focus ring, selection
    on_accent: str
    accent_soft: str  # hover, user message
    danger: str
    warning: str
    match: str  # behind found text; mixed with the page, so that the text keeps its colour
    current_match: str


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
    match="#FFE9A3",
    current_match="#FFB84A",
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
    match="#4A3B12",
    current_match="#8A5A0C",
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
    match="#4A4A00",
    current_match="#0000C8",
)


class _Shown(QObject):
    """The palette that the theme shows."""

    changed = Signal(object)
    palette = LIGHT


_shown = _Shown()


def shown_palette() -> Palette:
    """The palette to paint with; the light one until a theme has another."""
    return _shown.palette


def show_palette(palette: Palette) -> None:
    """Make a palette the shown one."""
    _shown.palette = palette
    _shown.changed.emit(palette)


def follow_palette(recolor: Callable[[Palette], None]) -> None:
    """Call a method of a QObject now and, while that exists, whenever another palette is shown."""
    recolor(_shown.palette)
    _shown.changed.connect(recolor)


# Values of the theme setting; "system" follows the desktop's colour scheme.
PALETTES = {palette.name: palette for palette in (LIGHT, DARK, HIGH_CONTRAST)}
CHOICES = ("system", *PALETTES)


def palette_for(choice: str, scheme: Qt.ColorScheme, contrast: bool = False) -> Palette:
    """The palette for a setting, given the desktop's colour scheme and contrast preference.

    An unknown colour scheme counts as light.
    """
    system = DARK if scheme is Qt.ColorScheme.Dark else LIGHT
    return PALETTES.get(choice, HIGH_CONTRAST if contrast else system)


def qt_palette(palette: Palette) -> QPalette:
    """The QPalette for parts that Qt paints itself (text cursor, selection, menus)."""
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


def recolored(drawing: str, palette: Palette) -> str:
    """Replace the light theme's colours in SVG text by those of `palette`.

    White maps to `surface`; in the light theme `on_accent` is white too.
    """
    mapping = {
        getattr(LIGHT, field.name): getattr(palette, field.name)
        for field in fields(Palette)
        if field.name != "on_accent" and str(getattr(LIGHT, field.name)).startswith("#")
    }
    return re.sub("#[0-9A-F]{6}", lambda found: mapping.get(found[0], found[0]), drawing)


def mix(first: str, second: str, share: float) -> str:
    """Linear interpolation from `first` (share 0) to `second` (share 1), as `#RRGGBB`."""
    a, b = QColor(first), QColor(second)
    parts = zip((a.red(), a.green(), a.blue()), (b.red(), b.green(), b.blue()), strict=True)
    return "#" + "".join(f"{round(x + (y - x) * share):02X}" for x, y in parts)
