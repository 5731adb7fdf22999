"""One HTTPS request with its redirects, through a proxy or not: what the hub and downloads stand on.

Python's own client, because a caller must be able to end a transfer from another thread and see
the headers of every redirect: the hub names a file's size and hash on the first, its store sends
the bytes on the last. Nothing that names a person is ever sent, so no redirect can leak it.
"""

from __future__ import annotations

import base64
import functools
import http.client
import ipaddress
import os
import re
import socket
import ssl
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

from app import __version__

MAX_REDIRECTS = 10
CONNECT_SECONDS = 10.0
_REDIRECTS = (301, 302, 303, 307, 308)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NETWORK = "Check the connection to the network, then try again."
# Where systems keep their certificates: a bundled OpenSSL looks only where it was built.
_CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


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


@dataclass(frozen=True, slots=True)
class Linked:
    """What the hub says of a file before it sends the request on to its store."""

    sha256: str = ""
    etag: str = ""
    size_bytes: int = 0


class Answer:
    """An open response; whoever asked for it closes it."""

    def __init__(
        self,
        url: str,
        connection: http.client.HTTPConnection,
        response: http.client.HTTPResponse,
        linked: Linked,
        redirected: bool,
    ) -> None:
        self.url = url  # after redirects
        self.linked = linked
        self.redirected = redirected
        self.status = response.status
        self.headers: Message = response.headers
        self._connection = connection
        self._response = response

    @property
    def host(self) -> str:
        """The server that answered."""
        return urllib.parse.urlsplit(self.url).hostname or ""

    @property
    def length(self) -> int | None:
        """Bytes the body is to have; None when the server does not say."""
        text = self.header("Content-Length")
        return int(text) if text.isascii() and text.isdigit() else None

    def header(self, name: str) -> str:
        """A header's value, "" when it is missing."""
        return str(self.headers.get(name, ""))

    def read(self, most: int) -> bytes:
        """The next bytes, at most `most`, as soon as there are any; b"" at the end. Raises WebError."""
        try:
            return self._response.read1(most)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise fault(error, self.host) from error

    def read_all(self, limit: int) -> bytes:
        """The whole body; raises WebError when it is longer than `limit` bytes."""
        body = bytearray()
        while piece := self.read(min(1 << 16, limit + 1 - len(body))):
            body += piece
            if len(body) > limit:
                raise WebError(f"{self.host} answered with more than can be taken in.")
        if self.length is not None and len(body) < self.length and self.status == 200:
            raise WebError(f"{self.host} broke off in the middle of its answer.", retry=True)
        return bytes(body)

    def close(self) -> None:
        """Give the connection up."""
        self._response.close()
        self._connection.close()


Opened = Callable[[socket.socket], None]


def ask(
    url: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    proxy: str = "",
    stall_seconds: float = 30.0,
    opened: Opened | None = None,
) -> Answer:
    """Send one request and follow its redirects, ten at most.

    `opened` gets every socket as soon as it is connected, so that another thread can end the wait
    by `end`. `stall_seconds` is how long the server may stay silent. Raises WebError.
    """
    linked, redirects = Linked(), 0
    while True:
        answer = _ask_once(url, method, headers or {}, proxy, stall_seconds, opened, redirects > 0)
        linked = _linked(answer, linked)
        answer.linked = linked
        location = answer.header("Location")
        if answer.status not in _REDIRECTS or not location:
            return answer
        answer.close()
        redirects += 1
        if redirects > MAX_REDIRECTS:
            raise WebError(
                f"{answer.host} sends the request on in a circle.",
                "Try again later, or choose another server in the settings.",
            )
        url = _next_address(url, location)


def end(connected: socket.socket) -> None:
    """Wake whoever waits for this socket; callable from any thread."""
    try:
        # The plain socket's own: that of TLS would take its state from under the reader.
        socket.socket.shutdown(connected, socket.SHUT_RDWR)
    except OSError:
        return  # it is closed already


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
    secret = f"{_unquoted(parts.username)}:{_unquoted(parts.password or '')}".encode()
    return Proxy(host, port or 8080, f"Basic {base64.b64encode(secret).decode('ascii')}")


def proxy_for(host: str, setting: str) -> Proxy | None:
    """The proxy for a host: the setting, else the system's own; never one for this machine."""
    if is_loopback(host):
        return None
    if setting:
        return parse_proxy(setting)
    found = urllib.request.getproxies()
    address = found.get("https") or found.get("all") or ""
    if not address or urllib.request.proxy_bypass(host):
        return None
    return parse_proxy(address)


def sha256_of_etag(etag: str) -> str:
    """The hash an ETag is, as the hub gives it for large files; "" when it is something else."""
    bare = etag.removeprefix("W/").strip('"').lower()
    return bare if _SHA256.fullmatch(bare) else ""


def fault(error: Exception, host: str) -> WebError:
    """What went wrong on the wire, in a sentence."""
    match error:
        case WebError():
            return error
        case socket.gaierror():
            return WebError(f"The server {host} was not found.", _NETWORK, retry=True)
        case ssl.SSLCertVerificationError():
            return WebError(
                f"{host} could not prove who it is: {error.verify_message}.",
                "Check this machine's clock, and whether a proxy or a filter reads along.",
            )
        case TimeoutError():
            return WebError(f"{host} does not answer.", _NETWORK, retry=True)
        case ConnectionResetError() | BrokenPipeError() | http.client.RemoteDisconnected():
            return WebError(f"{host} broke the connection off.", _NETWORK, retry=True)
        case OSError() if (text := str(error)).startswith("Tunnel connection failed: "):
            reason = text.removeprefix("Tunnel connection failed: ").strip()
            return WebError(
                f"The proxy refused the connection: {reason[:100]}.",
                "Check the proxy in the settings.",
                retry=not reason.startswith("407"),
            )
        case OSError():
            reason = error.strerror or type(error).__name__
            return WebError(f"The connection to {host} failed: {reason}.", _NETWORK, retry=True)
        case http.client.IncompleteRead():
            return WebError(f"{host} broke the connection off.", _NETWORK, retry=True)
        case _:
            return WebError(f"{host} gave an answer that cannot be read.", _NETWORK, retry=True)


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
    return float(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0.0


def _ask_once(
    url: str,
    method: str,
    headers: Mapping[str, str],
    proxy: str,
    stall_seconds: float,
    opened: Opened | None,
    redirected: bool,
) -> Answer:
    parts = check_address(url)
    host = parts.hostname or ""
    connection = _connection(parts, proxy_for(host, proxy))
    try:
        connection.connect()
        if opened is not None:
            opened(connection.sock)
        connection.sock.settimeout(stall_seconds)
        connection.request(
            method,
            _target(parts),
            headers={
                "User-Agent": f"Tokonoma/{__version__}",
                "Accept-Encoding": "identity",
                "Connection": "close",
                **headers,
            },
        )
        response = connection.getresponse()
    except (OSError, http.client.HTTPException, ValueError) as error:
        connection.close()
        raise fault(error, host) from error
    except BaseException:
        connection.close()
        raise
    return Answer(url, connection, response, Linked(), redirected)


def _connection(parts: urllib.parse.SplitResult, proxy: Proxy | None) -> http.client.HTTPConnection:
    host = (parts.hostname or "").encode("idna").decode("ascii")
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, parts.port or 80, timeout=CONNECT_SECONDS)
    port, context = parts.port or 443, _context(os.environ.get("SSL_CERT_FILE", ""))
    if proxy is None:
        return http.client.HTTPSConnection(host, port, timeout=CONNECT_SECONDS, context=context)
    connection = http.client.HTTPSConnection(
        proxy.host, proxy.port, timeout=CONNECT_SECONDS, context=context
    )
    secret = {"Proxy-Authorization": proxy.authorization} if proxy.authorization else {}
    connection.set_tunnel(host, port, secret)
    return connection


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


def _target(parts: urllib.parse.SplitResult) -> str:
    """Path and query as a request line may hold them; what is quoted already stays as it is."""
    path = urllib.parse.quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    query = urllib.parse.quote(parts.query, safe="/%:@!$&'()*+,;=~-._?")
    return f"{path}?{query}" if query else path


def _next_address(url: str, location: str) -> str:
    """Where a redirect leads; raises WebError when it may not be followed."""
    # Headers arrive as Latin-1, whatever their bytes were meant to be.
    quoted = urllib.parse.quote(location, safe="/%:@!$&'()*+,;=~-._?#[]", encoding="latin-1")
    try:
        following = urllib.parse.urljoin(url, quoted)
    except ValueError as error:
        raise WebError("The server sends the request on to what is no address.") from error
    before, after = urllib.parse.urlsplit(url), check_address(following)
    if before.scheme == "https" and after.scheme != "https":
        raise WebError(f"{before.hostname} sends the request on to an address that is not safe.")
    return following


def _linked(answer: Answer, known: Linked) -> Linked:
    """What this answer's headers add to what is known of the file."""
    etag, size = answer.header("X-Linked-Etag"), answer.header("X-Linked-Size")
    return Linked(
        known.sha256 or sha256_of_etag(etag),
        known.etag or etag,
        known.size_bytes or (int(size) if size.isascii() and size.isdigit() else 0),
    )


def _unquoted(text: str) -> str:
    return urllib.parse.unquote(text)
