"""What the settings page adds to the style sheet: rows of choices, its fields, the list of licences."""

from __future__ import annotations

from app.ui.palette import Palette


def page_style(p: Palette) -> str:
    """The style sheet of the page, for one palette."""
    line = 2 if p.hairline == p.text else 1
    return f"""
QScrollArea, QWidget#rows {{ background: {p.background}; border: none; }}
QFrame#segments {{
    background: {p.sunken}; border: {line}px solid {p.hairline}; border-radius: 8px;
}}
QRadioButton {{
    color: {p.secondary}; background: transparent; border: 2px solid transparent;
    border-radius: 6px; padding: 3px 10px; min-height: 22px; spacing: 0;
}}
QRadioButton::indicator {{ width: 0; height: 0; border: none; }}
QRadioButton:hover {{ color: {p.text}; }}
QRadioButton:checked {{ color: {p.text}; background: {p.surface}; border-color: {p.hairline}; }}
QRadioButton:focus {{ border-color: {p.accent}; }}
{_contrast(p) if line == 2 else ""}
QFrame#area {{
    background: {p.surface}; border: {line}px solid {p.hairline}; border-radius: 6px;
}}
QFrame#area[focused="true"] {{ border-color: {p.accent}; }}
QLineEdit[wrong="true"], QLineEdit[wrong="true"]:focus {{ border-color: {p.danger}; }}
QFrame#rule {{ background: {p.hairline}; border: none; }}
QFrame#news {{
    background: {p.surface}; border: {line}px solid {p.hairline}; border-radius: 6px;
}}
QListWidget {{ background: transparent; border: none; outline: none; color: {p.text}; }}
QListWidget::item {{ padding: 5px 8px; border: 2px solid transparent; border-radius: 6px; }}
QListWidget::item:hover {{ background: {p.accent_soft}; }}
QListWidget::item:selected {{ background: {p.accent_soft}; color: {p.text}; }}
QListWidget:focus::item:selected {{ border-color: {p.accent}; }}
"""


def _contrast(p: Palette) -> str:
    """Where there is one colour for everything, the choice is the filled one."""
    return f"""
QRadioButton:checked {{ color: {p.on_accent}; background: {p.accent}; }}
QRadioButton:focus {{ border: 2px dashed {p.text}; }}
QRadioButton:checked:focus {{ border: 2px dashed {p.on_accent}; }}
QListWidget::item:selected {{ border-color: {p.text}; }}
"""
