"""Faults of engines elsewhere as codes with parameters; the window makes the sentences of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RemoteFaultKind(StrEnum):
    """Kind of a fault; the comments say what `RemoteFault.about` is."""

    # The connection:
    NO_CONNECTION = "no connection"  # it was deleted; its id
    OFFLINE = "offline"  # the offline switch is on
    CONSENT = "consent"  # http to a public address, without the user's consent
    ADDRESS = "address"  # not one of a server; why
    KEYRING = "keyring"  # the system's keyring does not give the key; why
    NO_HOST = "no host"  # the name has no address
    UNREACHABLE = "unreachable"  # nothing listens there; the reason of the system
    TIMEOUT = "timeout"  # no connection in time
    TLS = "tls"  # the certificate; the reason of the TLS library
    NOT_TLS = "not TLS"  # https to a server of http
    NEEDS_TLS = "needs TLS"  # http to a server of https
    PROXY = "proxy"  # the proxy refused; its answer
    REDIRECT = "redirect"  # to another address, which it is
    WEB_PAGE = "web page"  # HTML instead of JSON; its title
    INVALID = "invalid"  # no HTTP, or JSON that is no answer; what it is
    CLOSED = "closed"  # before the answer began
    SILENT = "silent"  # no byte for too long
    CUT = "cut"  # in the middle of the answer
    # The server:
    KEY = "key"  # 401 with a key
    NEEDS_KEY = "needs key"  # 401 without one
    FORBIDDEN = "forbidden"  # 403; the message
    CREDIT = "credit"  # 402, or a quota is used up; the message
    NO_API = "no api"  # 404 or 405: the path is not one of the API
    NO_MODEL = "no model"
    LIMIT = "limit"  # 429; `wait_seconds` if it says so
    BUSY = "busy"  # 503 or 529: too many requests; `wait_seconds` if it says so
    LOADING = "loading"  # 503: the model is being loaded
    CONTEXT = "context"  # the chat is longer than the model's context; `tokens` and `most_tokens`
    IMAGES = "images"  # the model takes no images
    TOOLS = "tools"  # the model or the server does not call tools
    FORMAT = "format"  # the server cannot be held to this format of answers
    REFUSED = "refused"  # another 4xx; the message
    SERVER = "server"  # another 5xx, or an error in the middle of an answer; the message


@dataclass(frozen=True, slots=True)
class RemoteFault:
    """An error of a connection or its server."""

    kind: RemoteFaultKind
    server: str = ""  # host and port
    model: str = ""  # as the server names it
    about: str = ""
    status: int = 0  # of HTTP; 0: there was no response
    wait_seconds: float = 0.0  # what the server asks for; 0: nothing
    tokens: int = 0  # that the chat has; 0: not known
    most_tokens: int = 0  # that the model takes; 0: not known
    partial: bool = False  # a part of the answer had come
