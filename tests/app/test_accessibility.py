"""What assistive technology is told of our own widgets, and that Qt and Python agree on who owns it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# A slot that is connected for the first time gives the class another meta-object, for which Qt
# asks the factory again; both answers are then deleted with the widget.
ASKED_TWICE = """
from PySide6.QtCore import QTimer
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QApplication
from shiboken6 import delete
from {module} import {name}
application = QApplication([])
widget = {name}()
first = QAccessible.queryAccessibleInterface(widget)
ids = {{QAccessible.uniqueId(first)}}
timer = QTimer()
for slot in (widget.hide, widget.{slot}):
    timer.timeout.connect(slot)
    ids.add(QAccessible.uniqueId(QAccessible.queryAccessibleInterface(widget)))
assert len(ids) > 1, "Qt asked once: this shows nothing"
delete(widget)
"""


@pytest.mark.parametrize(
    ("module", "name", "slot"),
    [
        ("app.ui.transcript", "Transcript", "jump_to_end"),
        ("app.ui.library_list", "LibraryList", "_lay_out"),
        ("app.ui.strength_slider", "StrengthSlider", "set_strength"),
    ],
)
def test_a_widget_that_qt_asked_about_twice_is_deleted_once(
    module: str, name: str, slot: str
) -> None:
    child = subprocess.run(
        [sys.executable, "-c", ASKED_TWICE.format(module=module, name=name, slot=slot)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (child.returncode, child.stderr) == (0, "")
