"""Untrusted text as it is shown: what cannot be seen, or reorders what is seen, is written out."""

from __future__ import annotations

import re

# Control and format characters, separators of lines, and halves of surrogate pairs. The joiners
# U+200C and U+200D stay: they belong to the spelling of Persian and of Indian languages.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
)
_LINE_BREAKS = re.compile("\r\n?")


def written_out(text: str) -> str:
    r"""A text whose hidden characters are escapes such as `\u202e`; line breaks and tabs stay."""
    return _HIDDEN.sub(_escape, _LINE_BREAKS.sub("\n", text))


def on_one_line(text: str) -> str:
    """The same, with every run of spaces and line breaks as one space."""
    return " ".join(written_out(text).split())


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}"
