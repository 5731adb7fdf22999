"""Colours, type and spacing: the one table, and the style sheet made from it."""

from __future__ import annotations

from dataclasses import dataclass


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

# The 4-pixel grid, the type scale in pixels, and the corner radii.
SPACE = (4, 8, 12, 16, 24, 32, 48)
SMALL, BODY, READING, HEADING, TITLE = 12, 13, 15, 20, 28
RADIUS_CONTROL, RADIUS_CARD = 6, 12
READING_LINE_HEIGHT = 1.5
COLUMN_WIDTH = 760  # pixels: the widest a line of reading gets
SIDEBAR_WIDTH = 264
TEXT_FONT, CODE_FONT = "Inter", "JetBrains Mono"
