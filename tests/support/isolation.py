"""Whether programs can be isolated here, asked of the system and not of the app."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache


@cache
def can_isolate() -> bool:
    """Whether this is Linux and lets the user create namespaces."""
    if sys.platform != "linux":
        return False
    unshare = shutil.which("unshare")
    if unshare is None:
        return True  # that it cannot is then told by the tests that fail
    command = (unshare, "--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "true")
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
