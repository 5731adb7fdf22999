"""Faults of responses: what the status and the text of a server's error mean.

Every server words the same error in its own way; the tables here are what the servers send that
people run, each found in their sources or in reports.
"""

from __future__ import annotations

import email.utils
import html
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from app.domain.remote_fault import RemoteFaultKind
from app.engines.remote.errors import RemoteError
from app.engines.remote.exchange import Server
from app.engines.remote.values import Object, count_of, object_of, rows_of, text_of

_MOST_MESSAGE = 400  # characters of a server's text in a sentence
_N = r"[\d,._]*\d"
# How servers say that a chat is longer than the context of the model: {n} tokens, {m} fit.
_CONTEXT = tuple(
    re.compile(pattern.replace("{n}", f"(?P<n>{_N})").replace("{m}", f"(?P<m>{_N})"), re.I | re.S)
    for pattern in (
        # llama-server
        r"request \({n} tokens\) exceeds the available context size \({m} tokens\)",
        r"exceeds the available context size",
        # vLLM, OpenAI, DeepSeek, OpenRouter
        r"maximum context length is {m} tokens.*?(?:resulted in|you requested|you requested about"
        r"|your request has|requested about) {n} (?:input )?tokens",
        r"passed {n} input tokens.*?context length is only {m} tokens",
        r"length {n}\) is longer than the maximum model length of {m}",
        r"input length \({n}\) exceeds model's maximum context length \({m}\)",
        r"maximum context length is {m} tokens",
        r"input tokens exceed the configured limit of {m} tokens.*?resulted in {n} tokens",
        r"input exceeds the context window",
        # LM Studio
        r"trying to keep the first {n} tokens.*?context length of only {m} tokens",
        r"tokens to keep from the initial prompt is greater than the context length"
        r"(?: \(n_keep: {n}\s*>=\s*n_ctx: {m}\))?",
        r"reached context length of {m}",
        # SGLang
        r"the input \({n} tokens\) is longer than the model's context length \({m} tokens\)",
        r"exceeds the model's maximum context length of {m} tokens"
        r"(?:.*?requested a total of {n} tokens)?",
        r"input length \({n} tokens\) exceeds the maximum allowed length \({m} tokens\)",
        # TGI
        r"`inputs` tokens \+ `max_new_tokens` must be <= {m}\. given: {n}",
        r"`inputs` must have less than {m} tokens\. given: {n}",
        r"inputs tokens \+ max_new_tokens must be <= {m}",
        # Ollama
        r"input length exceeds the context length",
        r"prompt too long; exceeded max context length",
        # llama-cpp-python, TensorRT-LLM, Mistral
        r"requested tokens \({n}\) exceed context window of {m}",
        r"prompt length \({n}\).*?should not exceed max_\w+ \({m}\)",
        r"prompt contains {n} tokens.*?{m} maximum context length",
        # Anthropic, Gemini, Cohere, Bedrock
        r"prompt is too long: {n} tokens > {m} maximum",
        r"input length and `max_tokens` exceed context limit: {n} \+ \d+ > {m}",
        r"input token count \({n}\) exceeds the maximum number of tokens allowed \({m}\)",
        r"too many tokens: .*?exceeds the limit of {m}",
        r"input is too long for requested model",
        # others that are worded like these
        r"(?:prompt|input|request|message|conversation)s?\b.{0,60}\b(?:exceeds?|longer than|larger"
        r" than|too long for)\b.{0,40}\bcontext",
        r"context (?:length|window|size|limit)\b.{0,30}\b(?:exceeded|overflow|is full)",
    )
)
_CONTEXT_CODES = {"context_length_exceeded", "exceed_context_size_error", "context_length_error"}
# A limit of the answer, not of the chat: the chat fits if less is asked for.
_TOO_MANY_WANTED = re.compile(
    r"max_(?:completion_|new_)?tokens['`]?(?: or \S+)? (?:is )?too large|in the completion\)"
    r"|max_new_tokens|input length and `max_tokens` exceed",
    re.I,
)
_LOADING = re.compile(
    r"\bloading\b|still load|being loaded|not (?:yet )?ready|warming up|starting up|initiali[sz]ing",
    re.I,
)
_NO_MODEL = re.compile(
    r"\bmodel\b.{0,200}?(?:not found|does ?n[o']t exist|not exist|unknown|no longer available|"
    r"not a valid|not available|not loaded|is not supported)|(?:no such|unknown|invalid) model|"
    r"not a valid model|could not find base model|no models? (?:is |are )?loaded|failed to load model",
    re.I | re.S,
)
_IMAGES = re.compile(
    r"(?:image|vision|multi-?modal|image_url)\b.{0,80}(?:not support|unsupported|not enabled|not "
    r"accept|unable|at most 0|no endpoints|cannot be read)|(?:not support|unsupported|not a|does ?n[o']t accept|no"
    r" endpoints found that support|without).{0,60}(?:image|vision|multi-?modal|mmproj)",
    re.I | re.S,
)
_TOOLS = re.compile(
    r"does not support (?:tools|function calling)|no endpoints found that support tool use|"
    r"requires --enable-auto-tool-choice|tools param requires --jinja|tool calling is not supported",
    re.I,
)
_CREDIT = re.compile(
    r"insufficient[ _](?:quota|balance|credits?|funds)|exceeded your current quota|billing|"
    r"requires more credits|payment required|out of credits",
    re.I,
)
_HTTP_TO_HTTPS = re.compile(
    r"plain HTTP request was sent to HTTPS|client sent an HTTP request to an HTTPS|"
    r"speaking plain HTTP to an SSL",
    re.I,
)
_HTML = re.compile(
    rb"^\s*(?:<!doctype\s+html|<html|<head|<\?xml[^>]*>\s*<(?:!doctype\s+)?html)", re.I
)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.I | re.S)
_BUSY = re.compile(r"queue is full|overloaded|too many requests|no slot|capacity|busy", re.I)


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """The parts of a server's error, whatever its shape."""

    message: str = ""
    code: str = ""  # or its type
    param: str = ""  # the field it is about
    status: int = 0  # of HTTP, inside the body
    tokens: int = 0
    most_tokens: int = 0
    wait_seconds: float = 0.0


def error_in(value: object) -> ErrorBody | None:
    """The error in a JSON value; None if it is none.

    Known shapes: OpenAI's object, a text, a list of either (Gemini), `detail` of FastAPI as a text
    or a list of places, and `message` beside `object: error`.
    """
    if rows := rows_of(value):
        return error_in(rows[0])
    found = object_of(value)
    inner = found.get("error") or found.get("errors")
    inner = next(iter(rows_of(inner)), inner)
    if isinstance(inner, str):
        return _body({**found, "message": inner, "type": found.get("error_type")})
    if object_of(inner):
        return _body(object_of(inner))
    if found.get("object") == "error" or found.get("type") == "error":
        return _body(found)
    detail = found.get("detail")
    if isinstance(detail, str):
        return _body({"message": detail})
    if places := [_place(row) for row in rows_of(detail)]:
        return ErrorBody("; ".join(text for text, _ in places), param=places[0][1])
    if object_of(detail):
        return error_in({"error": detail})
    if "choices" not in found and "data" not in found and isinstance(found.get("message"), str):
        return _body(found)
    return None


def _body(found: Object) -> ErrorBody:
    code, kind = found.get("code"), found.get("type")
    message, status = _text(found.get("message")), _count(found.get("status"))
    if raw := text_of(object_of(found.get("metadata")).get("raw")):
        message = f"{message}: {raw}"  # OpenRouter: of the server behind it
    names = [each for each in (code, kind) if isinstance(each, str) and each]
    return ErrorBody(
        message or (names[0] if names else ""),
        " ".join(names),
        _text(found.get("param")),
        _count(code) or (status if status >= 400 else 0),
        _count(found.get("n_prompt_tokens")),
        _count(found.get("n_ctx")),
        float(_count(found.get("estimated_time"))),
    )


def _place(row: object) -> tuple[str, str]:
    """Text and field of one row of FastAPI's `detail`."""
    found = object_of(row)
    names = [each for each in rows_of(found.get("loc")) if isinstance(each, str)]
    names = [name for name in names if name != "body"]
    if not isinstance(found.get("msg"), str):
        return _text(row), ""
    return f"{'.'.join(names)}: {found['msg']}", names[0] if names else ""


def response_error(
    server: Server, status: int, headers: Mapping[str, str], content: bytes, model: str = ""
) -> RemoteError:
    """The error that a response with a status of 400 or more is."""
    page = _HTML.match(content) or headers.get("content-type", "").startswith("text/html")
    wait = _retry_after(headers.get("retry-after", ""))
    if page:
        return _page_error(server, status, content, wait, model)
    try:
        body = error_in(json.loads(content))
    except (ValueError, RecursionError):
        body = None
    body = body or ErrorBody(" ".join(content.decode("utf-8", "replace").split()))
    return body_error(server, body, status, wait, model)


def body_error(
    server: Server,
    body: ErrorBody,
    status: int = 0,
    wait: float = 0.0,
    model: str = "",
    *,
    partial: bool = False,
) -> RemoteError:
    """The error that a server's text and status mean."""
    status = status if status >= 400 else body.status or status
    kind, tokens, most = _kind(body, status, bool(server.credentials))
    return server.error(
        kind,
        _short(body.message),
        model=model,
        status=status,
        wait_seconds=wait or body.wait_seconds,
        tokens=tokens,
        most_tokens=most,
        partial=partial,
    )


def _kind(body: ErrorBody, status: int, has_key: bool) -> tuple[RemoteFaultKind, int, int]:
    """The kind, and the tokens wanted and possible if it is the context."""
    kinds, message = RemoteFaultKind, body.message
    context = context_in(body) if status not in (401, 403, 404, 429) else None
    if context is not None:
        return kinds.CONTEXT, *context
    return _other_kind(body, status, has_key, message), 0, 0


def _other_kind(body: ErrorBody, status: int, has_key: bool, message: str) -> RemoteFaultKind:
    kinds = RemoteFaultKind
    if status == 402 or (status in (0, 403, 429) and _CREDIT.search(f"{message} {body.code}")):
        return kinds.CREDIT
    if _HTTP_TO_HTTPS.search(message):
        return kinds.NEEDS_TLS
    match status:
        case 401:
            return kinds.KEY if has_key else kinds.NEEDS_KEY
        case 403:
            return kinds.FORBIDDEN
        case 407:
            return kinds.PROXY
        case 429:
            return kinds.LIMIT
        case 503 if _LOADING.search(message):
            return kinds.LOADING
        case 503 | 529:
            return kinds.BUSY
        case _:
            pass
    if _IMAGES.search(message) and status != 404:
        return kinds.IMAGES
    if _TOOLS.search(message):
        return kinds.TOOLS
    if "model_not_found" in body.code or (status != 422 and _NO_MODEL.search(message)):
        return kinds.NO_MODEL
    if status in (404, 405):
        return kinds.NO_API
    if 400 <= status < 500:
        return kinds.REFUSED
    return kinds.BUSY if _BUSY.search(message) and status in (0, 500) else kinds.SERVER


def context_in(body: ErrorBody) -> tuple[int, int] | None:
    """The tokens of a chat that is too long, and those that fit, 0 where not known; None if it
    is another error.
    """
    for pattern in _CONTEXT:
        if found := pattern.search(body.message):
            named = found.groupdict()
            return (
                body.tokens or _number(named.get("n")),
                body.most_tokens or _number(named.get("m")),
            )
    if any(code in body.code for code in _CONTEXT_CODES):
        return body.tokens, body.most_tokens
    return None


def wants_too_many(message: str) -> bool:
    """Whether it is the length of the answer asked for that does not fit, not the chat."""
    return bool(_TOO_MANY_WANTED.search(message))


def _page_error(
    server: Server, status: int, content: bytes, wait: float, model: str
) -> RemoteError:
    """The error of a web page: of a proxy, a portal, or of a wrong address."""
    found = _TITLE.search(content.decode("utf-8", "replace"))
    title = _short(html.unescape(found[1])) if found else ""
    kinds = RemoteFaultKind
    if status == 401:
        kind = kinds.KEY if server.credentials else kinds.NEEDS_KEY
    elif _HTTP_TO_HTTPS.search(content.decode("utf-8", "replace")):
        kind = kinds.NEEDS_TLS
    elif status in (404, 405):
        kind = kinds.NO_API
    else:
        kind = {403: kinds.FORBIDDEN, 407: kinds.PROXY, 429: kinds.LIMIT}.get(
            status, kinds.SERVER if status >= 500 else kinds.WEB_PAGE
        )
    return server.error(kind, title, status=status, wait_seconds=wait, model=model)


def is_page(content: bytes) -> bool:
    """Whether a body is a web page."""
    return bool(_HTML.match(content))


def page_error(server: Server, content: bytes) -> RemoteError:
    """The error of a web page that came as if it were an answer."""
    return _page_error(server, 200, content, 0.0, "")


def _retry_after(text: str) -> float:
    """Seconds of the header: a number, or a date."""
    try:
        return min(max(float(text), 0.0), 86400.0)
    except ValueError:
        pass
    try:
        then = email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return min(max(then - time.time(), 0.0), 86400.0)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MOST_MESSAGE else f"{text[:_MOST_MESSAGE].rstrip()}…"


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _number(text: str | None) -> int:
    digits = re.sub(r"\D", "", text or "")
    return int(digits) if 0 < len(digits) < 16 else 0


def _count(value: object) -> int:
    """A number, also one written as a text."""
    return _number(value) if isinstance(value, str) and value.isdigit() else count_of(value)
