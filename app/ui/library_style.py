"""What the page of models adds to the style sheet: the words of a badge, and its line of news."""

from __future__ import annotations

from app.ui.theme import Palette


def page_style(palette: Palette) -> str:
    """The style sheet of the page, for one palette."""
    line = 2 if palette.hairline == palette.text else 1
    return f"""
QLabel[tone="accent"] {{ color: {palette.accent}; }}
QFrame#news {{
    background: {palette.surface}; border: {line}px solid {palette.hairline}; border-radius: 6px;
}}
QFrame#rule {{ background: {palette.hairline}; border: none; }}
QComboBox {{
    background: {palette.surface}; color: {palette.text}; border: {line}px solid {palette.hairline};
    border-radius: 6px; padding: 0 8px; min-height: 30px;
}}
QComboBox:focus {{ border-color: {palette.accent}; }}
"""
