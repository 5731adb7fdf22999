"""What the bundled program runs: the app, after the system's own environment is put back."""

from __future__ import annotations

import os
import sys

from app.__main__ import main


def restore_environment() -> None:
    """Let what is started from here, a browser or a file manager, load the system's libraries.

    The loader of the bundle points these variables at its own, which this process has read by now.
    """
    for name in ("LD_LIBRARY_PATH", "LIBPATH"):
        before = os.environ.pop(f"{name}_ORIG", None)
        if before is not None:
            os.environ[name] = before
        else:
            os.environ.pop(name, None)
    os.environ.pop("QML2_IMPORT_PATH", None)  # set by PyInstaller for what the app does not use


if __name__ == "__main__":
    restore_environment()
    sys.exit(main())
