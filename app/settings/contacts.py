"""The servers that the app may contact, as the settings page names them."""

from __future__ import annotations

import urllib.parse

from app.net.http import WebError, is_loopback, parse_proxy
from app.settings.table import SEARCH_PROVIDERS, Settings
from app.system.translation import tr
from engine import read_gpu_wheels


def contacts(settings: Settings) -> list[tuple[str, str]]:
    """Every server the app may contact, and when."""
    packages = read_gpu_wheels()
    hosts = (
        {urllib.parse.urlsplit(each.url).hostname for each in packages.wheels} if packages else ()
    )
    gpu = [(host, tr("when you get GPU support")) for host in sorted(filter(None, hosts))]
    return [*_hub(settings), *gpu, *_search(settings)]


def _search(settings: Settings) -> list[tuple[str, str]]:
    """The server that searches the web."""
    if settings.search_provider not in SEARCH_PROVIDERS:
        return []
    own = urllib.parse.urlsplit(settings.search_address).hostname or ""
    host = SEARCH_PROVIDERS[settings.search_provider] or own
    return [(host, tr("when a tool searches the web"))] if host else []


def _hub(settings: Settings) -> list[tuple[str, str]]:
    """The servers of models."""
    host = urllib.parse.urlsplit(settings.hub_endpoint).hostname or settings.hub_endpoint
    when = tr("when you search for or download a model")
    if is_loopback(host):
        return [(host, tr("{when} (this computer itself)", when=when))]
    lines = [(host, when), (tr("the file servers it names"), tr("while a model is downloaded"))]
    if settings.proxy:
        try:
            proxy = parse_proxy(settings.proxy).host
        except WebError:
            return lines
        lines.append((proxy, tr("your proxy, for all of these")))
    return lines
