"""Folders that Windows loads DLLs from: those of the program, the system and the packages.

Windows looks in the working folder and in PATH too. The working folder is that of an opened file,
such as Downloads, where a web page can have placed a DLL of a name that some library asks for.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

_DEFAULT_FOLDERS = 0x1000  # LOAD_LIBRARY_SEARCH_DEFAULT_DIRS


def leave_out_working_folder(kernel: Any = None) -> None:
    """Load no DLL from the working folder or from PATH; nothing on other systems.

    `kernel` is kernel32, which a test replaces.
    """
    if kernel is None:
        if sys.platform != "win32":
            return
        kernel = ctypes.WinDLL("kernel32")
    kernel.SetDefaultDllDirectories(_DEFAULT_FOLDERS)
    # Loads that name their own way of searching leave it out as well where a folder is set in its
    # place, as PyInstaller sets that of a bundle; an empty name only takes it away.
    if kernel.GetDllDirectoryW(0, None) <= 1:  # the space that its name takes, with an end mark
        kernel.SetDllDirectoryW("")
