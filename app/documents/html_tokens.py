"""Tokens of HTML: tags and text, as browsers see them, of any markup and in linear time.

`html.parser` of the standard library takes quadratic time for some markup in Python 3.11, and
loses what follows a tag that is not closed.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from html.entities import html5

VOID = frozenset(
    (
        *("area", "base", "br", "col", "embed", "frame", "hr", "img", "input", "link", "meta"),
        *("param", "source", "track", "wbr"),
    )
)
# Elements whose content is no markup: it is read as text, or left out.
_RAW = frozenset(("script", "style", "xmp", "iframe", "noembed", "plaintext"))
_RAW_ENDS = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in (*_RAW, "title", "textarea")
}
_NAME = re.compile(r"[a-zA-Z][^\s/>]*+")
_ATTRIBUTE = re.compile(
    r"[\s/]*+([^\s/>=][^\s/>=]*+)"
    r"(?:\s*+=\s*+(?:\"([^\"]*+)\"|'([^']*+)'|([^\s>]*+)))?"
)
# Of a declaration with entities in it.
_SUBSET = re.compile(r"<!doctype[^>\[]{0,500}+\[[^\]]{0,100000}+\]\s*+>", re.IGNORECASE)
_DECLARATIONS = 2_000  # characters: a document begins with them
_TAG_END = re.compile(r"[\s/=]*+>")
_IGNORED = re.compile(r"[\s/=]++")
_ENTITY = re.compile(
    r"&(?:#(\d{1,7})(?!\d)|#[xX]([0-9a-fA-F]{1,6})(?![0-9a-fA-F])|([a-zA-Z][a-zA-Z0-9]{1,31}));?"
)
_LONGEST_NAME = 64


@dataclass(frozen=True, slots=True)
class Token:
    """Text (without a name), or the start or end of an element."""

    text: str = ""
    name: str = ""  # in lower case
    is_end: bool = False
    attributes: dict[str, str] = field(default_factory=dict)
    is_closed: bool = False  # by a slash, as in XML


def tokens(html: str) -> Iterator[Token]:
    """The tags and texts of markup, entities replaced; comments and declarations left out."""
    at: int = 0
    last_close = html.rfind(">")
    while at < len(html):
        opens = html.find("<", at)
        if opens < 0 or opens > last_close:
            yield Token(unescaped(html[at:]))
            return
        if opens > at:
            yield Token(unescaped(html[at:opens]))
        if found := _NAME.match(html, opens + 1):
            whole = found[0].lower()[:_LONGEST_NAME]
            name = whole.rpartition(":")[2]
            attributes, end = _attributes(html, found.end())
            if end < 0:
                yield Token(unescaped(html[opens:]))
                return
            is_closed = html[end - 2] == "/"
            yield Token("", name, False, attributes, is_closed)
            at = end
            if whole in _RAW_ENDS and not is_closed:
                at = yield from _raw(html, at, name)
            continue
        at, text = _other(html, opens)
        if text is not None:
            yield text


def _attributes(html: str, at: int) -> tuple[dict[str, str], int]:
    """The attributes of a tag and where it ends; -1: nowhere."""
    made: dict[str, str] = {}
    while not (closed := _TAG_END.match(html, at)):
        found = _ATTRIBUTE.match(html, at)
        if found is None:
            if ignored := _IGNORED.match(html, at):
                at = ignored.end()
                continue
            return made, -1
        value = found[2] or found[3] or found[4] or ""
        made.setdefault(found[1].lower(), unescaped(value))
        at = found.end()
    return made, closed.end()


def _raw(html: str, at: int, name: str) -> Generator[Token, None, int]:
    """The content of an element that is no markup, then its end; returns where that ends."""
    found = _RAW_ENDS[name].search(html, at)
    end = found.start() if found else len(html)
    content = html[at:end]
    yield Token(content if name in _RAW else unescaped(content))
    yield Token("", name, True)
    if not found:
        return len(html)
    closes = html.find(">", end)
    return len(html) if closes < 0 else closes + 1


def _other(html: str, at: int) -> tuple[int, Token | None]:
    """What is no start of an element: its end, and what it yields."""
    if html.startswith("</", at):
        closes = html.find(">", at)
        found = _NAME.match(html, at + 2)
        name = found[0].lower()[:_LONGEST_NAME].rpartition(":")[2] if found else ""
        return closes + 1, Token("", name, True) if name else None
    if html.startswith("<!--", at):
        if html.startswith(("<!-->", "<!--->"), at):
            return html.find(">", at) + 1, None
        closes = html.find("-->", at + 4)
        return (closes + 3 if closes >= 0 else len(html)), None
    if html.startswith("<![CDATA[", at):
        closes = html.find("]]>", at)
        if closes < 0:
            return len(html), Token(html[at + 9 :])
        return closes + 3, Token(html[at + 9 : closes])
    if html.startswith(("<!", "<?"), at):
        if at < _DECLARATIONS and (found := _SUBSET.match(html, at)):
            return found.end(), None
        return html.find(">", at) + 1, None
    return at + 1, Token("<")


def unescaped(text: str) -> str:
    """A text with its entities replaced; unknown ones stay as they are."""
    return _ENTITY.sub(_entity, text) if "&" in text else text


def _entity(found: re.Match[str]) -> str:
    if name := found[3]:
        if found[0].endswith(";") and (value := html5.get(f"{name};")):
            return value
        # Old names count without a semicolon too, and then their longest beginning.
        for end in range(min(len(name), 6), 1, -1):
            if value := html5.get(name[:end]):
                return value + found[0][1 + end :]
        return found[0]
    code = int(found[1]) if found[1] else int(found[2], 16)
    if 0x80 <= code <= 0x9F:  # of Windows, as browsers read them
        return bytes((code,)).decode("cp1252", "replace")
    if code == 0 or code > 0x10FFFF or 0xD800 <= code < 0xE000:
        return "\ufffd"
    return chr(code)
