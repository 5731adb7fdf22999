"""HTTPS client over httpx: checked redirects, size limits, proxy, cancellation from any thread.

Redirects are followed here one by one: every address is checked before it is requested, and the
hub sends a file's size and hash with its first response while its storage server sends the bytes
with the last. Certificates are checked against the system's list. Headers that identify the user
are not sent to another host. httpx is imported by the first request, not at startup.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import logging
import math
import os
import re
import socket
import ssl
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from app import __version__
from app.net.ledger import Purpose
from app.net.offline import Offline, Passage, gate, is_loopback
from app.system.translation import number, tr

if TYPE_CHECKING:
    import httpx

MAX_REDIRECTS = 10
CONNECT_SECONDS = 10.0
_POLL_SECONDS = 0.05  # between two looks at the cancellation while a read waits
_SHA256 = re.compile(r"[0-9a-f]{64}")
# CA bundles of common systems: a bundled OpenSSL only knows the path of its build machine.
_CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
USER_AGENT = f"Tokonoma/{__version__}"
_HEADERS = {
    "User-Agent": USER_AGENT,
    "Accept-Encoding": "identity",
    "Connection": "close",
}
# httpx logs every address, and those of storage servers contain a signature.
logging.getLogger("httpx").setLevel(logging.WARNING)


class WebError(Exception):
    """A request failed: `str(error)` is the reason, `remedy` the advice, `retry` if temporary."""

    def __init__(
        self, what: str, remedy: str = "", *, retry: bool = False, wait_seconds: float = 0.0
    ) -> None:
        super().__init__(what)
        self.remedy = remedy
        self.retry = retry
        self.wait_seconds = wait_seconds  # from Retry-After; 0: none


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy that tunnels connections (CONNECT)."""

    host: str
    port: int
    authorization: str = ""  # value of the Proxy-Authorization header

    @property
    def url(self) -> str:
        """Its address; the connection to the proxy is not encrypted, the tunnel through it is."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the CONNECT request."""
        return {"Proxy-Authorization": self.authorization} if self.authorization else {}


@dataclass(frozen=True, slots=True)
class Linked:
    """Facts of a file from the hub's headers, sent before it redirects to its storage server."""

    sha256: str = ""
    etag: str = ""
    size_bytes: int = 0


class Cancellation(threading.Event):
    """An event that aborts its request when it is set, from any thread, some 0.1 s later at most.

    It cannot abort a connection attempt, which times out after `CONNECT_SECONDS`; on Windows, where
    a socket that is shut down waits on, the TLS handshake is part of that.
    """

    def __init__(self, *, polls: bool = sys.platform == "win32") -> None:
        """`polls`: the system does not end a read of a socket that is shut down."""
        super().__init__()
        self._polls = polls
        self._guard = threading.Lock()
        self._connection: socket.socket | None = None
        self._is_cut = False

    def set(self) -> None:
        """Cancel: shut the socket down, so that a blocked read raises an error."""
        super().set()
        self.cut()

    def cut(self) -> None:
        """Shut the socket down without a cancellation, as the offline switch does."""
        with self._guard:
            self._is_cut = True
            if self._connection is not None:
                with contextlib.suppress(OSError):  # the peer has closed it already
                    self._connection.shutdown(socket.SHUT_RDWR)

    def trace(self, event: str, facts: Mapping[str, Any]) -> None:
        """Store the socket of a new connection; httpcore calls this at every step of a request."""
        if event == "connection.connect_tcp.complete":
            connection = cast("socket.socket", facts["return_value"].get_extra_info("socket"))
            self.release()
            with self._guard:
                # Duplicate the handle: the TLS layer takes over the first one, and httpx closes it.
                self._connection = connection.dup()
            if self._is_cut:
                self.cut()
        if event.endswith(("connect_tcp.complete", "start_tls.complete")) and self._polls:
            stream = facts["return_value"]
            stream.read = self._polled(stream.read)

    def _polled(self, read: Callable[..., bytes]) -> Callable[..., bytes]:
        """A read that ends soon after the cancellation, for systems where a shut socket waits on."""
        import httpcore

        def attempt(most_bytes: int, timeout: float | None = None) -> bytes:
            end = math.inf if timeout is None else time.monotonic() + timeout
            while True:
                left = max(end - time.monotonic(), 0.0)
                try:
                    # Not 0: that would not wait at all, and be another error.
                    return read(most_bytes, min(max(left, 0.001), _POLL_SECONDS))
                except httpcore.ReadTimeout:
                    if self._is_cut:
                        raise httpcore.ReadError("cancelled") from None
                    if left <= _POLL_SECONDS:
                        raise

        return attempt

    def release(self) -> None:
        """Close the duplicated socket, after the connection was closed."""
        with self._guard:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


class Response:
    """An open response; the caller closes it."""

    def __init__(
        self,
        client: httpx.Client,
        response: httpx.Response,
        cancellation: Cancellation,
        passage: Passage,
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
        self._passage = passage

    @property
    def length(self) -> int | None:
        """Content-Length of the body; None when the header is missing."""
        return _number(self.header("Content-Length"))

    def header(self, name: str) -> str:
        """Value of a header, "" when it is missing."""
        return self._response.headers.get(name, "")

    def pieces(self) -> Iterator[bytes]:
        """The raw body in chunks, not decompressed; raises WebError, also when it is truncated."""
        with _translate_errors(self.host, self._passage):
            for piece in self._response.iter_raw():
                self._passage.count(received=len(piece))
                yield piece

    def read_all(self, limit: int) -> bytes:
        """The whole body; raises WebError when it is longer than `limit` bytes."""
        body = bytearray()
        for piece in self.pieces():
            body += piece
            if len(body) > limit:
                raise WebError(
                    tr(
                        "{host} sent a response of more than {limit} bytes.",
                        host=self.host,
                        limit=number(limit),
                    )
                )
        return bytes(body)

    def close(self) -> None:
        """Close the connection."""
        self._response.close()
        self._client.close()
        self._cancellation.release()
        self._passage.close()


def send_request(
    url: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    proxy: str = "",
    stall_seconds: float = 30.0,
    cancellation: Cancellation | None = None,
    purpose: Purpose = Purpose.DOWNLOAD,
    same_host: bool = False,
) -> Response:
    """Send a request and follow up to `MAX_REDIRECTS` redirects; the body is not read yet.

    With `same_host`, a redirect to another host or port is not followed.
    `stall_seconds` is the read timeout. Raises WebError, also when cancelled or offline.
    """
    import httpx

    cancellation = cancellation or Cancellation()
    with _translate_errors(check_address(url).hostname or ""):
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
        client, response, passage = _send(request, proxy, cancellation, purpose)
        result = Response(client, response, cancellation, passage, linked, redirects > 0)
        linked = result.linked = _linked(result, linked)
        redirect = response.next_request
        if redirect is None:
            return result
        result.close()
        _check_redirect(request, redirect, same_host)
        request = redirect
    raise WebError(
        tr("{host} redirects in a loop.", host=request.url.host),
        tr("Try again later, or choose another model server in the settings."),
    )


def check_address(url: str) -> urllib.parse.SplitResult:
    """Split an address and check that it may be requested; raises WebError.

    It has to be https, or http on this machine, without a user name or password.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        host, _ = (parts.hostname or "").encode("idna").decode("ascii"), parts.port
    except (ValueError, UnicodeError) as error:
        raise WebError(tr("This is not a web address."), tr("Copy the link again.")) from error
    if not host or any(letter <= " " or letter == "\x7f" for letter in url):
        raise WebError(tr("This is not a web address."), tr("Copy the link again."))
    if parts.username is not None or parts.password is not None:
        raise WebError(
            tr(
                "The address contains a user name or password, which would be stored with "
                "the download."
            ),
            tr("Use the address without it."),
        )
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise WebError(
            tr("The address is not secure."),
            tr("Use an address that begins with https://."),
        )
    return parts


def parse_proxy(text: str) -> Proxy:
    """Parse a proxy setting such as "http://user:password@host:3128"; raises WebError."""
    remedy = tr("Write it as http://host:port.")
    try:
        parts = urllib.parse.urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise WebError(tr("The proxy address is not valid."), remedy) from error
    if not host or parts.scheme not in ("http", "https"):
        raise WebError(tr("The proxy is not an HTTP proxy."), remedy)
    if parts.username is None:
        return Proxy(host, port or 8080)
    if parts.scheme == "https":
        raise WebError(
            tr("The proxy password would be sent unencrypted, although its address says https."),
            tr("Begin the address with http:// if that is intended."),
        )
    secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return Proxy(host, port or 8080, f"Basic {base64.b64encode(secret).decode('ascii')}")


def proxy_for(host: str, setting: str) -> Proxy | None:
    """The proxy for a host: the setting, else the system's; None for this machine."""
    if is_loopback(host):
        return None
    if setting:
        return parse_proxy(setting)
    import urllib.request  # imported late, as httpx is, which needs it too

    found = urllib.request.getproxies()
    address = found.get("https") or found.get("all") or ""
    if not address or urllib.request.proxy_bypass(host):
        return None
    return parse_proxy(address)


def sha256_of_etag(etag: str) -> str:
    """The SHA-256 in an ETag, which the hub uses for large files; "" for any other ETag."""
    value = etag.removeprefix("W/").strip('"').lower()
    return value if _SHA256.fullmatch(value) else ""


def network_error(error: BaseException, host: str) -> WebError:
    """The WebError for an exception of httpx or the socket."""
    check = tr("Check your internet connection, then try again.")
    match cause(error):
        case Offline() as refused:
            return WebError(str(refused), refused.remedy)
        case socket.gaierror():
            return WebError(tr("The server {host} was not found.", host=host), check, retry=True)
        case ssl.SSLCertVerificationError() as refused:
            return WebError(
                tr(
                    "The certificate of {host} could not be verified: {reason}.",
                    host=host,
                    reason=refused.verify_message,
                ),
                tr(
                    "Check the clock of this computer, and whether a proxy or filter intercepts "
                    "the connection."
                ),
            )
        case TimeoutError():
            return WebError(tr("{host} does not answer.", host=host), check, retry=True)
        case ConnectionResetError() | BrokenPipeError():
            return WebError(tr("{host} closed the connection.", host=host), check, retry=True)
        case OSError() as failed:
            reason = failed.strerror or type(failed).__name__
            return WebError(
                tr("The connection to {host} failed: {reason}.", host=host, reason=reason),
                check,
                retry=True,
            )
        case other if "disconnected" in str(other):
            return WebError(tr("{host} closed the connection.", host=host), check, retry=True)
        case other if "closed connection" in str(other):
            return WebError(
                tr("{host} closed the connection before the end.", host=host), check, retry=True
            )
        case _:
            return WebError(tr("{host} sent an invalid response.", host=host), check, retry=True)


def cause(error: BaseException) -> BaseException:
    """The OSError that caused an error of httpx; else the error itself."""
    below: object = error
    while isinstance(below, BaseException) and not isinstance(below, OSError):
        # httpcore's pool clears `__cause__`; its first argument is the same exception.
        below = below.__cause__ or next(iter(below.args), None)
    return below if isinstance(below, OSError) else error


@contextlib.contextmanager
def _translate_errors(host: str, passage: Passage | None = None) -> Generator[None]:
    """Convert exceptions of httpx and the socket to WebError."""
    import httpx

    try:
        yield
        if passage is not None:
            passage.check()
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        if passage is not None and passage.is_cut:
            raise network_error(Offline(), host) from error
        if not isinstance(error, httpx.ProxyError):
            raise network_error(error, host) from error
        reason = str(error).strip()
        raise WebError(
            tr("The proxy refused the connection: {reason}.", reason=reason[:100]),
            tr("Check the proxy in the settings."),
            retry=not reason.startswith("407"),
        ) from error


def status_error(response: Response) -> WebError:
    """The WebError for a status other than success."""
    host, status, code = response.host, response.status, response.header("X-Error-Code")
    if status in (401, 403) and response.redirected:  # an expired link to a storage server
        return WebError(
            tr("{host} refused to send the file ({status}).", host=host, status=status), retry=True
        )
    if status in (401, 403) and code != "RepoNotFound":
        return WebError(
            tr("{host} requires you to sign in and accept the licence for this file.", host=host),
            tr("Download the file on the model's page in your browser, or choose another model."),
        )
    if status in (401, 404, 410):
        return WebError(
            tr("There is no such file on {host}.", host=host),
            tr("Check the link, or choose another file."),
        )
    wait = _retry_after(response)
    if status == 429:
        return WebError(
            tr("{host} limits the number of requests (429).", host=host),
            tr("Wait a few minutes, then try again."),
            retry=True,
            wait_seconds=wait,
        )
    if status == 408 or status >= 500:
        return WebError(
            tr("{host} reports a server error ({status}).", host=host, status=status),
            tr("Try again later."),
            retry=True,
            wait_seconds=wait,
        )
    return WebError(
        tr("{host} refused the request ({status}).", host=host, status=status),
        tr("Check the link."),
    )


def _retry_after(response: Response) -> float:
    text = response.header("Retry-After")
    return float(_number(text) or 0) if len(text) < 9 else 0.0


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _send(
    request: httpx.Request, proxy: str, cancellation: Cancellation, purpose: Purpose
) -> tuple[httpx.Client, httpx.Response, Passage]:
    """Send one request; a redirect is not followed. Raises WebError."""
    import httpx

    check_address(str(request.url))
    host = request.url.host
    route = proxy_for(host, proxy)
    with _translate_errors(host):
        passage = gate.allow(str(request.url), purpose, cancellation.cut)
    if route is not None:
        gate.ledger.record((route.host, route.port, Purpose.PROXY), count=1)
    client = httpx.Client(
        verify=tls_context(os.environ.get("SSL_CERT_FILE", "")),
        proxy=route and httpx.Proxy(route.url, headers=route.headers),
        trust_env=False,
    )
    try:
        with _translate_errors(host, passage):
            return client, client.send(request, stream=True), passage
    except BaseException:
        client.close()
        cancellation.release()
        passage.close()
        raise


@functools.cache
def tls_context(certificates: str) -> ssl.SSLContext:
    """TLS context that verifies certificates against the system's CA list or the given file."""
    context = ssl.create_default_context()
    if not certificates and not context.cert_store_stats()["x509_ca"]:
        for place in _CERTIFICATES:
            if Path(place).is_file():
                context.load_verify_locations(place)
                break
    return context


def _check_redirect(request: httpx.Request, redirect: httpx.Request, same_host: bool) -> None:
    """Raise WebError when a redirect may not be followed."""
    if same_host and (request.url.host, request.url.port) != (redirect.url.host, redirect.url.port):
        raise WebError(
            tr("{host} redirects to another server, {other}, which was not asked.",
               host=request.url.host, other=redirect.url.host)
        )  # fmt: skip
    if request.url.scheme == "https" and redirect.url.scheme != "https":
        raise WebError(
            tr("{host} redirects to an address that is not secure.", host=request.url.host)
        )
    redirect.headers.pop("Cookie", None)


def _linked(response: Response, known: Linked) -> Linked:
    """Merge the file facts in this response's headers into the known ones."""
    etag, size = response.header("X-Linked-Etag"), response.header("X-Linked-Size")
    return Linked(
        known.sha256 or sha256_of_etag(etag),
        known.etag or etag,
        known.size_bytes or _number(size) or 0,
    )
