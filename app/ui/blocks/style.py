"""Fonts, colours and metrics of the transcript, computed once per palette.

All transcript painting reads them from one `ReadingStyle`, so a theme change replaces one object.
"""

from __future__ import annotations

from functools import cached_property

from PySide6.QtGui import QColor, QFont, QFontMetricsF, QTextCharFormat

from app.markdown.blocks import Run
from app.ui.theme.palette import Palette
from app.ui.theme.theme import BODY, CODE_FONT, READING, READING_LINE_HEIGHT, SMALL, TEXT_FONT

HEADING_SIZES = (24, 20, 17, 15, 15, 15)  # pixels, by level
CODE_LINE = 20  # pixels: line height of code, before zoom
INDENT = 26  # pixels per list level
QUOTE_INDENT = 18
DEEPEST_INDENT = 6  # nesting levels that are indented; deeper ones are not indented further
CODE_PADDING = 16
CODE_HEADER = 36
PLACEHOLDER = "x"  # stands for a formula in a text layout, invisible and of the formula's width


def mixed(one: QColor, other: QColor, share: float) -> QColor:
    """Linear blend: `share` of the first colour, the rest of the second."""
    rest = 1 - share
    return QColor(
        round(one.red() * share + other.red() * rest),
        round(one.green() * share + other.green() * rest),
        round(one.blue() * share + other.blue() * rest),
    )


def contrast(one: QColor, other: QColor) -> float:
    """The contrast ratio of two colours by the WCAG formula, 1 to 21."""
    lights = sorted((_luminance(one), _luminance(other)))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _luminance(color: QColor) -> float:
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (color.redF(), color.greenF(), color.blueF())
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def font(family: str, size: int, weight: QFont.Weight = QFont.Weight.Normal) -> QFont:
    """A font by family and pixel size; Qt substitutes a system font if the family is missing."""
    result = QFont(family)
    fixed = family == CODE_FONT
    result.setStyleHint(QFont.StyleHint.Monospace if fixed else QFont.StyleHint.SansSerif)
    result.setPixelSize(size)
    result.setWeight(weight)
    if fixed:  # no ligatures in code: `->` must not become an arrow
        result.setFeature(QFont.Tag("calt"), 0)
    result.setHintingPreference(QFont.HintingPreference.PreferNoHinting)
    return result


class Face:
    """A font with a fixed line height, and the baseline of a line, in pixels from its top."""

    def __init__(self, font: QFont, line: float) -> None:
        self.font = font
        self.line = line
        metrics = QFontMetricsF(font)
        self.baseline = (line - metrics.height()) / 2 + metrics.ascent()
        self.placeholder = metrics.horizontalAdvance(PLACEHOLDER)


class ReadingStyle:
    """The look of the transcript in one theme, at one text size."""

    def __init__(self, palette: Palette, zoom: float = 1.0) -> None:
        """`zoom` multiplies the sizes of the fonts."""
        self.palette = palette
        self.zoom = zoom
        self.paper = QColor(palette.background)
        self.sunken = QColor(palette.sunken)
        self.ink = QColor(palette.text)
        self.secondary = QColor(palette.secondary)
        self.faint = QColor(palette.faint)
        self.hairline = QColor(palette.hairline)
        self.accent = QColor(palette.accent)
        self.card = QColor(palette.accent_soft)
        self.danger = QColor(palette.danger)
        self.match = QColor(palette.match)
        self.current_match = QColor(palette.current_match)
        self.high_contrast = (
            palette.sunken == palette.background
        )  # cards are visible by their border only
        # In the dark theme a sunken background hardly differs from the page: cards get a border
        # and inline code a lighter background.
        dim = palette.dark and not self.high_contrast
        self.card_line = mixed(self.hairline, self.sunken, 0.7) if dim else self.sunken
        self.code_ground = mixed(self.hairline, self.paper, 0.5) if dim else self.sunken
        self.selection = mixed(self.accent, self.paper, 0.28 if not self.high_contrast else 0.45)
        reading, body = round(READING * zoom), round(BODY * zoom)
        self.body = font(TEXT_FONT, reading)
        self.line = float(round(reading * READING_LINE_HEIGHT + 0.5))
        self.body_face = Face(self.body, self.line)
        self.cell_face = Face(self.body, self.line - 1)
        self.small = font(TEXT_FONT, SMALL)
        self.note = font(TEXT_FONT, body)
        self.note_face = Face(self.note, float(round(20 * zoom)))
        self.code = font(CODE_FONT, body)
        self.code_line = round(CODE_LINE * zoom)
        self.code_metrics = QFontMetricsF(self.code)
        self.heading_faces = tuple(
            Face(font(TEXT_FONT, size, QFont.Weight.DemiBold), float(round(size * 1.35)))
            for size in (round(each * zoom) for each in HEADING_SIZES)
        )
        self.wide_space = QTextCharFormat()
        self.wide_space.setFontWordSpacing(3.0)
        self._formats: dict[tuple[bool, bool, bool, bool, bool, int], QTextCharFormat] = {}

    def run_format(self, run: Run, size: int) -> QTextCharFormat:
        """The cached character format of a run inside text of `size` pixels."""
        key = (run.bold, run.italic, run.strike, run.code, bool(run.link), size)
        found = self._formats.get(key)
        if found is None:
            found = self._formats[key] = self._make_format(run, size)
        return found

    def _make_format(self, run: Run, size: int) -> QTextCharFormat:
        result = QTextCharFormat()
        if run.code:
            code = font(CODE_FONT, round(size * 13 / 15))
            result.setFont(code)
        if run.bold:
            result.setFontWeight(QFont.Weight.DemiBold)
        if run.italic:
            result.setFontItalic(True)
        if run.strike:
            result.setFontStrikeOut(True)
            result.setForeground(self.secondary)
        if run.link:
            result.setForeground(self.accent)
            result.setUnderlineStyle(QTextCharFormat.UnderlineStyle.SingleUnderline)
            result.setUnderlineColor(mixed(self.accent, self.paper, 0.4))
        return result

    @cached_property
    def syntax(self) -> dict[str, QTextCharFormat]:
        """Character formats of code by role, each with a contrast of at least 4.5:1 (WCAG AA)."""
        moss = self.accent
        slate = QColor.fromHslF(
            (moss.hslHueF() + 0.2) % 1.0, min(moss.hslSaturationF() + 0.1, 1.0), moss.lightnessF()
        )
        colors = {
            "keyword": moss,
            "string": QColor(self.palette.warning),
            "number": QColor(self.palette.danger),
            "comment": self.secondary,
            "name": slate,
            "error": self.danger,
        }
        formats = {role: QTextCharFormat() for role in colors}
        for role, color in colors.items():
            formats[role].setForeground(self._readable(color))
        formats["comment"].setFontItalic(True)
        return formats

    def _readable(self, color: QColor) -> QColor:
        """The colour, blended towards the text colour until its contrast on code is 4.5:1."""
        share = 1.0
        result = color
        while contrast(result, self.sunken) < 4.5 and share > 0:
            share -= 0.1
            result = mixed(color, self.ink, share)
        return result
