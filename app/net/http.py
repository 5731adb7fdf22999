"""HTTPS requests over httpx: safe redirects, size limits, a proxy, cancellation from any thread.

Redirects are followed here one by one, because every address is checked before it is asked, and
the hub names a file's size and hash on its first answer while its store sends the bytes on the
last. Certificates are checked against the system's own list. Nothing that names the user is sent
on to another host. httpx is imported with the first request: the window opens without it.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import ipaddress
import logging
import os
import re
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from app import __version__

if TYPE_CHECKING:
    import httpx

MAX_REDIRECTS = 10
CONNECT_SECONDS = 10.0
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NETWORK = "Check the connection to the network, then try again."
# Where systems keep their certificates: a bundled OpenSSL looks only where it was built.
_CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
_HEADERS = {
    "User-Agent": f"Tokonoma/{__version__}",
    "Accept-Encoding": "identity",
    "Connection": "close",
}
# It logs every address, and that of a store carries a key.
logging.getLogger("httpx").setLevel(logging.WARNING)


class WebError(Exception):
    """A request failed: `str(error)` says why, `remedy` what to do, `retry` whether time may help."""

    def __init__(
        self, what: str, remedy: str = "", *, retry: bool = False, wait_seconds: float = 0.0
    ) -> None:
        super().__init__(what)
        self.remedy = remedy
        self.retry = retry
        self.wait_seconds = wait_seconds  # what the server asked for; 0: nothing


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy that is asked to pass a connection on."""

    host: str
    port: int
    authorization: str = ""  # the header's value; goes to the proxy alone

    @property
    def url(self) -> str:
        """Its address; a connection to it is never encrypted, what passes through it is."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """What it is sent besides the name of the host."""
        return {"Proxy-Authorization": self.authorization} if self.authorization else {}


@dataclass(frozen=True, slots=True)
class Linked:
    """What the hub says of a file before it sends the request on to its store."""

    sha256: str = ""
    etag: str = ""
    size_bytes: int = 0


class Cancellation(threading.Event):
    """An event that ends the request it was given to, from whatever thread it is set.

    A connection that is still being made ends by itself, after `CONNECT_SECONDS` at most.
    """

    def __init__(self) -> None:
        super().__init__()
        self._guard = threading.Lock()
        self._connection: socket.socket | None = None

    def set(self) -> None:
        """Cancel: whoever waits for the peer wakes up with an error."""
        super().set()
        with self._guard:
            if self._connection is not None:
                with contextlib.suppress(OSError):  # the peer has ended it already
                    self._connection.shutdown(socket.SHUT_RDWR)

    def trace(self, event: str, facts: Mapping[str, Any]) -> None:
        """Take note of a new connection; httpcore calls this at every step of a request."""
        if event == "connection.connect_tcp.complete":
            connection = cast("socket.socket", facts["return_value"].get_extra_info("socket"))
            self.release()
            with self._guard:
                # A second handle: TLS takes the first one over, and the client closes it.
                self._connection = connection.dup()
            if self.is_set():
                self.set()

    def release(self) -> None:
        """Forget the connection: it has been closed."""
        with self._guard:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


class Answer:
    """An open response; whoever asked for it closes it."""

    def __init__(
        self,
        client: httpx.Client,
        response: httpx.Response,
        cancellation: Cancellation,
        linked: Linked,
        redirected: bool,
    ) -> None:
        self.linked = linked
        self.redirected = redirected
        self.status = response.status_code
        self.host = response.url.host
        self._client = client
        self._response = response
        self._cancellation = cancellation

    @property
    def length(self) -> int | None:
        """Bytes the body is to have; None when the server does not say."""
        return _number(self.header("Content-Length"))

    def header(self, name: str) -> str:
        """A header's value, "" when it is missing."""
        return self._response.headers.get(name, "")

    def pieces(self) -> Iterator[bytes]:
        """The body as it arrives, never decompressed; raises WebError, also when it is cut off."""
        with _errors_in_words(self.host):
            yield from self._response.iter_raw()

    def read_all(self, limit: int) -> bytes:
        """The whole body; raises WebError when it is longer than `limit` bytes."""
        body = bytearray()
        for piece in self.pieces():
            body += piece
            if len(body) > limit:
                raise WebError(f"{self.host} answered with more than can be taken in.")
        return bytes(body)

    def close(self) -> None:
        """Close the connection."""
        self._response.close()
        self._client.close()
        self._cancellation.release()


def ask(
    url: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    proxy: str = "",
    stall_seconds: float = 30.0,
    cancellation: Cancellation | None = None,
) -> Answer:
    """Send one request and follow its redirects, ten at most; the body is left to be read.

    `stall_seconds` is how long the server may stay silent. Raises WebError, also when cancelled.
    """
    import httpx

    cancellation = cancellation or Cancellation()
    with _errors_in_words(check_address(url).hostname or ""):
        request = httpx.Request(
            method,
            url,
            headers={**_HEADERS, **(headers or {})},
            extensions={
                "timeout": httpx.Timeout(stall_seconds, connect=CONNECT_SECONDS).as_dict(),
                "trace": cancellation.trace,
            },
        )
    linked = Linked()
    for redirects in range(MAX_REDIRECTS + 1):
        client, response = _send(request, proxy, cancellation)
        answer = Answer(client, response, cancellation, linked, redirects > 0)
        linked = answer.linked = _linked(answer, linked)
        following = response.next_request
        if following is None:
            return answer
        answer.close()
        _check_redirect(request, following)
        request = following
    raise WebError(
        f"{request.url.host} redirects in a loop.",
        "Try again later, or choose another server in the settings.",
    )


def check_address(url: str) -> urllib.parse.SplitResult:
    """The parts of an address that may be asked; raises WebError for any other.

    Only https, and http on this machine itself; no names or passwords in it.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        host, _ = (parts.hostname or "").encode("idna").decode("ascii"), parts.port
    except (ValueError, UnicodeError) as error:
        raise WebError("This is not an address.", "Copy the link again.") from error
    if not host or any(letter <= " " or letter == "\x7f" for letter in url):
        raise WebError("This is not an address.", "Copy the link again.")
    if parts.username is not None or parts.password is not None:
        raise WebError(
            "The address holds a name or a password, which would be stored with the download.",
            "Use an address without them.",
        )
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise WebError(
            f"The address begins with {parts.scheme or 'nothing'}:, which is not safe.",
            "Only addresses that begin with https:// can be used.",
        )
    return parts


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_proxy(text: str) -> Proxy:
    """The proxy a setting such as "http://user:password@host:3128" names; raises WebError."""
    remedy = "Write it as http://host:port in the settings."
    try:
        parts = urllib.parse.urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise WebError("The address of the proxy cannot be read.", remedy) from error
    if not host or parts.scheme not in ("http", "https"):
        raise WebError("The address of the proxy is not one of an HTTP proxy.", remedy)
    if parts.username is None:
        return Proxy(host, port or 8080)
    if parts.scheme == "https":
        raise WebError(
            "The proxy's password would be sent in the clear, though its address says https.",
            "Write http:// in front of it if that is meant.",
        )
    secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return Proxy(host, port or 8080, f"Basic {base64.b64encode(secret).decode('ascii')}")


def proxy_for(host: str, setting: str) -> Proxy | None:
    """The proxy for a host: the setting, else the system's own; never one for this machine."""
    if is_loopback(host):
        return None
    if setting:
        return parse_proxy(setting)
    import urllib.request  # httpx needs it as well

    found = urllib.request.getproxies()
    address = found.get("https") or found.get("all") or ""
    if not address or urllib.request.proxy_bypass(host):
        return None
    return parse_proxy(address)


def sha256_of_etag(etag: str) -> str:
    """The hash an ETag is, as the hub gives it for large files; "" when it is something else."""
    bare = etag.removeprefix("W/").strip('"').lower()
    return bare if _SHA256.fullmatch(bare) else ""


def fault(error: BaseException, host: str) -> WebError:
    """What went wrong on the wire, in a sentence."""
    match _cause(error):
        case socket.gaierror():
            return WebError(f"The server {host} was not found.", _NETWORK, retry=True)
        case ssl.SSLCertVerificationError() as refused:
            return WebError(
                f"{host} could not prove who it is: {refused.verify_message}.",
                "Check this machine's clock, and whether a proxy or a filter reads along.",
            )
        case TimeoutError():
            return WebError(f"{host} does not answer.", _NETWORK, retry=True)
        case ConnectionResetError() | BrokenPipeError():
            return WebError(f"{host} broke the connection off.", _NETWORK, retry=True)
        case OSError() as failed:
            reason = failed.strerror or type(failed).__name__
            return WebError(f"The connection to {host} failed: {reason}.", _NETWORK, retry=True)
        case other if "disconnected" in str(other):
            return WebError(f"{host} broke the connection off.", _NETWORK, retry=True)
        case other if "closed connection" in str(other):
            return WebError(f"{host} broke off before the end of its answer.", _NETWORK, retry=True)
        case _:
            return WebError(f"{host} gave an answer that cannot be read.", _NETWORK, retry=True)


def _cause(error: BaseException) -> BaseException:
    """The system's own error that an error of the library came from; else the error itself."""
    below: object = error
    while isinstance(below, BaseException) and not isinstance(below, OSError):
        # httpcore's pool clears the cause; the first argument is the same.
        below = below.__cause__ or next(iter(below.args), None)
    return below if isinstance(below, OSError) else error


@contextlib.contextmanager
def _errors_in_words(host: str) -> Generator[None]:
    """Raise WebError for whatever goes wrong on the wire."""
    import httpx

    try:
        yield
    except httpx.ProxyError as error:
        reason = str(error).strip()
        raise WebError(
            f"The proxy refused the connection: {reason[:100]}.",
            "Check the proxy in the settings.",
            retry=not reason.startswith("407"),
        ) from error
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise fault(error, host) from error


def refusal(answer: Answer) -> WebError:
    """What a status other than success means, in a sentence."""
    host, status, code = answer.host, answer.status, answer.header("X-Error-Code")
    if status in (401, 403) and answer.redirected:  # a store's link that has run out
        return WebError(f"{host} refused to send the file ({status}).", retry=True)
    if status in (401, 403) and code != "RepoNotFound":
        return WebError(
            f"{host} gives this file only to people who have accepted its licence.",
            "Accept the licence on the model's page and fetch the file there, "
            "or choose another model.",
        )
    if status in (401, 404, 410):
        return WebError(
            f"There is no such file on {host}.", "Check the link, or choose another file."
        )
    wait = _retry_after(answer)
    if status == 429:
        return WebError(
            f"{host} asks for fewer requests.", "Wait a while.", retry=True, wait_seconds=wait
        )
    if status == 408 or status >= 500:
        return WebError(
            f"{host} has a fault of its own ({status}).",
            "Try again later.",
            retry=True,
            wait_seconds=wait,
        )
    return WebError(f"{host} refused the request ({status}).", "Check the link.")


def _retry_after(answer: Answer) -> float:
    text = answer.header("Retry-After")
    return float(_number(text) or 0) if len(text) < 9 else 0.0


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _send(
    request: httpx.Request, proxy: str, cancellation: Cancellation
) -> tuple[httpx.Client, httpx.Response]:
    """Send one request; a redirect is not followed. Raises WebError."""
    import httpx

    check_address(str(request.url))
    between = proxy_for(request.url.host, proxy)
    client = httpx.Client(
        verify=_context(os.environ.get("SSL_CERT_FILE", "")),
        proxy=between and httpx.Proxy(between.url, headers=between.headers),
        trust_env=False,
    )
    try:
        with _errors_in_words(request.url.host):
            return client, client.send(request, stream=True)
    except BaseException:
        client.close()
        cancellation.release()
        raise


@functools.cache
def _context(certificates: str) -> ssl.SSLContext:
    """TLS that checks certificates, with the system's list of who to trust or the file named."""
    context = ssl.create_default_context()
    if not certificates and not context.cert_store_stats()["x509_ca"]:
        for place in _CERTIFICATES:
            if Path(place).is_file():
                context.load_verify_locations(place)
                break
    return context


def _check_redirect(request: httpx.Request, following: httpx.Request) -> None:
    """Raise WebError when a redirect may not be followed."""
    if request.url.scheme == "https" and following.url.scheme != "https":
        raise WebError(f"{request.url.host} redirects to an address that is not safe.")
    following.headers.pop("Cookie", None)


def _linked(answer: Answer, known: Linked) -> Linked:
    """What this answer's headers add to what is known of the file."""
    etag, size = answer.header("X-Linked-Etag"), answer.header("X-Linked-Size")
    return Linked(
        known.sha256 or sha256_of_etag(etag),
        known.etag or etag,
        known.size_bytes or _number(size) or 0,
    )
