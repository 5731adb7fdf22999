"""Faults of servers: each status and each known wording becomes one kind, without secrets."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from app.domain.connection import ServerKind
from app.domain.parts import ErrorPart
from app.domain.remote_fault import RemoteFault, RemoteFaultKind
from app.engines.remote.events import MAX_EVENT
from app.state.faults import explain
from app.store.part_rows import from_row, to_row
from hostile_server import (
    Reply,
    Server,
    Step,
    answer,
    chunk,
    error,
    event,
    json_reply,
    page,
    serving,
    stream,
)
from hostile_tls import proxy, server_context
from remote_answers import TIMES, Told, ask, engine_for, question

KEY = "sk-very-secret-0123456789"
K = RemoteFaultKind


def failed(server: Server, *replies: Reply, key: str = KEY, **fields: Any) -> RemoteFault:
    """The fault of an answer; what every fault has to be is checked here."""
    server.chat(*replies)
    told = ask(engine_for(server.address, key=key, times=TIMES), question(**fields))
    return checked(told)


def checked(told: Told) -> RemoteFault:
    assert told.error is not None
    fault = told.error.fault
    part = told.error.error
    assert from_row(*to_row(part)) == part
    shown = explain(part.fault, part.file, part.message, part.remedy)
    for text in (shown.text, shown.detail, str(told.error), repr(told.error), repr(fault)):
        assert KEY not in text
        assert "{" not in text or "{" in fault.about
    assert shown.sentence.rstrip("”").endswith((".", "…", "!", "?"))
    assert "\n" not in shown.text
    return fault


# --- context overflow ----------------------------------------------------------------------------

OVERFLOWS = [
    # llama-server, in four ages
    ({"error": {"code": 400, "message": "request (14429 tokens) exceeds the available context size "
      "(8192 tokens), try increasing it", "type": "exceed_context_size_error",
      "n_prompt_tokens": 14429, "n_ctx": 8192}}, 400, 14429, 8192),
    ({"error": {"code": 500, "message": "the request exceeds the available context size. try "
      "increasing the context size or enable context shift", "type": "exceed_context_size_error",
      "n_prompt_tokens": 1407, "n_ctx": 256}}, 500, 1407, 256),
    ({"error": {"code": 400, "message": "the request exceeds the available context size",
      "type": "invalid_request_error"}}, 400, 0, 0),
    # vLLM
    ({"object": "error", "message": "This model's maximum context length is 16384 tokens. However, "
      "you requested 122946 tokens (112946 in the messages, 10000 in the completion). Please reduce "
      "the length of the messages or completion.", "type": "BadRequestError", "param": None,
      "code": 400}, 400, 122946, 16384),
    ({"error": {"message": "This model's maximum context length is 1024 tokens. However, your "
      "request has 2000 input tokens. Please reduce the length of the input messages.",
      "type": "BadRequestError", "param": "input_tokens", "code": 400}}, 400, 2000, 1024),
    ({"error": {"message": "You passed 1025 input tokens and requested 1 output tokens. However, the "
      "model's context length is only 1024 tokens, resulting in a maximum input length of 1023 "
      "tokens.", "type": "BadRequestError", "code": 400}}, 400, 1025, 1024),
    ({"error": {"message": "The decoder prompt (length 9000) is longer than the maximum model length "
      "of 8192. Make sure that `max_model_len` is no smaller.", "code": 400}}, 400, 9000, 8192),
    ({"error": {"message": "This model's maximum context length is 1024 tokens. However, your prompt "
      "contains at least 1025 input tokens, which exceeds this limit even without any output tokens. "
      "Please reduce the length of the input prompt.", "type": "BadRequestError",
      "param": "input_tokens", "code": 400}}, 400, 0, 1024),
    # LM Studio
    ({"error": "Trying to keep the first 10136 tokens when context the overflows. However, the model "
      "is loaded with context length of only 7866 tokens, which is not enough."}, 400, 10136, 7866),
    ({"error": "The number of tokens to keep from the initial prompt is greater than the context "
      "length (n_keep: 13055>= n_ctx: 4096). Try to load the model with a larger context length, or "
      "provide a shorter input."}, 400, 13055, 4096),
    ({"error": "The number of tokens to keep from the initial prompt is greater than the context "
      "length. Try to load the model with a larger context length"}, 400, 0, 0),
    ({"error": "Reached context length of 4096 tokens, but the model needs more"}, 400, 0, 4096),
    # Ollama
    ({"error": {"message": "the input length exceeds the context length", "type": "api_error"}},
     400, 0, 0),
    ({"error": {"message": "prompt too long; exceeded max context length by 4 tokens"}}, 400, 0, 0),
    # OpenAI
    ({"error": {"message": "This model's maximum context length is 4097 tokens. However, your "
      "messages resulted in 5000 tokens. Please reduce the length of the messages.",
      "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}},
     400, 5000, 4097),
    ({"error": {"message": "Input tokens exceed the configured limit of 272000 tokens. Your messages "
      "resulted in 300123 tokens.", "code": "context_length_exceeded"}}, 400, 300123, 272000),
    ({"error": {"message": "Your input exceeds the context window of this model. Please adjust."}},
     400, 0, 0),
    ({"error": {"message": "Please reduce the length.", "code": "context_length_exceeded"}},
     413, 0, 0),
    # SGLang
    ({"object": "error", "message": "The input (61709 tokens) is longer than the model's context "
      "length (40960 tokens).", "type": "BadRequestError", "code": 400}, 400, 61709, 40960),
    ({"object": "error", "message": "Requested token count exceeds the model's maximum context length "
      "of 4096 tokens. You requested a total of 5000 tokens: 904 tokens from the input messages and "
      "4096 tokens for the completion.", "code": 400}, 400, 5000, 4096),
    ({"error": {"message": "Input length (160062 tokens) exceeds the maximum allowed length (59862 "
      "tokens)."}}, 400, 160062, 59862),
    # TGI
    ({"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: "
      "3000 `inputs` tokens and 100 `max_new_tokens`", "error_type": "validation"}, 422, 3000, 2048),
    ({"error": "Input validation error: `inputs` must have less than 1024 tokens. Given: 2000",
      "error_type": "validation"}, 422, 2000, 1024),
    # others
    ({"detail": "Requested tokens (2285) exceed context window of 2048"}, 500, 2285, 2048),
    ({"error": {"message": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with "
      "32768 maximum context length"}}, 400, 40000, 32768),
    ({"error": {"message": "prompt is too long: 215000 tokens > 200000 maximum"}}, 400, 215000, 200000),
    ([{"error": {"code": 400, "message": "The input token count (1100000) exceeds the maximum number "
       "of tokens allowed (1048576).", "status": "INVALID_ARGUMENT"}}], 400, 1100000, 1048576),
    ({"error": {"message": "too many tokens: total number of tokens in the prompt exceeds the limit "
      "of 4081. Try using a shorter prompt."}}, 400, 0, 4081),
    ({"error": {"message": "This endpoint's maximum context length is 131,072 tokens. However, you "
      "requested about 200,000 tokens (200,000 of text input)."}}, 400, 200000, 131072),
    ({"error": {"message": "The conversation is longer than the context of the model."}}, 400, 0, 0),
    ({"error": {"message": "Context window exceeded"}}, 400, 0, 0),
]  # fmt: skip


@pytest.mark.parametrize(("body", "status", "tokens", "most"), OVERFLOWS)
def test_context_overflow_in_every_wording(
    server: Server, body: Any, status: int, tokens: int, most: int
) -> None:
    fault = failed(server, json_reply(body, status))
    assert (fault.kind, fault.tokens, fault.most_tokens) == (K.CONTEXT, tokens, most)
    streamed = failed(server, stream(body) if isinstance(body, dict) else json_reply(body))
    assert (streamed.kind, streamed.tokens, streamed.most_tokens) == (K.CONTEXT, tokens, most)


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens must be at least 1, got -3.",
        "The context variable is not defined in the template.",
        "Invalid value for 'temperature': 5.0 is greater than the maximum of 2.",
        "Conversation roles must alternate user/assistant/user/assistant/...",
    ],
)
def test_other_refusals_are_no_overflow(server: Server, text: str) -> None:
    fault = failed(server, error(text, 400))
    assert (fault.kind, fault.about) == (K.REFUSED, text)


# --- statuses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (error(f"Incorrect API key provided: {KEY}.", 401, "invalid_api_key"), K.KEY),
        (json_reply({"error": "Unauthorized"}, 401), K.KEY),
        (Reply([b""], 401), K.KEY),
        (error("Your key may not use this model", 403), K.FORBIDDEN),
        (page("Attention Required! | Cloudflare", 403), K.FORBIDDEN),
        (error("You exceeded your current quota, please check your plan and billing details.", 429,
               "insufficient_quota"), K.CREDIT),
        (json_reply({"error": {"message": "Insufficient Balance"}}, 402), K.CREDIT),
        (error("The model `m` does not exist.", 404, "model_not_found"), K.NO_MODEL),
        (error("model 'm' not found", 404, None, "api_error"), K.NO_MODEL),
        (error("m is not a valid model ID", 400), K.NO_MODEL),
        (error('Got request for model "m". Could not find base model with ID "m".', 404),
         K.NO_MODEL),
        (json_reply({"error": {"message": "Failed to load model \"m\". Error: no memory"}}, 400),
         K.NO_MODEL),
        (json_reply({"detail": "Not Found"}, 404), K.NO_API),
        (json_reply({"error": "Unexpected endpoint or method. (POST /chat/completions)"}, 404), K.NO_API),
        (page("404 Not Found", 404), K.NO_API),
        (error("Method Not Allowed", 405), K.NO_API),
        (error("Rate limit reached", 429), K.LIMIT),
        (error("Overloaded", 529, Retry_After="3600"), K.BUSY),
        (error("CUDA error: out of memory", 500), K.SERVER),
        (page("502 Bad Gateway", 502), K.SERVER),
        (page("504 Gateway Time-out", 504), K.SERVER),
        (error("m is not a multimodal model", 400), K.IMAGES),
        (error("image input is not supported - hint: if this is unexpected, you may need to provide "
               "the mmproj", 500), K.IMAGES),
        (error("No endpoints found that support image input", 400), K.IMAGES),
        (error("`messages[0].content[1].type` 'image_url' cannot be read by this model; send text.",
               400), K.IMAGES),
        (error("registry.example/m does not support tools", 400), K.TOOLS),
        (error('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be '
               "set", 400), K.TOOLS),
        (Reply([b"The plain HTTP request was sent to HTTPS port"], 400), K.NEEDS_TLS),
        (page("400 The plain HTTP request was sent to HTTPS port", 400), K.NEEDS_TLS),
        (Reply([b"\xff\xfe\x00garbage"], 418), K.REFUSED),
        (json_reply([1, 2], 400), K.REFUSED),
        (json_reply({"error": None}, 500), K.SERVER),
    ],
)  # fmt: skip
def test_statuses(server: Server, reply: Reply, kind: RemoteFaultKind) -> None:
    fault = failed(server, reply)
    assert fault.kind is kind
    assert fault.status == reply.status
    assert not fault.partial


def test_unknown_key_is_told_from_no_key(server: Server) -> None:
    reply = json_reply({"error": {"message": "Missing Authentication header"}}, 401)
    assert failed(server, reply, key="").kind is K.NEEDS_KEY


def test_retry_after_as_seconds_and_as_a_date(server: Server) -> None:
    assert failed(server, error("Slow down", 429, Retry_After="120")).wait_seconds == 120
    date = "Wed, 21 Oct 2065 07:28:00 GMT"
    assert failed(server, error("Slow down", 429, Retry_After=date)).wait_seconds == 86400
    for odd in ("soon", "-5", "", "9" * 400):
        assert failed(server, error("Slow down", 429, Retry_After=odd)).kind is K.LIMIT


def test_busy_server_without_a_time(server: Server) -> None:
    assert failed(server, error("The queue is full.", 503)).kind is K.BUSY


# --- responses that are no answers ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (page("Welcome to the hotel"), K.WEB_PAGE),
        (Reply([b"Ollama is running"]), K.INVALID),
        (Reply([b""]), K.CLOSED),
        (json_reply({"hello": 1}), K.INVALID),
        (json_reply([]), K.INVALID),
        (stream(b"data: {bad json\n\n"), K.INVALID),
        (Reply([b"data: [" + b"[" * 100_000 + b"\n\n"]), K.INVALID),
        (stream(), K.CLOSED),
        (Reply([event(chunk(""))]), K.CLOSED),
        (Reply([Step.RESET]), K.CLOSED),
        (Reply([Step.CLOSE]), K.CLOSED),
        (Reply(raw=b"SSH-2.0-OpenSSH_9.7\r\n\r\n"), K.INVALID),
        (Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), K.INVALID),
        (Reply(raw=b"\r\n"), K.INVALID),
        (Reply([b"not gzip"], headers={"Content-Encoding": "gzip"}), K.INVALID),
        (json_reply({"error": "Unexpected endpoint or method. (POST /v1/v1/chat)"}), K.SERVER),
    ],
)
def test_responses_that_are_no_answer(server: Server, reply: Reply, kind: RemoteFaultKind) -> None:
    fault = failed(server, reply)
    assert fault.kind is kind
    assert not fault.partial


@pytest.mark.parametrize(
    ("last", "kind"),
    [
        ([Step.RESET], K.CUT),
        ([Step.CLOSE], K.CUT),
        ([], K.CUT),
        ([event({"error": {"message": "CUDA error", "code": 500}})], K.SERVER),
        ([b'event: error\ndata: {"message": "engine died"}\n\n'], K.SERVER),
        ([b'error: {"code": 500, "message": "slot failed"}\n\n'], K.SERVER),
        ([event({"error": {"message": "Provider returned error", "code": 502,
                           "metadata": {"raw": "upstream"}}, "choices": []})], K.SERVER),
        ([event({"error": {"message": "Rate limit", "code": 429}})], K.LIMIT),
        ([event({"error": {"code": 400, "message": "Context size has been exceeded."}})], K.CONTEXT),
        ([b"data: {broken\n\n"], K.INVALID),
        ([b"data: " + b"x" * (MAX_EVENT // 8)] * 9, K.INVALID),
    ],
)  # fmt: skip
def test_partial_text_is_kept(server: Server, last: list[Any], kind: RemoteFaultKind) -> None:
    server.chat(Reply([event(chunk("Half of ")), event(chunk("it")), 0.02, *last]))
    told = ask(engine_for(server.address, key=KEY))
    assert told.text == "Half of it"
    fault = checked(told)
    assert (fault.kind, fault.partial) == (kind, True)
    assert told.end is None
    if kind is K.CUT:
        assert "continue" in explain(fault, "m", "").remedy
    assert len(server.asked) == 1  # it is not asked for again behind the user's back


def test_held_text_is_given_out_when_the_line_is_cut(server: Server) -> None:
    server.chat(Reply([event(chunk("<think>Half a thought </thi")), Step.CLOSE]))
    assert ask(engine_for(server.address)).thoughts == "Half a thought </thi"
    server.chat(Reply([event(chunk("<th")), Step.CLOSE]))
    assert ask(engine_for(server.address)).text == "<th"


# --- the network ---------------------------------------------------------------------------------


def test_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    fault = checked(ask(engine_for(f"http://127.0.0.1:{port}/v1", key=KEY)))
    assert fault.kind is K.UNREACHABLE
    assert "refused" in fault.about.lower()
    assert fault.server == f"127.0.0.1:{port}"


def test_unknown_name() -> None:
    assert checked(ask(engine_for("http://no-such-host.invalid:1/v1"))).kind in (
        K.CONSENT,
        K.NO_HOST,
    )
    assert checked(ask(engine_for("https://no-such-host.invalid:1/v1"))).kind is K.NO_HOST


def test_certificate_of_a_stranger(tmp_path: Path) -> None:
    with serving(server_context(tmp_path)) as server:
        fault = failed(server, answer("Never"))
        assert fault.kind is K.TLS
        assert fault.about
        assert not server.received


def test_trusted_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(server_context(tmp_path)) as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        server.chat(answer("Safe"))
        assert ask(engine_for(server.address, key=KEY)).text == "Safe"


def test_https_to_a_server_of_http(server: Server) -> None:
    told = ask(engine_for(server.address.replace("http:", "https:"), key=KEY))
    assert checked(told).kind is K.NOT_TLS


def test_public_http_is_refused_without_consent(server: Server) -> None:
    fault = checked(ask(engine_for("http://example.com/v1", key=KEY)))
    assert fault.kind is K.CONSENT


# --- redirects -----------------------------------------------------------------------------------


def test_redirect_within_the_server_is_followed(server: Server) -> None:
    for place in ("/v2/chat", f"http://127.0.0.1:{server.port}/v2/chat"):
        server.chat(Reply([b""], 307, {"Location": place}))
        server.on("/v2/chat", answer("There"))
        assert ask(engine_for(server.address, key=KEY)).text == "There"
        assert server.received[-1].headers["authorization"] == f"Bearer {KEY}"
        assert server.received[-1].body["messages"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_key_and_words_are_never_sent_to_another_host(server: Server, status: int) -> None:
    with serving() as other:
        other.chat(answer("Stolen"))
        place = f"{other.address}/chat/completions?token={KEY}"
        fault = failed(server, Reply([b""], status, {"Location": place}))
        assert fault.kind is K.REDIRECT
        assert fault.about == f"{other.address}/chat/completions"
        assert not other.received


def test_redirects_without_end(server: Server) -> None:
    here = Reply([b""], 307, {"Location": "/v1/chat/completions"})
    assert failed(server, here).kind is K.REDIRECT
    assert len(server.received) == 6


def test_redirect_to_nowhere(server: Server) -> None:
    for place in ("http://", "http://[bad", "javascript:alert(1)", "http://\u0000"):
        fault = failed(server, Reply([b""], 307, {"Location": place}))
        assert fault.kind in (K.REDIRECT, K.INVALID, K.ADDRESS)


# --- the proxy -----------------------------------------------------------------------------------


def test_proxy_tunnels_to_public_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(server_context(tmp_path)) as server, proxy(server.port) as tunnel:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        server.chat(answer("Through"))
        engine = engine_for(
            "https://hub.invalid/v1", key=KEY, proxy=f"http://127.0.0.1:{tunnel.port}"
        )
        assert ask(engine).text == "Through"
        assert tunnel.heads[0].startswith("CONNECT hub.invalid:443")
        assert KEY not in tunnel.heads[0]


def test_proxy_that_refuses(server: Server) -> None:
    with proxy(server.port, "user", "password") as tunnel:
        engine = engine_for(
            "https://hub.invalid/v1", key=KEY, proxy=f"http://127.0.0.1:{tunnel.port}"
        )
        assert checked(ask(engine)).kind is K.PROXY


def test_private_servers_are_reached_without_the_proxy(server: Server) -> None:
    server.chat(answer("Direct"))
    assert ask(engine_for(server.address, proxy="http://127.0.0.1:9")).text == "Direct"


# --- others --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(RemoteFaultKind))
@pytest.mark.parametrize("partial", [False, True])
def test_every_kind_has_a_sentence(kind: RemoteFaultKind, partial: bool) -> None:
    for about in ("", "Some reason"):
        fault = RemoteFault(kind, "gpu:8000", "big", about, 500, 3.0, 10, 5, partial)
        shown = explain(fault, "big", "technical")
        assert shown.sentence or (kind is K.ADDRESS and not about)
        assert "{" not in shown.text
        assert shown.detail == "technical"


def test_stored_fault_of_another_version_has_no_code() -> None:
    kind, data, text = to_row(ErrorPart(RemoteFault(K.CUT, "gpu:8000"), "big", "technical"))
    for change in ({"kind": "new"}, {"more": 1}):
        values = json.loads(data)
        values["fault"] |= change
        part = from_row(kind, json.dumps(values), text)
        assert isinstance(part, ErrorPart)
        assert part.message == "technical"


def test_key_with_characters_that_no_header_can_have(server: Server) -> None:
    for key in ("schlüssel-1234", "line\nbreak-1234"):
        told = ask(engine_for(server.address, key=key))
        assert told.error is not None
        assert told.error.fault.kind is K.ADDRESS
        assert key not in str(told.error)
    assert not server.received


def test_format_that_a_server_cannot_be_held_to(server: Server) -> None:
    from engine import Constraint, ConstraintKind

    told = ask(
        engine_for(server.address, ServerKind.OLLAMA),
        question(constraint=Constraint(ConstraintKind.REGEX, "a+")),
    )
    assert checked(told).kind is K.FORMAT
    assert not server.received
