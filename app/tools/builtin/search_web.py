"""The tool `search_web`: through the search service that the user names, with its key."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, cast
from urllib.parse import urlencode, urlsplit

from app.domain.tools import CallContext, Effect, ToolError, ToolSpec
from app.net.offline import is_loopback
from app.system.translation import tr
from app.tools.builtin import web
from app.tools.builtin.tool import schema, spec

_COUNT, _MOST = 5, 10  # results
_LONGEST_QUERY = 400  # characters
_LONGEST_SNIPPET = 500
_DESCRIPTION = (
    "Search the web; gives titles, addresses and short texts. Open a result with fetch_page."
    ' Example: {"query": "population of Kyoto 2026"}'
)


class SearchService(StrEnum):
    """A search service whose answers are understood."""

    SEARXNG = "searxng"
    BRAVE = "brave"
    TAVILY = "tavily"


@dataclass(frozen=True, slots=True)
class WebSearch:
    """The service that the user chose."""

    service: SearchService
    address: str = ""  # of SearXNG; "" for the others
    key: str = field(default="", repr=False)


class SearchWeb:
    """Searches the web; off without a service."""

    def __init__(self, settings: Callable[[], WebSearch | None], proxy: Callable[[], str]) -> None:
        """`settings` gives the user's service, None if there is none; `proxy` the setting of it."""
        self._settings, self._proxy = settings, proxy

    @property
    def spec(self) -> ToolSpec:
        """The tool as it is offered; its problem says that no service is set up."""
        form = schema(
            ("query",),
            query=("string", "what to search for, in a few words"),
            count=("integer", f"results, 1 to {_MOST}; default {_COUNT}"),
        )
        problem = "" if self._settings() else tr("No web search service is named in the settings.")
        return spec("search_web", _DESCRIPTION, form, Effect.NETWORK, problem=problem)

    def changes(self, arguments: Mapping[str, Any], context: CallContext) -> Sequence[str]:
        """Which host the query is sent to; raises ToolError."""
        del context
        query = str(arguments["query"]).strip()
        return (tr("Sends “{query}” to {host}.", query=query, host=self._host()),)

    def scope(self, arguments: Mapping[str, Any]) -> str:
        """The host of the service; raises ToolError."""
        del arguments
        return self._host()

    def _host(self) -> str:
        return web.host_of(_request(self._chosen(), "x", 1).url)

    def _chosen(self) -> WebSearch:
        found = self._settings()
        if found is None:
            raise ToolError(
                "No web search service is set up. The user can name one in the settings."
            )
        return found

    async def call(self, arguments: Mapping[str, Any], context: CallContext) -> str:
        """The results; raises ToolError."""
        del context
        chosen = self._chosen()
        query = " ".join(str(arguments["query"]).split())
        if not query or len(query) > _LONGEST_QUERY:
            raise ToolError(f'Send a "query" of 1 to {_LONGEST_QUERY} characters.')
        count = min(max(int(arguments.get("count") or _COUNT), 1), _MOST)
        asked = _request(chosen, query, count, self._proxy())
        reply = await web.send(asked)
        _check(chosen, reply)
        rows = _rows(chosen, reply)[:count]
        if not rows:
            return f'Nothing was found for "{query}".'
        return "\n\n".join(f"{n}. {row}" for n, row in enumerate(rows, 1))


def _request(chosen: WebSearch, query: str, count: int, proxy: str = "") -> web.Asked:
    """The request of a search; raises ToolError for settings that cannot be used."""
    key = chosen.key.strip()
    if chosen.service is not SearchService.SEARXNG and not (key and key.isascii()):
        raise ToolError("The search service needs a key. The user can add it in the settings.")
    accept = {"Accept": "application/json"}
    match chosen.service:
        case SearchService.BRAVE:
            form = urlencode({"q": query, "count": count})
            url = f"https://api.search.brave.com/res/v1/web/search?{form}"
            return web.Asked(url, headers={**accept, "X-Subscription-Token": key}, proxy=proxy)
        case SearchService.TAVILY:
            body = json.dumps({"query": query, "max_results": count}).encode()
            bearer = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
            url = "https://api.tavily.com/search"
            return web.Asked(url, "POST", {**accept, **bearer}, body, proxy=proxy)
        case SearchService.SEARXNG:
            return _searxng(chosen, query, proxy, accept)


def _searxng(chosen: WebSearch, query: str, proxy: str, accept: Mapping[str, str]) -> web.Asked:
    """A request to the user's own server, which may be on this computer or its network."""
    parts = web.parsed(chosen.address)
    headers = dict(accept)
    if key := chosen.key.strip():
        if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
            raise ToolError("The key of the search service would be sent unencrypted: use https.")
        headers["Authorization"] = f"Bearer {key}"
    path = parts.path.rstrip("/")
    path = path if path.endswith("/search") else f"{path}/search"
    form = urlencode({"q": query, "format": "json"})
    url = parts._replace(path=path, query=form).geturl()
    return web.Asked(url, headers=headers, is_private_allowed=True, proxy=proxy)


def _check(chosen: WebSearch, reply: web.Reply) -> None:
    """Raise ToolError for an answer without results."""
    host = urlsplit(reply.url).hostname
    if reply.status == 403 and chosen.service is SearchService.SEARXNG:
        raise ToolError(
            f'{host} refuses answers in JSON. Its owner can add "json" to search.formats in its'
            " settings."
        )
    if reply.status in (401, 403, 422) and chosen.service is not SearchService.SEARXNG:
        raise ToolError(f"{host} refused the key of the search service ({reply.status}).")
    if reply.status in (429, 432, 433):
        raise ToolError(f"{host} limits the number of searches. Try again later.")
    web.check_status(reply)


def _rows(chosen: WebSearch, reply: web.Reply) -> list[str]:
    """The results as texts; raises ToolError for an answer that is not understood."""
    try:
        found: Any = json.loads(reply.body)
        if chosen.service is SearchService.BRAVE:
            found = found.get("web") or {}
        results = cast("list[Any]", found.get("results") or [])
        rows = [_row(cast("dict[str, Any]", each)) for each in results if isinstance(each, dict)]
    except (ValueError, AttributeError, TypeError, RecursionError):
        host = urlsplit(reply.url).hostname
        raise ToolError(f"{host} sent an answer that is not understood.") from None
    return [_without(chosen.key, row) for row in rows if row]


def _row(result: dict[str, Any]) -> str:
    """Title, address and text of a result; "" for one without an address."""
    title, url = _line(result.get("title"), 200), _line(result.get("url"), 1000)
    text = result.get("description") or result.get("content")
    if not url.startswith(("https://", "http://")):
        return ""
    return "\n".join(filter(None, (title, url, _line(text, _LONGEST_SNIPPET))))


def _line(value: object, most: int) -> str:
    text = " ".join(str(value or "").split())
    for mark in ("<strong>", "</strong>", "<b>", "</b>", "<em>", "</em>"):
        text = text.replace(mark, "")
    return text if len(text) <= most else f"{text[:most]}..."


def _without(key: str, text: str) -> str:
    """A text that does not have the key, should a service send it back."""
    return text.replace(key.strip(), "(key)") if key.strip() else text
