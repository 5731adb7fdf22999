"""Entry point of the bundle: restores the system's environment variables, then runs the app."""

from __future__ import annotations

import gc
import os

if __name__ == "__main__":
    gc.disable()  # as `python -m app` does: the first paint enables it

from app.__main__ import run_and_exit


def restore_environment() -> None:
    """Undo PyInstaller's library paths, so that child processes load the system's libraries.

    PyInstaller's bootloader sets these variables to the bundle's folder. This process no longer
    needs them, but they would break a browser or a file manager started from it.
    """
    for name in ("LD_LIBRARY_PATH", "LIBPATH"):
        before = os.environ.pop(f"{name}_ORIG", None)
        if before is not None:
            os.environ[name] = before
        else:
            os.environ.pop(name, None)
    os.environ.pop("QML2_IMPORT_PATH", None)  # set by PyInstaller; the app does not use QML


if __name__ == "__main__":
    restore_environment()
    run_and_exit()
