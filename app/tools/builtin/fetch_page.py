"""The tool `fetch_page`: the text of one public web page by its address; each host is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from app.domain.tools import CallContext, Effect, ToolError, ToolSpec
from app.system.translation import tr
from app.tools.builtin import web
from app.tools.builtin.picked import size_words
from app.tools.builtin.tool import document_text, in_thread, schema, spec
from app.tools.services import Services

MOST_SHOWN = 20_000  # characters of one call
_LARGE = 500_000  # bytes of a page that takes a second or more to read
_HTML = ("text/html", "application/xhtml+xml")
_DOCUMENTS = {
    "application/pdf": ".pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/epub+zip": ".epub",
}
_TEXTS = ("application/json", "application/xml", "application/javascript", "application/yaml")
_TEXT_ENDINGS = ("+json", "+xml")
_DESCRIPTION = (
    "Open one public web page by its address and read its text as Markdown."
    ' Example: {"address": "https://example.org/news"}'
)


class FetchPage:
    """Opens pages; the address is sent to its host, without cookies."""

    def __init__(self, services: Services, proxy: Callable[[], str]) -> None:
        """`proxy` gives the setting; "": the system's."""
        self._services, self._proxy = services, proxy

    @property
    def spec(self) -> ToolSpec:
        """The tool as it is offered."""
        form = schema(
            ("address",),
            address=("string", "the whole address"),
            start=("integer", "character to go on from in a long page; default 0"),
        )
        return spec("fetch_page", _DESCRIPTION, form, Effect.NETWORK)

    def changes(self, arguments: Mapping[str, Any], context: CallContext) -> Sequence[str]:
        """Which host is asked for what; raises ToolError."""
        del context
        parts = web.parsed(str(arguments["address"]))
        return (
            tr("Asks {host} for the page {address}.", host=parts.netloc, address=parts.geturl()),
        )

    def scope(self, arguments: Mapping[str, Any]) -> str:
        """The host of the address; raises ToolError."""
        return web.host_of(str(arguments["address"]))

    async def call(self, arguments: Mapping[str, Any], context: CallContext) -> str:
        """The title and the text of a page, from `start`; raises ToolError."""
        del context
        start = max(0, int(arguments.get("start") or 0))
        accept = {"Accept": "text/html,application/xhtml+xml,text/*;q=0.9,*/*;q=0.5"}
        asked = web.Asked(str(arguments["address"]), headers=accept, proxy=self._proxy())
        reply = await web.send(asked)
        web.check_status(reply)
        if reply.type in _DOCUMENTS or (reply.type in _HTML and len(reply.body) > _LARGE):
            title, text = "", await self._document(reply)
        else:
            title, text = await in_thread(lambda _: page_text(reply))
        return part(reply, title, text, start)

    async def _document(self, reply: web.Reply) -> str:
        """The text of a document or a large page, which other processes read."""
        ending = _DOCUMENTS.get(reply.type, ".html")
        if reply.is_cut and ending != ".html":
            raise ToolError(f"The file is larger than {size_words(web.MOST_BYTES)}.")
        base = _base(reply).encode() if ending == ".html" else b""
        return await document_text(self._services, base + reply.body, ending, f"page{ending}")


def page_text(reply: web.Reply) -> tuple[str, str]:
    """Title and text of a page; raises ToolError for what has none."""
    from app.documents.decoding import clean, declared, decode, is_text
    from app.documents.html_markdown import markdown

    kind = reply.type
    is_page = kind in _HTML or (not kind and b"<" in reply.body[:200])
    is_text_type = kind.startswith("text/") or kind in _TEXTS or kind.endswith(_TEXT_ENDINGS)
    if not (is_page or is_text_type or not kind):
        size = size_words(len(reply.body))
        raise ToolError(f"This is no page but {kind[:60]} ({size}), which has no text.")
    found = decode(reply.body, reply.charset or declared(reply.body[:4096])).text
    if not is_text(found[:100_000]):
        raise ToolError("This is no page: the server sent data that is no text.")
    if is_page:
        made = markdown(_base(reply) + found)
        return made.title, made.text
    return "", clean(_formatted(found) if "json" in kind else found)


def _base(reply: web.Reply) -> str:
    """What makes the links of a page whole, unless it says that itself."""
    has_base = b"<base" in reply.body[:100_000].lower()
    return "" if has_base else f'<base href="{escape(reply.url)}">'


def _formatted(text: str) -> str:
    """JSON without its empty spaces."""
    try:
        return json.dumps(json.loads(text), ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def part(reply: web.Reply, title: str, text: str, start: int) -> str:
    """A part of a page's text, with a line above that names the page, and how to go on."""
    if not text.strip():
        return f"{reply.url} has no text; it may need a browser."
    if start >= len(text):
        raise ToolError(f'The page has {len(text):,} characters: send a smaller "start".')
    end = min(len(text), start + MOST_SHOWN)
    if end < len(text) and (line := text.rfind("\n", start + MOST_SHOWN // 2, end)) > 0:
        end = line + 1
    head = f"{title}\n{reply.url}" if title else reply.url
    cut = " The page was longer than the limit." if reply.is_cut else ""
    tail = f'\n[To go on, send "start": {end}; {len(text):,} characters in all.{cut}]'
    return f"{head}\n\n{text[start:end]}" + (tail if end < len(text) or cut else "")
