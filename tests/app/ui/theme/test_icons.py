"""Icons: rendering in the requested colour, margins, stroke width; no icon is unused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PySide6.QtGui import QIcon, QImage
from PySide6.QtWidgets import QApplication

from app.system import paths
from app.ui.theme import icons

FILES = sorted((paths.resources() / "icons").glob("*.svg"))
NAMES = [file.stem for file in FILES if not file.stem.startswith("app")]
CODE = "\n".join(
    file.read_text(encoding="utf-8") for file in Path(icons.__file__).parents[2].rglob("*.py")
)


def pixels(image: QImage) -> list[int]:
    """Alpha of each pixel."""
    return [
        image.pixelColor(x, y).alpha() for x in range(image.width()) for y in range(image.height())
    ]


def test_an_icon_is_drawn_in_its_colour_inside_of_a_margin(qapp: QApplication) -> None:
    for name in NAMES:
        image = icons.pixmap(name, "#3B6848", 24).toImage()
        drawn = {
            (x, y): image.pixelColor(x, y)
            for x in range(24)
            for y in range(24)
            if image.pixelColor(x, y).alpha()
        }
        assert len(drawn) > 20, f"nothing is drawn of {name}"
        assert {c.name() for c in drawn.values() if c.alpha() == 255} <= {"#3b6848"}, name
        assert not {x for place in drawn for x in place} & {0, 23}, f"{name} has no margin"


def test_no_icon_is_unused() -> None:
    assert [name for name in NAMES if f'"{name}"' not in CODE] == []


def test_drawings_contain_no_script_and_no_reference() -> None:
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"<script|href|url\(|<image", text), file.name


def test_icons_have_the_same_stroke_width() -> None:
    for name in NAMES:
        text = icons.source(f"icons/{name}.svg")
        assert 'viewBox="0 0 24 24"' in text
        assert 'stroke-width="1.75" stroke-linecap="round"' in text
        assert 'stroke="currentColor"' in text


def test_an_icon_is_sharp_on_every_screen(qapp: QApplication) -> None:
    icon = icons.icon("copy", "#000000", 20)
    assert {size.width() for size in icon.availableSizes()} >= {20, 30, 40}


def test_a_disabled_icon_is_fainter(qapp: QApplication) -> None:
    icon = icons.icon("plus", "#000000", 20)
    normal = icon.pixmap(20, 20, QIcon.Mode.Normal).toImage()
    disabled = icon.pixmap(20, 20, QIcon.Mode.Disabled).toImage()
    assert 0 < max(pixels(disabled)) < 0.5 * max(pixels(normal))


def test_application_icon_has_all_desktop_sizes(qapp: QApplication) -> None:
    sizes = {size.width() for size in icons.application_icon().availableSizes()}
    assert sizes >= {16, 24, 32, 48, 64, 128, 256}


def test_an_unknown_icon_is_an_error(qapp: QApplication) -> None:
    with pytest.raises(FileNotFoundError):
        icons.icon("no such icon", "#000000")
