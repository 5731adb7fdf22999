"""Addresses of servers: what users paste, made whole, and which hosts are on a private network."""

from __future__ import annotations

import ipaddress
import re
import socket
import urllib.parse

from app.domain.remote_fault import RemoteFaultKind
from app.engines.remote.errors import RemoteError
from app.net.hosts import host_number, is_private
from app.system.translation import tr

_VERSION = re.compile(r"/v\d+[a-z0-9]*$")
# Ends of addresses that documentation shows whole.
_ENDPOINT = re.compile(
    r"/(chat/completions|completions|models|embeddings|responses|messages|api/(chat|tags|generate))$"
)
_NUMERIC = re.compile(r"(0x[0-9a-f]+|\d+)(\.(0x[0-9a-f]+|\d+)){0,3}")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?", re.IGNORECASE)
_ANY_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # a server listens there, nobody can connect
_PORTS = {"http": 80, "https": 443}
_MAX_LENGTH = 2000


def normalized(text: str) -> str:
    """The address of a server as it is stored: scheme, host, port and path without a "/" at its end.

    Without a scheme it is http on this machine and private networks, https elsewhere. Raises
    RemoteError.
    """
    text = text.strip().strip("<>\"'").strip()
    if not text or len(text) > _MAX_LENGTH or any(ord(each) <= 32 or each == "\\" for each in text):
        raise _wrong(tr("This is not the address of a server."))
    try:
        if "://" not in text:
            text = f"//{_bare(text)}"
        parts = urllib.parse.urlsplit(text)
        host, port = _host(parts.hostname or ""), parts.port
    except (ValueError, UnicodeError) as error:
        raise _wrong(tr("This is not the address of a server.")) from error
    if parts.username is not None or parts.password is not None:
        raise _wrong(tr("The address contains a user name or password; leave it out."))
    if parts.query:
        raise _wrong(tr("Leave out the part of the address after “?”."))
    scheme = parts.scheme or ("http" if is_private(host) else "https")
    if scheme not in _PORTS:
        raise _wrong(tr("The address of a server begins with http:// or https://."))
    shown = f"[{host}]" if ":" in host else host
    if port is not None and port != _PORTS[scheme]:
        shown = f"{shown}:{port}"
    path = re.sub("/{2,}", "/", parts.path).rstrip("/")
    while found := _ENDPOINT.search(path):
        path = path[: found.start()]
    return f"{scheme}://{shown}{path}"


def candidates(address: str) -> tuple[str, ...]:
    """Where the API of a normalized address may be, the likeliest first."""
    if _VERSION.search(address):
        return (address,)
    return f"{address}/v1", address


def native_root(address: str) -> str:
    """The address without "/v1" at its end, where servers have routes of their own."""
    return _VERSION.sub("", address)


def server_name(address: str) -> str:
    """Host and port, as sentences name a server."""
    return urllib.parse.urlsplit(address).netloc


def host_of(address: str) -> str:
    """The host of a normalized address."""
    return urllib.parse.urlsplit(address).hostname or ""


def same_server(address: str, other: str) -> bool:
    """Whether two addresses have the same scheme, host and port: what one may know, both may."""
    return _origin(address) == _origin(other)


def is_one_program(address: str, other: str) -> bool:
    """Whether the same program answers at two addresses: `localhost` and 127.0.0.1 are one host."""
    (_, host, port), (_, other_host, other_port) = _origin(address), _origin(other)
    return port == other_port and (
        host == other_host or {host, other_host} <= {"localhost", "127.0.0.1", "::1"}
    )


def needs_consent(address: str) -> bool:
    """Whether words would go unencrypted over the public network: the user is asked once."""
    return address.startswith("http://") and not is_private(host_of(address))


def _host(host: str) -> str:
    """A host in its usual form; raises ValueError and UnicodeError."""
    if "%" in host:
        raise ValueError("a zone")
    if _NUMERIC.fullmatch(host):  # "2130706433" and "0x7f.1" are 127.0.0.1 for the system
        try:
            host = socket.inet_ntoa(socket.inet_aton(host))
        except OSError as error:
            raise ValueError(host) from error
    if ":" in host:
        host = str(ipaddress.ip_address(host))
    elif not host_number(host):
        host = host.rstrip(".").encode("idna").decode("ascii")
        if not all(map(_LABEL.fullmatch, host.split("."))):
            raise ValueError(host)
    return _ANY_HOST.get(host, host)


def _bare(text: str) -> str:
    """An address without a scheme, an IPv6 host in brackets; raises ValueError."""
    if text.lower().startswith(("http:", "https:")):  # one "/" is missing, or both
        raise ValueError(text)
    host, slash, path = text.partition("/")
    if host.count(":") > 1 and not host.startswith("["):
        host = f"[{host}]"
    return host + slash + path


def _origin(address: str) -> tuple[str, str, int]:
    parts = urllib.parse.urlsplit(address)
    return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)


def _wrong(why: str) -> RemoteError:
    return RemoteError(RemoteFaultKind.ADDRESS, about=why)
