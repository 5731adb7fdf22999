"""What the page of models adds to the style sheet: a badge, the line of news, a field gone wrong."""

from __future__ import annotations

from app.ui.palette import Palette


def page_style(palette: Palette) -> str:
    """The style sheet of the page, for one palette."""
    line = 2 if palette.hairline == palette.text else 1
    return f"""
QLabel[tone="accent"] {{ color: {palette.accent}; }}
QFrame#news {{
    background: {palette.surface}; border: {line}px solid {palette.hairline}; border-radius: 6px;
}}
LibraryRow QPushButton[look="outlined"] {{ text-align: center; }}
QLineEdit[wrong="true"] {{ border-color: {palette.danger}; }}
"""
