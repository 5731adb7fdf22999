"""Untrusted text as it is shown: what cannot be seen, or reorders what is seen, is written out.

Arguments and results of tools come from models and servers. Without this a name could turn the
words around it, or hide what is in it.
"""

from __future__ import annotations

import json
import re

# Control and format characters, separators of lines, and halves of surrogate pairs. The joiners
# U+200C and U+200D are not among them: they belong to the spelling of Persian and of Indian languages.
_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff0-\ufffb\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# Further ones that are seen nowhere, or only in what they join.
_INVISIBLE = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200c\u200d\u2800\u3164\uffa0"
_WRITTEN_OUT = re.compile(f"[{_HIDDEN}]")
_ANY = re.compile(f"[{_HIDDEN}{_INVISIBLE}]")
_LINE_BREAKS = re.compile("\r\n?")
_OPENS, _CLOSES = "\u2068", "\u2069"  # around a name in a sentence of the app
_OWN_MARKS = "\u200e\u200f"  # that begin such a sentence


def written_out(text: str) -> str:
    r"""A text whose hidden characters are escapes such as `\u202e`; line breaks and tabs stay."""
    return _WRITTEN_OUT.sub(_escape, _LINE_BREAKS.sub("\n", text))


def on_one_line(text: str) -> str:
    """The same, with every run of spaces and line breaks as one space."""
    return " ".join(written_out(text).split())


def escaped(text: str) -> str:
    """A text with escapes as in JSON for all control and invisible characters, joiners too.

    JSON stays JSON of the same value: such characters are in its strings only.
    """
    return _ANY.sub(lambda found: json.dumps(found[0])[1:-1], text)


def escaped_sentence(text: str) -> str:
    """As `written_out`, for a sentence with names that the app has isolated from its words."""
    depth = 0
    for mark in re.findall(f"[{_OPENS}{_CLOSES}]", text):
        depth += 1 if mark == _OPENS else -1
        if depth < 0:
            return written_out(text)
    if depth:
        return written_out(text)
    marks = _OPENS + _CLOSES + _OWN_MARKS
    return "".join(
        piece if piece and piece in marks else written_out(piece)
        for piece in re.split(f"([{marks}])", text)
    )


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}"
