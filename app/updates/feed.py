"""The description of the newest release: what the update server sends, checked value by value.

    {"format": "tokonoma release", "version": "0.2.0",
     "notes": Markdown, "page": "https://…",
     "packages": [{"kind": a value of `InstallKind`, "machine": "x86_64" or "arm64",
                   "url": "https://…", "size_bytes": number, "sha256": 64 hexadecimal digits,
                   "minimum": the oldest glibc, Windows or macOS}]}

Only "format" and "version" are required, and other keys are ignored. The hash of each package is
part of the description, so that a package may be on any server. A signed description is the text of
such an object inside another one, so that its bytes are known:

    {"format": "tokonoma release", "signed": text, "signature": 128 hexadecimal digits, Ed25519}

A build with an `UPDATE_KEY` takes nothing else. An old description stays signed, but no version is
offered that is older than the app; that a newer one is kept back is not noticed.
"""

from __future__ import annotations

import json
import re
import threading
from typing import Any, cast

from app.domain.release import InstallKind, Package, Release, version_of
from app.net.http import Cancellation, WebError, check_address, send_request, status_error
from app.net.ledger import Purpose
from app.system.translation import tr
from app.updates.signature import is_signed

FORMAT = "tokonoma release"
MAX_BYTES = 1 << 18
MAX_SECONDS = 30.0  # for the whole answer
_MAX_PACKAGES = 64
_MAX_NOTES = 100_000  # characters
_MAX_PACKAGE_BYTES = 1 << 35
_FILE = re.compile(r"[Tt]okonoma[A-Za-z0-9._+~-]{0,120}")  # it replaces a file of its name
_ENDINGS = {
    InstallKind.DEB: ".deb",
    InstallKind.RPM: ".rpm",
    InstallKind.FLATPAK: ".flatpak",
    InstallKind.ARCHIVE: ".tar.xz",
    InstallKind.SETUP: ".exe",
    InstallKind.PORTABLE: ".zip",
    InstallKind.MAC: ".dmg",
}
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MINIMUM = re.compile(r"\d{1,4}(\.\d{1,6}){0,3}")


def fetch(
    address: str,
    *,
    key: str = "",
    proxy: str = "",
    cancellation: Cancellation | None = None,
    seconds: float = MAX_SECONDS,
) -> Release:
    """Ask for the newest release; raises WebError, after `seconds` too. Blocks.

    With a `key` the answer must be signed.
    Nothing is sent but the request itself, without the version of the app.
    """
    asking, is_late = cancellation or Cancellation(), threading.Event()
    host = check_address(address).hostname or ""

    def cut() -> None:
        is_late.set()
        asking.cut()

    limit = threading.Timer(seconds, cut)
    limit.daemon = True
    limit.start()
    try:
        return parse(_answer(address, host, proxy, seconds, asking), host, key)
    except WebError as error:
        if is_late.is_set():
            late = tr("{host} took too long to answer.", host=host)
            raise WebError(late, tr("Try again later.")) from error
        raise
    finally:
        limit.cancel()


def _answer(
    address: str, host: str, proxy: str, seconds: float, cancellation: Cancellation
) -> bytes:
    """The body of the answer; raises WebError."""
    response = send_request(
        address,
        headers={"User-Agent": "Tokonoma", "Accept": "application/json"},
        proxy=proxy,
        stall_seconds=seconds,
        cancellation=cancellation,
        purpose=Purpose.UPDATE,
        same_host=True,
    )
    try:
        if response.status != 200:
            raise _status(status_error(response), host, response.status)
        kind = response.header("Content-Type").split(";")[0].strip().lower()
        if kind in ("text/html", "application/xhtml+xml"):
            raise WebError(
                tr("{host} sent a web page instead of a description of the newest version.",
                   host=host),
                tr("A sign-in page of this network may have answered. Try again later."),
            )  # fmt: skip
        return response.read_all(MAX_BYTES)
    finally:
        response.close()


def parse(body: bytes, host: str, key: str = "") -> Release:
    """The release that an answer describes; raises WebError.

    With a `key`, a public one in hexadecimal digits, the answer must be signed.
    """
    values = _object(body)
    if key and values.get("format") == FORMAT and not _is_signed(values, key):
        raise WebError(
            tr("The description of the newest version from {host} has no valid signature.",
               host=host),
            tr("It may have been changed on its way. Try again later."),
        )  # fmt: skip
    if isinstance(signed := values.get("signed"), str):
        values = _object(signed)
    text = values.get("version")
    version = version_of(text) if isinstance(text, str) and len(text) <= 100 else None
    if values.get("format") != FORMAT or version is None:
        raise WebError(
            tr("{host} did not send a description of the newest version.", host=host),
            tr("Try again later."),
        )
    notes, rows = values.get("notes"), values.get("packages")
    listed = cast("list[object]", rows)[:_MAX_PACKAGES] if isinstance(rows, list) else []
    packages = tuple(package for row in listed if (package := _package(row)) is not None)
    page = values.get("page")
    return Release(
        version,
        notes[:_MAX_NOTES] if isinstance(notes, str) else "",
        page if isinstance(page, str) and _is_address(page) else "",
        packages,
    )


def _object(text: str | bytes) -> dict[str, object]:
    """The object that a text of JSON is; an empty one if it is none."""
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, object]", found) if isinstance(found, dict) else {}


def _is_signed(values: dict[str, object], key: str) -> bool:
    """Whether the inner text is signed with the key."""
    texts = [values.get(name) for name in ("signed", "signature")]
    if not all(isinstance(text, str) for text in texts):
        return False
    signed, signature = cast("list[str]", texts)
    try:
        return is_signed(signed.encode(), bytes.fromhex(signature), bytes.fromhex(key))
    except ValueError:
        return False


def _package(row: object) -> Package | None:
    """One package; None if anything of it is not as it should be."""
    values = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
    kind = next((each for each in InstallKind if each.value == values.get("kind")), None)
    texts = [values.get(name) for name in ("machine", "url", "sha256")]
    size, minimum = values.get("size_bytes"), values.get("minimum", "")
    if kind is None or not all(isinstance(text, str) for text in (*texts, minimum)):
        return None
    machine, url, sha256 = cast("list[str]", texts)
    package = Package(kind, machine, url, size if type(size) is int else 0, sha256.lower(), minimum)
    fits = (
        0 < package.size_bytes <= _MAX_PACKAGE_BYTES
        and _SHA256.fullmatch(package.sha256)
        and _is_address(url)
        and _FILE.fullmatch(package.file)
        and package.file.endswith(_ENDINGS.get(kind, "?"))
        and (not minimum or _MINIMUM.fullmatch(minimum))
    )
    return package if fits else None


def _is_address(url: str) -> bool:
    """Whether something may be requested from an address."""
    try:
        parts = check_address(url) if len(url) <= 2000 else None
    except WebError:
        return False
    return parts is not None and not parts.query and not parts.fragment


def _status(error: WebError, host: str, status: int) -> WebError:
    """The error for a status; that of a file which is not there would speak of models."""
    if error.retry:
        return error
    return WebError(
        tr("{host} has no description of the newest version ({status}).", host=host, status=status),
        tr("Try again later."),
    )
