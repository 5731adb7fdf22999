"""Reader of JSON and JSON lines: as they are; JSON on one line is broken into lines.

Values are never parsed, so that numbers, order and repeated keys stay what they are; only escapes
of letters are decoded, because a model and a search read letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.documents.decoding import clean, load
from app.documents.source import MOST_CHARACTERS, Source
from app.domain.documents import Document, DocumentKind, DocumentWarning, Page, Warned

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{},:]|[^\s\[\]{},:"]++|"', re.DOTALL)
_ESCAPE = re.compile(
    r"\\(?:u([dD][89abAB][\da-fA-F]{2})\\u([dD][c-fC-F][\da-fA-F]{2})|u([\da-fA-F]{4})|.)",
    re.DOTALL,
)
_MARKS = ("{", "}", "[", "]", ",", ": ")
_FITTING = 100  # characters of a list or object that stays on its line
_DEEPEST = 40  # levels that are indented


def read(source: Source) -> Document:
    """The text of a file. Raises ExtractionError if it is no text."""
    decoded = load(source)
    text = decoded.text
    if "\\u" in text:
        text = clean(_ESCAPE.sub(_letter, text))
    warnings = decoded.warnings
    if "\n" not in text.strip() and text.lstrip()[:1] in ("{", "["):
        text = _broken(text)
        if len(text) > MOST_CHARACTERS:
            text = text[:MOST_CHARACTERS]
            if not decoded.cut:
                warnings = (*warnings, Warned(DocumentWarning.CUT))
    return Document(DocumentKind.JSON, (Page("", text),), warnings=warnings)


def _letter(found: re.Match[str]) -> str:
    """An escaped character as itself, where it stands for nothing else in JSON."""
    if found[1]:
        high, low = int(found[1], 16), int(found[2], 16)
        return chr(0x10000 + ((high & 0x3FF) << 10) + (low & 0x3FF))
    if not found[3]:
        return found[0]
    code = int(found[3], 16)
    return chr(code) if code >= 0xA0 and not 0xD800 <= code < 0xE000 else found[0]


def _broken(text: str) -> str:
    """The same tokens on lines that are indented by their depth."""
    lines: list[str] = []
    line: list[str] = []
    length = depth = 0

    def end_line() -> None:
        nonlocal length
        if line:
            lines.append("  " * min(depth, _DEEPEST) + "".join(line).rstrip())
            length += len(lines[-1]) + 1
            line.clear()

    tokens = _tokens(text)
    for token, at in tokens:
        if token in ("{", "["):
            if fitting := _fitting(text, at):
                line.append(fitting)
                for _, inner in tokens:
                    if inner >= at + len(fitting) - 1:
                        break
                continue
            line.append(token)
            end_line()
            depth += 1
        elif token in ("}", "]"):
            end_line()
            depth = max(0, depth - 1)
            line.append(token)
        elif token == ",":
            line.append(token)
            end_line()
        elif token == ":":
            line.append(": ")
        else:
            if line and line[-1] not in _MARKS:
                line.append(" ")  # it is no JSON: what was apart stays apart
            line.append(token)
        if length > MOST_CHARACTERS:
            break
    end_line()
    return "\n".join(lines)


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    """Tokens and where they begin; what follows a quote that never closes is one token."""
    for found in _TOKEN.finditer(text):
        if found[0] == '"':
            yield text[found.start() :], found.start()
            return
        yield found[0], found.start()


def _fitting(text: str, at: int) -> str:
    """The list or object that begins here as it stands, if it is short and holds no other."""
    for found in _TOKEN.finditer(text, at + 1, at + _FITTING):
        if found[0] in ("}", "]"):
            return text[at : found.end()]
        if found[0] in ("{", "[", '"'):
            return ""
    return ""
