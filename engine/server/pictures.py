"""Pictures of requests: from data URIs, base64 and the files of one folder, within limits.

Clients write base64 with line breaks, with the alphabet of URLs and without padding; all that is
taken. No address in the network is ever fetched.
"""

from __future__ import annotations

import binascii
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit
from urllib.request import url2pathname

from engine.messages import Detail, ImagePart
from engine.server.fields import Fields
from engine.server.limits import Limits

KINDS = ("image", "image_url", "input_image")  # types of parts that are pictures
# Fields of a part that have its picture, as OpenAI, Anthropic, and the libraries of others name it.
_PLACES = ("image_url", "source", "image", "url", "data", "base64")
_URLS = ("image_url", "url")  # of these, those that base64 alone is no value of
_DETAILS = {
    "auto": Detail.STANDARD,
    "low": Detail.LOW,
    "high": Detail.HIGH,
    "original": Detail.HIGH,
}
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]{0,30}):", re.IGNORECASE)
_BREAKS = b"\t\r\n\f\v"
_FOR_URLS = bytes.maketrans(b"-_", b"+/")  # base64's alphabet for URLs as the usual one
_FLAGS = sum(getattr(os, f"O_{name}", 0) for name in ("NOFOLLOW", "NONBLOCK", "CLOEXEC", "BINARY"))


@dataclass(frozen=True, slots=True)
class PictureAccess:
    """What pictures a request may have."""

    limits: Limits = Limits()  # noqa: RUF009  frozen
    folder: Path | None = None  # whose files clients may name; None: no files
    hold: Callable[[int], None] = lambda size: None  # counts bytes read; raises ApiError


class Pictures:
    """The pictures of one request, read one after the other; used on the server's event loop."""

    def __init__(self, access: PictureAccess | None = None) -> None:
        self._access = access or PictureAccess()
        self._count = 0
        self._file_bytes = 0

    def of_part(self, part: Fields) -> ImagePart:
        """The picture of a part of a message; raises ApiError that names the field at fault."""
        name = next((name for name in _PLACES if part.get(name) is not None), "")
        if not name:
            missing = "file_id" if "file_id" in part else "type"
            part.fail(missing, "names a picture that is not here; send it as a data URI.")
        inner = part.object(name) if isinstance(part.get(name), dict) else None
        held = part if inner is None else inner
        if inner is not None:
            usual = "url" if name in _URLS else "data"
            name = next((name for name in ("url", "data") if name in inner), usual)
        detail = held.choice("detail", tuple(_DETAILS), part.choice("detail", tuple(_DETAILS), ""))
        return self.of_text(held, name, held.required_text(name), _DETAILS[detail or "auto"])

    def of_list(self, body: Fields, name: str = "images") -> list[ImagePart]:
        """The pictures of a list of base64 texts; raises ApiError as `of_part`."""
        return [
            self.of_text(body, f"{name}[{at}]", text) for at, text in enumerate(body.texts(name))
        ]

    def of_text(
        self, fields: Fields, name: str, text: str, detail: Detail = Detail.STANDARD
    ) -> ImagePart:
        """The picture that a field has or names; raises ApiError as `of_part`."""
        limits = self._access.limits
        self._count += 1
        if self._count > limits.pictures:
            fields.fail(name, f"is one too many; a request may have {limits.pictures} pictures.")
        text = text.strip()
        scheme = (found[1] if (found := _SCHEME.match(text)) else "").lower()
        if scheme in ("http", "https"):
            problem = "is an address in the network, which is never fetched; send a data URI."
            fields.fail(name, problem)
        is_url = name in _URLS
        if scheme == "data":
            data = _data_of_uri(fields, name, text, limits.picture_bytes)
        elif scheme == "file" or (is_url and self._access.folder is not None):
            data = self._file(fields, name, text)
        elif scheme or is_url:
            what = f"has the scheme {scheme!r}" if scheme else "is no data URI"
            fields.fail(name, f"{what}; send data:image/png;base64, and the picture in base64.")
        else:
            data = _decoded(fields, name, text.encode(), limits.picture_bytes)
        return ImagePart(data, detail)

    def _file(self, fields: Fields, name: str, url: str) -> bytes:
        """The content of a file in the folder; a path without a root begins there."""
        folder, most = self._access.folder, self._access.limits.picture_bytes
        if folder is None:
            problem = "names a file, which needs a server with --image-files; send a data URI."
            fields.fail(name, problem)
        try:
            data = _read(folder, _path_of(url), most)
        except (OSError, ValueError, RuntimeError):  # RuntimeError: links in a circle
            data = None
        if data is None:  # whether there is one elsewhere is not told
            fields.fail(name, "is no file in the folder of pictures of this server.")
        self._check_size(fields, name, len(data), most)
        self._file_bytes += len(data)
        self._access.hold(self._file_bytes)
        return data

    @staticmethod
    def _check_size(fields: Fields, name: str, size: int, most: int) -> None:
        if not size:
            fields.fail(name, "is a picture without data.")
        if size > most:
            fields.fail(name, f"is too large; a picture may have {most:,} bytes.")


def data_uri(image: ImagePart) -> str:
    """A picture of a request as a data URI; what kind of file it is is in its content."""
    assert isinstance(image.source, bytes), "pictures of requests are in memory"
    text = binascii.b2a_base64(image.source, newline=False).decode()
    return f"data:application/octet-stream;base64,{text}"


def _data_of_uri(fields: Fields, name: str, uri: str, most: int) -> bytes:
    """The content of a data URI in base64, of any media type."""
    head, comma, body = uri.partition(",")
    if not comma or not head.lower().replace(" ", "").endswith(";base64"):
        fields.fail(name, "is no data URI in base64: data:image/png;base64, and then the data.")
    data = body.encode()
    return _decoded(fields, name, unquote_to_bytes(data) if b"%" in data else data, most)


def _decoded(fields: Fields, name: str, text: bytes, most: int) -> bytes:
    """Bytes of base64, checked strictly but for line breaks, the alphabet and missing padding."""
    text = text.translate(_FOR_URLS, _BREAKS)
    if len(text) // 4 * 3 > most + 3:
        Pictures._check_size(fields, name, most + 1, most)
    text += b"=" * (-len(text) % 4) if not text.endswith(b"=") else b""
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error:
        fields.fail(name, "is not valid base64.")
    Pictures._check_size(fields, name, len(data), most)
    return data


def _path_of(url: str) -> Path:
    """The path that a file URL names; one that is no URL is a path."""
    if not url.lower().startswith("file:"):
        return Path(url)
    parts = urlsplit(url)
    path = url2pathname(parts.path)
    is_host = parts.netloc.lower() in ("", "localhost")
    return Path(path) if is_host else Path(parts.netloc, *Path(path).parts[1:])


def _read(folder: Path, path: Path, most: int) -> bytes | None:
    """Up to `most` + 1 bytes of a regular file in a folder; None: it is none, or elsewhere.

    Links are followed as long as they stay in the folder. The path is looked at before the file
    system is: on Windows a path may name another computer, which would be asked.
    """
    folder = Path(os.path.abspath(folder))
    named = Path(os.path.normpath(folder / path))
    if not named.is_relative_to(folder) and not named.is_relative_to(folder.resolve()):
        return None
    real = named.resolve(strict=True)
    if not real.is_relative_to(folder.resolve()):
        return None
    number = os.open(real, os.O_RDONLY | _FLAGS)
    with open(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            return None
        return file.read(most + 1)
