"""The frames between the app and the supervisor of a sandbox: a kind, a length, the content."""

from __future__ import annotations

import struct

FLAG = "--sandbox"  # of the program: be a supervisor
HEADER = struct.Struct(">cI")  # the kind, and the bytes that follow
ORDERS = b"R"  # to the supervisor, once: JSON of the program and its limits
OUTPUT = b"O"  # what the program wrote
NAME, FILE = b"N", b"F"  # of a file that it left: its path; its content
END = b"E"  # JSON of how it ended
FAULT = b"X"  # why it could not be isolated
