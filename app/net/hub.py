"""Model hub API: searches repositories, lists the GGUF files of one, reads how a file begins.

Responses are untrusted: they are read up to a size limit, and a field of a type other than the
hub documents counts as missing. Nothing is requested until the user searches or opens a page.
"""

from __future__ import annotations

import json
import re
import urllib.parse
from dataclasses import dataclass
from typing import cast

from app.net.http import Response, WebError, check_address, send_request, status_error
from app.net.ledger import Purpose
from app.system.translation import tr

HUB = "https://huggingface.co"
_MAX_RESPONSE = 8 << 20  # bytes; the longest listing seen has some 300 KB
_MAX_PAGES = 10  # of a listing, 1,000 files each
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)  # owner/name
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)
_SHA256 = re.compile(r"[0-9a-f]{64}")
TIMEOUT_SECONDS = 20.0  # without a byte from the hub


class HubError(Exception):
    """A hub request failed or a link is not usable: `str(error)` is the reason."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Piece:
    """One file of a model split into several files."""

    file: str
    size_bytes: int = 0  # 0: unknown
    sha256: str = ""  # "": unknown


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model file comes from: a file of a repository, or a direct link."""

    repository: str  # "owner/name"; "" for a direct link
    revision: str = "main"
    file: str = ""  # path inside the repository
    size_bytes: int = 0  # of all pieces; 0: unknown
    sha256: str = ""  # "": unknown
    url: str = ""  # for a direct link
    folder: str = ""  # subfolder of the models folder; "": none
    pieces: tuple[Piece, ...] = ()  # of a split model, if known
    encoder: Piece | None = None  # picture encoder of the repository that comes with the model
    name: str = ""  # of the file on the disk; "": as in the repository

    @property
    def page(self) -> str:
        """URL of the repository's page; "" for a direct link."""
        return page_address(self.repository) if self.repository else ""


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository in the results of a search."""

    id: str  # "owner/name"
    downloads: int
    likes: int
    gated: bool  # its files require accepting a licence on the hub
    licence: str  # from its tags: "apache-2.0"; "": not stated
    files: int  # model files, a split one counted once; 0: unknown
    updated: str  # ISO date, "": not stated

    @property
    def page(self) -> str:
        """URL of its page."""
        return page_address(self.id)


@dataclass(frozen=True, slots=True)
class HubFile:
    """A model file of a repository; a split model is one row."""

    repository: str
    revision: str
    file: str  # path inside the repository, of the first piece
    size_bytes: int  # of all pieces; 0: unknown
    sha256: str  # of a file in one piece; "": unknown
    kind: str = "model"  # guessed from the name: see `kind_of`; or "incomplete"
    pieces: tuple[Piece, ...] = ()  # more than one, for a split model
    url: str = ""  # of a file outside the hub

    @property
    def names(self) -> tuple[str, ...]:
        """The paths of all its pieces."""
        return tuple(piece.file for piece in self.pieces) or (self.file,)

    @property
    def source(self) -> Source:
        """The file as the source of a download."""
        return Source(
            self.repository,
            self.revision,
            self.file,
            self.size_bytes,
            self.sha256,
            self.url,
            pieces=self.pieces,
        )


def file_address(source: Source, file: str = "", endpoint: str = HUB) -> str:
    """URL of a source's file, or of another file of its repository."""
    if source.url and not file:
        return source.url
    quoted = urllib.parse.quote(file or source.file)
    revision = urllib.parse.quote(source.revision or "main", safe="")
    return f"{endpoint.rstrip('/')}/{source.repository}/resolve/{revision}/{quoted}"


def page_address(repository: str, endpoint: str = HUB) -> str:
    """URL of a repository's page, for a browser."""
    return f"{endpoint.rstrip('/')}/{repository}"


def piece_names(file: str) -> tuple[str, ...]:
    """File names of all pieces of a split model, from any of them; one name for a single file.

    Raises HubError for an invalid number of pieces.
    """
    match = _PART.search(file)
    if match is None:
        return (file,)
    index, count = int(match[1]), int(match[2])
    if not 1 <= index <= count <= 999:
        raise HubError(tr("The file name has an invalid part number."), tr("Choose another file."))
    stem, ending = file[: match.start()], file[-5:]
    return tuple(f"{stem}-{number:05d}-of-{match[2]}{ending}" for number in range(1, count + 1))


def search(
    query: str,
    endpoint: str = HUB,
    proxy: str = "",
    limit: int = 30,
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> tuple[Repository, ...]:
    """Repositories with GGUF files whose names match, the most used first. Raises HubError."""
    # Not "gguf": it includes every model's chat template, which is ten times the bytes.
    fields = ("downloads", "likes", "gated", "tags", "lastModified", "siblings")
    query_string = urllib.parse.urlencode(
        {
            "search": query,
            "filter": "gguf",
            "sort": "downloads",
            "direction": "-1",
            "limit": limit,
            "expand[]": fields,
        },
        doseq=True,
    )
    found, _ = _get(f"{_checked(endpoint)}/api/models?{query_string}", proxy, timeout_seconds)
    if not isinstance(found, list):
        raise _unreadable(endpoint)
    rows = (_repository(row) for row in cast("list[object]", found)[:limit])
    return tuple(row for row in rows if row is not None)


def files(
    repository: str,
    endpoint: str = HUB,
    proxy: str = "",
    revision: str = "main",
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> tuple[HubFile, ...]:
    """The GGUF files of a repository, the smallest model first. Raises HubError."""
    if not REPOSITORY.fullmatch(repository):
        raise HubError(
            tr("“{repository}” is not the name of a repository.", repository=repository[:80]),
            tr("Check the name."),
        )
    base = _checked(endpoint)
    address = (
        f"{base}/api/models/{repository}/tree/{urllib.parse.quote(revision, safe='')}?recursive=1"
    )
    listed: list[Piece] = []
    for _ in range(_MAX_PAGES):
        found, following = _get(address, proxy, timeout_seconds)
        if not isinstance(found, list):
            raise _unreadable(endpoint)
        pieces = (_piece(row) for row in cast("list[object]", found))
        listed += [piece for piece in pieces if piece is not None]
        # The next page has to be on the hub itself: another host must not learn the repository.
        if not following or urllib.parse.urlsplit(following)[:2] != urllib.parse.urlsplit(base)[:2]:
            break
        address = following
    return _grouped(repository, revision, listed)


def read_start(
    source: Source,
    length: int,
    endpoint: str = HUB,
    proxy: str = "",
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> bytes:
    """The first `length` bytes of a file, or all if it is shorter. Raises HubError."""
    try:
        response = send_request(
            file_address(source, endpoint=_checked(endpoint)),
            headers={"Range": f"bytes=0-{length - 1}"},
            proxy=proxy,
            stall_seconds=timeout_seconds,
            purpose=Purpose.SEARCH,
        )
        try:
            if response.status not in (200, 206):
                raise _refused(response)
            start = bytearray()
            for piece in response.pieces():  # a server may send the whole file
                start += piece
                if len(start) >= length:
                    break
        finally:
            response.close()
    except WebError as error:
        raise HubError(str(error), error.remedy) from error
    return bytes(start[:length])


def kind_of(file: str) -> str:
    """A first guess at what a file is, from its name.

    "model", or what is none: "projector" (for images), "imatrix", "vocabulary" or "adapter".
    """
    name = file.rpartition("/")[2].lower()
    if "mmproj" in name:
        return "projector"
    if "imatrix" in name:
        return "imatrix"
    if re.search(r"(^|[-_.])vocab([-_.]|$)", name):
        return "vocabulary"
    # A model that such an adapter was merged into is often named after it, and then quantized.
    adapter = re.search(r"(^|[-_.])(q?lora|adapter)([-_.]|$)", name)
    merged = re.search(r"merged|[-_.]i?q[2-6]_", name)
    return "adapter" if adapter and not merged else "model"


def _checked(endpoint: str) -> str:
    try:
        check_address(endpoint)
    except WebError as error:
        raise HubError(str(error), error.remedy) from error
    return endpoint.rstrip("/")


def _get(address: str, proxy: str, timeout_seconds: float) -> tuple[object, str]:
    """The JSON at an address, and the address of the next page, if any."""
    try:
        response = send_request(
            address,
            headers={"Accept": "application/json"},
            proxy=proxy,
            stall_seconds=timeout_seconds,
            purpose=Purpose.SEARCH,
        )
        try:
            if response.status != 200:
                raise _refused(response)
            body, following = response.read_all(_MAX_RESPONSE), _next_page(response)
        finally:
            response.close()
    except WebError as error:
        raise HubError(str(error), error.remedy) from error
    try:
        return json.loads(body), following
    except (ValueError, RecursionError) as error:
        raise _unreadable(address) from error


def _refused(response: Response) -> WebError:
    if response.status in (401, 403) and response.header("X-Error-Code") != "RepoNotFound":
        return WebError(
            tr("This repository is private, or requires you to sign in and accept its licence."),
            tr("Open its page in your browser, or choose another repository."),
        )
    if response.status in (401, 404):
        return WebError(
            tr("There is no such repository on {host}.", host=response.host), tr("Check its name.")
        )
    return status_error(response)


def _next_page(response: Response) -> str:
    match = re.search(r'<([^<>\s]{1,2000})>\s*;\s*rel="next"', response.header("Link"))
    return match[1] if match else ""


def _unreadable(address: str) -> HubError:
    host = urllib.parse.urlsplit(address).hostname
    return HubError(
        tr("{host} did not answer like a model server.", host=host),
        tr("Check the model server in the settings. Your network may also require a login first."),
    )


def _repository(row: object) -> Repository | None:
    """One row of a search; None when it is not a repository."""
    if not isinstance(row, dict):
        return None
    values = cast("dict[str, object]", row)
    name = _text(values.get("id")) or _text(values.get("modelId"))
    if not REPOSITORY.fullmatch(name):
        return None
    tags = [tag for tag in _list(values.get("tags")) if isinstance(tag, str)]
    licences = [tag.removeprefix("license:") for tag in tags if tag.startswith("license:")]
    siblings = (
        _text(cast("dict[str, object]", one).get("rfilename"))
        for one in _list(values.get("siblings"))
        if isinstance(one, dict)
    )
    models = {_PART.sub("", one) for one in siblings if one.lower().endswith(".gguf")}
    return Repository(
        name,
        _count(values.get("downloads")),
        _count(values.get("likes")),
        values.get("gated") not in (False, None),
        licences[0][:60] if licences else "",
        len(models),
        _text(values.get("lastModified"))[:10],
    )


def _piece(row: object) -> Piece | None:
    """One row of a listing; None for folders and other files."""
    if not isinstance(row, dict):
        return None
    values = cast("dict[str, object]", row)
    path, lfs = _text(values.get("path")), values.get("lfs")
    segments = path.split("/")
    if values.get("type") != "file" or not path.lower().endswith(".gguf") or ".." in segments:
        return None
    large = cast("dict[str, object]", lfs) if isinstance(lfs, dict) else {}
    hashed = _text(large.get("oid")).removeprefix("sha256:").lower()
    return Piece(
        path,
        _count(large.get("size")) or _count(values.get("size")),
        hashed if _SHA256.fullmatch(hashed) else "",
    )


def _grouped(repository: str, revision: str, listed: list[Piece]) -> tuple[HubFile, ...]:
    """Files, with the pieces of each split model grouped; models first, by size."""
    by_name = {piece.file: piece for piece in listed}
    grouped: list[HubFile] = []
    for piece in listed:
        match = _PART.search(piece.file)
        if match is None:
            grouped.append(_hub_file(repository, revision, (piece,), complete=True))
        elif int(match[1]) == 1:
            try:
                names = piece_names(piece.file)
            except HubError:
                continue
            found = tuple(by_name[name] for name in names if name in by_name)
            grouped.append(_hub_file(repository, revision, found, len(found) == len(names)))
    return tuple(sorted(grouped, key=lambda one: (one.kind != "model", one.size_bytes, one.file)))


def _hub_file(repository: str, revision: str, pieces: tuple[Piece, ...], complete: bool) -> HubFile:
    sizes = [piece.size_bytes for piece in pieces]
    single = len(pieces) == 1
    return HubFile(
        repository,
        revision,
        pieces[0].file,
        sum(sizes) if all(sizes) else 0,
        pieces[0].sha256 if single else "",
        kind_of(pieces[0].file) if complete else "incomplete",
        () if single else pieces,
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if type(value) is int and value >= 0 else 0


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
