"""Brackets, commas and colons as regular expressions, with a limit of the white space around them.

Unlimited, a model that ended a string too early, so that its next words are forbidden, writes white
space without end. The limit is what JSON of 20 levels has that is indented by 4.
"""

from __future__ import annotations

_SPACE = r"(?:[ \t]{1,4}|(?:\r?\n){1,2}[ \t]{0,80})?"
OPEN_OBJECT, CLOSE_OBJECT = rf"\{{{_SPACE}", rf"{_SPACE}\}}"
OPEN_ARRAY, CLOSE_ARRAY = rf"\[{_SPACE}", rf"{_SPACE}\]"
COMMA, COLON = f"{_SPACE},{_SPACE}", f"{_SPACE}:{_SPACE}"
