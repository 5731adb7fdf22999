"""Untrusted text as it is shown: invisible characters, and those that move others, as escapes.

Arguments and results of tools come from models and servers. Without this a name could turn the
words around it, or hide what is in it.
"""

from __future__ import annotations

import json
import re

# Control characters but tab and line feed; what orders text from right to left or back by force.
_FORCING = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u206f\ufff0-\ufffb\ud800-\udfff"
_TAGS = "\U000e0000-\U000e0fff"
# Invisible characters; some of them are part of the writing of Arabic, Persian and Hindi.
_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2060-\u2065\u2800\u3164"
    "\ufeff\uffa0\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
)
_ANY = re.compile(f"[{_FORCING}{_INVISIBLE}{_TAGS}]")
_WORST = re.compile(f"[{_FORCING}{_TAGS}]")
_OPENS, _CLOSES = "\u2068", "\u2069"  # around a name in a sentence of the app


def escaped(text: str) -> str:
    """A text with escapes as in JSON (`\\u202e`) for all control and invisible characters.

    JSON stays JSON of the same value: such characters are in its strings only.
    """
    return _ANY.sub(_escape, text)


def escaped_result(text: str) -> str:
    """A text with escapes for control characters and those that force a direction.

    Joiners and marks, which some languages are written with, stay.
    """
    return _WORST.sub(_escape, text.replace("\r\n", "\n"))


def escaped_sentence(text: str) -> str:
    """As `escaped_result`, for a sentence with names that the app has isolated from its words."""
    depth = 0
    for mark in re.findall(f"[{_OPENS}{_CLOSES}]", text):
        depth += 1 if mark == _OPENS else -1
        if depth < 0:
            return escaped_result(text)
    if depth:
        return escaped_result(text)
    return "".join(
        piece if piece in (_OPENS, _CLOSES) else escaped_result(piece)
        for piece in re.split(f"([{_OPENS}{_CLOSES}])", text)
    )


def one_line(text: str) -> str:
    """A name on one line."""
    return escaped(" ".join(text.split()))


def _escape(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]
