"""Starts the app as its command does, takes a picture of the first window, and quits.

`python tests/drivers/first_window.py PICTURE`: the status is that of the app, or 1 when the window
was blank. What the app imports after the first paint runs too, as well as its end.
"""

from __future__ import annotations

import sys
import tempfile
import time

import app.__main__ as start
from app.ui.window import Window

_FEWEST_COLOURS = 16  # of a window with text; a blank one has one or two


def main(picture: str) -> int:
    """Run the app once; returns the exit status."""
    started, first_paint, colours = time.monotonic(), start.paint, 0

    def paint(window: Window) -> None:
        nonlocal colours
        first_paint(window)
        print(f"painted after {time.monotonic() - started:.1f} s", flush=True)
        image = window.grab().toImage()
        image.save(picture)
        rows, columns = range(0, image.height(), 3), range(0, image.width(), 3)
        colours = len({image.pixel(x, y) for y in rows for x in columns})
        window.closing.emit()  # which the app takes for a wish to quit

    start.paint = paint
    # Until the process ends the app has its lock and its log open, which Windows does not delete.
    with tempfile.TemporaryDirectory(prefix="tokonoma-", ignore_cleanup_errors=True) as home:
        status = start.main(["--home", home])
    print(f"ended after {time.monotonic() - started:.1f} s; {colours} colours", flush=True)
    return status or int(colours < _FEWEST_COLOURS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
