"""Qt style sheet of the application for one palette.

Buttons select a rule by the property `look`, labels by `tone`, so that rules name roles rather
than widgets. Buttons have the focus policy TabFocus, so a click never shows the focus ring.
"""

from __future__ import annotations

from PySide6.QtWidgets import QApplication

from app.ui.theme.palette import Palette


def style_sheet(palette: Palette) -> str:
    """The whole style sheet for one palette."""
    line = 2 if palette.name == "high contrast" else 1
    return "".join(
        part(palette, line)
        for part in (_surfaces, _labels, _buttons, _fields, _scroll_bars, _menus)
    )


def _end() -> str:
    """The side where a line of the window ends; Qt mirrors no side of a style sheet."""
    return "left" if QApplication.isRightToLeft() else "right"


def _surfaces(p: Palette, line: int) -> str:
    return f"""
QWidget#window, QWidget#page {{ background: {p.background}; }}
QWidget#sidebar {{ background: {p.sunken}; border: none; border-{_end()}: {line}px solid {p.hairline}; }}
QFrame#rule {{ background: transparent; border: none; }}
QFrame#rule[under="true"] {{ background: {p.hairline}; }}
QFrame#composer {{
    background: {p.surface}; border: {line}px solid {p.hairline}; border-radius: 12px;
}}
QFrame#composer[focused="true"] {{ border-color: {p.accent}; }}
QFrame#banner {{
    background: {p.surface}; border: {line}px solid {p.hairline}; border-radius: 6px;
}}
QFrame#pasted {{ background: {p.sunken}; border: {line}px solid {p.hairline}; border-radius: 6px; }}
QFrame#chip {{
    background: {p.sunken}; border: {line}px solid {p.hairline}; border-radius: 8px; padding: 1px;
}}
QFrame#chip:focus {{ border: {line + 1}px solid {p.accent}; padding: 0; }}
QFrame#chip[opens="true"]:hover {{ background: {p.accent_soft}; }}
QFrame#undo {{
    background: {p.surface}; border: {line}px solid {p.hairline}; border-radius: 6px;
}}
QToolTip {{
    background: {p.surface}; color: {p.text}; border: {line}px solid {p.hairline}; padding: 4px 6px;
}}
"""


def _labels(p: Palette, _line: int) -> str:
    return f"""
QLabel {{ color: {p.text}; background: transparent; }}
QLabel[tone="secondary"] {{ color: {p.secondary}; }}
QLabel[tone="accent"] {{ color: {p.accent}; }}
QLabel[tone="danger"] {{ color: {p.danger}; }}
QLabel[tone="warning"] {{ color: {p.warning}; }}
QLabel[tone="key"] {{
    color: {p.secondary}; background: {p.sunken}; border: 1px solid {p.hairline};
    border-radius: 4px; padding: 1px 6px;
}}
"""


def _buttons(p: Palette, line: int) -> str:
    # Every button has a border, transparent or coloured: the focus ring does not change its size.
    checked = (p.accent, p.on_accent) if line == 2 else (p.accent_soft, p.text)
    return f"""
QAbstractButton[look] {{
    color: {p.text}; background: transparent; border: 2px solid transparent; border-radius: 6px;
}}
QAbstractButton[look="quiet"] {{ padding: 3px 6px; min-height: 20px; }}
QAbstractButton[look="quiet"][unused="true"] {{ color: {p.faint}; text-decoration: line-through; }}
QAbstractButton[look="icon"] {{ padding: 2px; min-width: 24px; min-height: 24px; }}
QAbstractButton[look="quiet"]:hover, QAbstractButton[look="icon"]:hover,
QAbstractButton[look="quiet"][open="true"] {{
    background: {p.accent_soft};
}}
QAbstractButton {{ outline: none; }}
QAbstractButton[look="outlined"] {{
    background: {p.surface}; border: {line}px solid {p.hairline}; padding: 4px 10px;
    min-height: 22px; text-align: left;
}}
QAbstractButton[look="outlined"]:hover {{ background: {p.accent_soft}; }}
QAbstractButton[look="primary"] {{
    color: {p.on_accent}; background: {p.accent}; padding: 4px 14px; min-height: 22px;
}}
QAbstractButton[look="suggestion"] {{
    background: {p.background}; border: {line}px solid {p.hairline}; border-radius: 17px;
    padding: 6px 16px; min-height: 20px;
}}
QAbstractButton[look="suggestion"]:hover {{ background: {p.accent_soft}; border-color: {p.accent_soft}; }}
QAbstractButton[look="chip"] {{
    color: {p.secondary}; background: transparent; border: {line}px solid {p.hairline};
    border-radius: 13px; padding: 2px 10px; min-height: 20px;
}}
QAbstractButton[look="chip"]:hover {{ background: {p.accent_soft}; color: {p.text}; }}
QAbstractButton[look="chip"]:checked {{
    background: {checked[0]}; color: {checked[1]}; border-color: {p.accent};
}}
QAbstractButton[look="link"] {{
    color: {p.accent}; padding: 1px 3px; min-height: 20px; font-weight: 500;
}}
QAbstractButton[look="link"]:hover {{ text-decoration: underline; }}
QPushButton#jump {{
    background: {p.surface}; border: {line}px solid {p.hairline}; border-radius: 18px;
}}
QPushButton#jump:hover {{ background: {p.accent_soft}; }}
QPushButton#jump:focus {{ border: 2px solid {p.accent}; }}
QAbstractButton[look]:pressed {{ background: {p.hairline}; }}
QAbstractButton[look]:disabled {{ color: {p.faint}; }}
QAbstractButton[look]:focus {{ border-color: {p.accent}; }}
QAbstractButton[look="primary"]:disabled {{
    background: {p.surface}; border: {line}px solid {p.hairline}; padding: {6 - line}px {16 - line}px;
}}
QAbstractButton[look="primary"]:pressed {{ background: {p.secondary}; }}
QAbstractButton[look="primary"]:focus {{ border-color: {p.text}; }}
QAbstractButton[look="chip"]:checked:focus {{
    border-color: {p.text if line == 1 else p.on_accent};
}}
"""


def _fields(p: Palette, line: int) -> str:
    return f"""
QLineEdit {{
    background: {p.surface}; color: {p.text}; border: {line}px solid {p.hairline};
    border-radius: 6px; padding: 0 7px; min-height: 30px; placeholder-text-color: {p.faint};
    selection-background-color: {p.accent}; selection-color: {p.on_accent};
}}
QLineEdit:focus {{ border-color: {p.accent}; }}
QLineEdit:disabled {{ color: {p.faint}; background: transparent; }}
QLineEdit#rename {{ padding: 0 4px; min-height: 24px; }}
QPlainTextEdit {{
    background: transparent; color: {p.text}; border: none; placeholder-text-color: {p.faint};
    selection-background-color: {p.accent}; selection-color: {p.on_accent};
}}
QListView {{ background: transparent; border: none; outline: none; }}
"""


def _scroll_bars(p: Palette, _line: int) -> str:
    return f"""
QScrollBar:vertical {{ background: transparent; width: 10px; margin: 0; border: none; }}
QScrollBar::handle:vertical {{
    background: {p.hairline}; min-height: 32px; border-radius: 3px; margin: 2px;
}}
QScrollBar::handle:vertical:hover {{ background: {p.faint}; }}
QScrollBar:horizontal {{ background: transparent; height: 10px; margin: 0; border: none; }}
QScrollBar::handle:horizontal {{
    background: {p.hairline}; min-width: 32px; border-radius: 3px; margin: 2px;
}}
QScrollBar::handle:horizontal:hover {{ background: {p.faint}; }}
QScrollBar::add-line, QScrollBar::sub-line {{ width: 0; height: 0; }}
QScrollBar::add-page, QScrollBar::sub-page {{ background: transparent; }}
"""


def _menus(p: Palette, line: int) -> str:
    return f"""
QMenu {{
    background: {p.surface}; color: {p.text}; border: {line}px solid {p.hairline}; padding: 4px;
}}
QMenu::item {{ padding: 6px 12px; padding-{_end()}: 24px; border-radius: 4px; }}
QMenu::item:selected {{ background: {p.accent_soft}; }}
QMenu::item:disabled {{ color: {p.faint}; }}
QMenu::separator {{ height: 1px; background: {p.hairline}; margin: 4px 8px; }}
"""
