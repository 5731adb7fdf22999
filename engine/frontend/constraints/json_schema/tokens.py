"""Brackets, commas and colons as regular expressions, with a limit of the white space around them.

Unlimited, a model may write white space without end.
"""

from __future__ import annotations

_SPACE = r"(?:[ \t]{1,4}|(?:\r?\n){1,2}[ \t]{0,40})?"
OPEN_OBJECT, CLOSE_OBJECT = rf"\{{{_SPACE}", rf"{_SPACE}\}}"
OPEN_ARRAY, CLOSE_ARRAY = rf"\[{_SPACE}", rf"{_SPACE}\]"
COMMA, COLON = f"{_SPACE},{_SPACE}", f"{_SPACE}:{_SPACE}"
