"""Palettes: contrast ratios; theme: desktop colour scheme, the setting, fonts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from PySide6.QtCore import QLocale, QObject, Qt
from PySide6.QtGui import QColor, QFont, QFontInfo, QStyleHints
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from shiboken6 import delete

from app.ui.theme import icons, palette, theme
from app.ui.theme.palette import (
    DARK,
    HIGH_CONTRAST,
    LIGHT,
    Palette,
    follow_palette,
    palette_for,
    show_palette,
    shown_palette,
)
from app.ui.theme.stylesheet import style_sheet
from app.ui.theme.theme import Theme
from app.ui.widgets.controls import IconButton, TextButton

TEXTS = ("text", "secondary", "accent", "danger", "warning")
GROUNDS = ("background", "surface", "sunken")


def luminance(color: str) -> float:
    def linear(part: float) -> float:
        return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4

    q = QColor(color)
    return 0.2126 * linear(q.redF()) + 0.7152 * linear(q.greenF()) + 0.0722 * linear(q.blueF())


def contrast(first: str, second: str) -> float:
    """The contrast ratio by the WCAG formula."""
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK, HIGH_CONTRAST], ids=lambda p: p.name)
def test_text_contrast_on_every_background(palette: Palette) -> None:
    for text in TEXTS:
        for ground in GROUNDS:
            value = contrast(getattr(palette, text), getattr(palette, ground))
            assert value >= 4.5, f"{text} on {ground} is {value:.1f}"
    assert contrast(palette.text, palette.accent_soft) >= 7
    assert contrast(palette.on_accent, palette.accent) >= 4.5


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=lambda p: p.name)
def test_faint_text_contrast_where_it_is_allowed(palette: Palette) -> None:
    allowed = ("background", "surface") if palette is LIGHT else GROUNDS
    for ground in allowed:
        assert contrast(palette.faint, getattr(palette, ground)) >= 4.5


@pytest.mark.parametrize("palette", [LIGHT, DARK, HIGH_CONTRAST], ids=lambda p: p.name)
def test_buttons_that_cannot_be_used_can_be_read(palette: Palette, qtbot: QtBot) -> None:
    for look in ("primary", "outlined", "quiet", "link", "suggestion"):
        button = TextButton("Nothing to import", look)
        qtbot.addWidget(button)
        button.setEnabled(False)
        ground = f"QWidget {{ background: {palette.surface}; }}"
        button.setStyleSheet(ground + style_sheet(palette))
        image = button.grab().toImage()
        inside = button.rect().adjusted(6, 6, -6, -6)  # without the border
        found = Counter(
            image.pixelColor(x, y).name()
            for x in range(inside.left(), inside.right())
            for y in range(inside.top(), inside.bottom())
        )
        fill = found.most_common(1)[0][0]
        assert max(contrast(fill, ink) for ink in found) >= 4, look


def test_palette_contrast_ratios_are_pinned() -> None:
    assert contrast(LIGHT.text, LIGHT.background) == pytest.approx(15.9, abs=0.06)
    assert contrast(LIGHT.accent, LIGHT.surface) == pytest.approx(6.4, abs=0.06)
    assert contrast(DARK.text, DARK.sunken) == pytest.approx(15.3, abs=0.06)
    assert contrast(DARK.on_accent, DARK.accent) == pytest.approx(8.4, abs=0.06)


def test_unknown_colour_scheme_is_light() -> None:
    assert palette_for("system", Qt.ColorScheme.Unknown) is LIGHT
    assert palette_for("system", Qt.ColorScheme.Light) is LIGHT
    assert palette_for("system", Qt.ColorScheme.Dark) is DARK


def test_contrast_preference_selects_the_high_contrast_palette() -> None:
    assert palette_for("system", Qt.ColorScheme.Light, contrast=True) is HIGH_CONTRAST
    assert palette_for("light", Qt.ColorScheme.Light, contrast=True) is LIGHT


def test_the_setting_overrides_the_desktop() -> None:
    assert palette_for("light", Qt.ColorScheme.Dark) is LIGHT
    assert palette_for("high contrast", Qt.ColorScheme.Light) is HIGH_CONTRAST


class Follower(QObject):
    """Keeps the palettes that it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Palette] = []
        follow_palette(self.show)

    def show(self, palette: Palette) -> None:
        self.seen.append(palette)


def test_choosing_a_theme_repaints_the_application(qapp: QApplication) -> None:
    made = Theme(qapp, "light")
    follower = Follower()
    made.choose("dark")
    made.choose("dark")
    assert follower.seen == [LIGHT, DARK]
    assert shown_palette() is DARK
    assert Follower().seen == [DARK]
    assert qapp.palette().window().color().name().upper() == DARK.background
    delete(follower)
    made.choose("light")  # nothing is told what is gone
    assert follower.seen == [LIGHT, DARK]
    made.deleteLater()


def test_buttons_have_the_icons_of_the_palette(qtbot: QtBot) -> None:
    button = IconButton("close", "Close")
    qtbot.addWidget(button)
    for shown in (DARK, LIGHT):
        show_palette(shown)
        wanted = icons.icon("close", shown.secondary, 18)
        assert button.icon().cacheKey() == wanted.cacheKey()


class Desktop:
    """A desktop that does what is requested of it, as Windows and macOS do."""

    def __init__(self, scheme: Qt.ColorScheme) -> None:
        self.scheme = scheme
        self.requested: Qt.ColorScheme | None = None

    def shown(self) -> Qt.ColorScheme:
        return self.requested or self.scheme

    def request(self, scheme: Qt.ColorScheme) -> None:
        self.requested = scheme

    def forget(self) -> None:
        self.requested = None


@pytest.fixture
def desktop(monkeypatch: pytest.MonkeyPatch) -> Desktop:
    made = Desktop(Qt.ColorScheme.Light)
    monkeypatch.setattr(QStyleHints, "colorScheme", made.shown)
    monkeypatch.setattr(QStyleHints, "setColorScheme", made.request)
    monkeypatch.setattr(QStyleHints, "unsetColorScheme", made.forget)
    return made


def test_the_title_bar_is_as_the_theme_also_when_the_desktop_is_not(
    qapp: QApplication, desktop: Desktop
) -> None:
    made = Theme(qapp, "dark")
    assert desktop.requested is Qt.ColorScheme.Dark
    made.choose("light")
    assert desktop.requested is Qt.ColorScheme.Light
    made.choose("high contrast")
    assert desktop.requested is Qt.ColorScheme.Dark
    made.choose("system")
    assert desktop.requested is None
    made.deleteLater()


def test_what_was_requested_is_not_taken_for_the_desktops_scheme(
    qapp: QApplication, desktop: Desktop
) -> None:
    made = Theme(qapp, "dark")
    assert made.next_choice() == "high contrast"
    made.choose("high contrast")
    assert made.next_choice() == "system"  # the desktop is light, whatever was requested
    made.choose("system")
    assert made.palette is LIGHT
    desktop.scheme = Qt.ColorScheme.Dark
    made.choose("system")
    assert made.palette is DARK
    made.choose("light")
    assert made.next_choice() == "dark"
    made.deleteLater()


def test_the_bundled_fonts_are_used(qapp: QApplication) -> None:
    assert theme.load_fonts() >= 8
    assert QFontInfo(theme.font(13)).family() == "Inter"
    assert QFontInfo(theme.font(13, QFont.Weight.Medium)).weight() == 500
    assert QFontInfo(theme.code_font(13)).family() == "JetBrains Mono"


@pytest.mark.parametrize("widget", ["QMenu", "QTipLabel", "QMessageBox"])
def test_widgets_that_the_system_gives_a_font_have_the_bundled_one(
    qapp: QApplication, widget: str
) -> None:
    chosen = Theme(qapp, "light")
    QApplication.setFont(QFont("a font of the system"), widget)
    chosen.choose("dark")
    assert QApplication.font(widget).families()[0] == theme.TEXT_FONT


def test_tabular_figures_have_one_width(qapp: QApplication) -> None:
    from PySide6.QtGui import QFontMetricsF

    plain, even = QFontMetricsF(theme.font(12)), QFontMetricsF(theme.figures(12))
    assert plain.horizontalAdvance("1") != plain.horizontalAdvance("0")
    assert even.horizontalAdvance("1") == even.horizontalAdvance("0")


def test_drawings_are_recoloured_by_the_theme() -> None:
    drawing = f'<path stroke="{LIGHT.accent}" fill="{LIGHT.accent_soft}"/>'
    assert palette.recolored(drawing, DARK) == (
        f'<path stroke="{DARK.accent}" fill="{DARK.accent_soft}"/>'
    )
    # One pass: a colour that was just replaced must not be replaced again.
    swapped = replace(LIGHT, surface=LIGHT.text, text=LIGHT.surface)
    both = f"{LIGHT.surface} {LIGHT.text}"
    assert palette.recolored(both, swapped) == f"{LIGHT.text} {LIGHT.surface}"


def test_mix_interpolates_from_first_to_second() -> None:
    assert palette.mix("#000000", "#FFFFFF", 0) == "#000000"
    assert palette.mix("#000000", "#FFFFFF", 0.5) == "#808080"
    assert palette.mix("#000000", "#FFFFFF", 1) == "#FFFFFF"


@pytest.mark.parametrize(
    ("language", "named"),
    [("ja", "Hiragino Sans"), ("ko", "Apple SD Gothic Neo"), ("zh_CN", "PingFang SC"), ("de", "")],
)
def test_the_language_of_the_window_decides_whose_characters_are_shown(
    language: str, named: str
) -> None:
    before = QLocale()
    fonts = {"Hiragino Sans", "PingFang SC", "Apple SD Gothic Neo"}
    try:
        QLocale.setDefault(QLocale(language))
        for made in (theme.font(theme.BODY), theme.code_font(theme.BODY)):
            assert fonts.intersection(made.families()) == {named} - {""}
    finally:
        QLocale.setDefault(before)
