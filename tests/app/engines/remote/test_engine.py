"""Answers of servers: streams in every shape that is known, stop, waits and refused fields."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import threading
import time
from typing import Any

import pytest

from app.domain.answer_request import OfferedTool, PromptMessage
from app.domain.connection import ServerKind
from app.domain.deltas import AnswerUsage, EndReason, PromptProgressDelta, TextDelta
from app.domain.parts import TextPart
from app.domain.remote_fault import RemoteFaultKind
from app.engines.remote.exchange import Times
from app.net.ledger import Purpose
from engine import Role
from hostile_server import (
    DONE,
    Reply,
    Server,
    Step,
    answer,
    chunk,
    error,
    event,
    json_reply,
    stream,
)
from remote_answers import Gate, ask, engine_for, question, until

USAGE = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}


def test_streamed_answer_with_usage(server: Server) -> None:
    details = {
        **USAGE,
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    server.chat(answer("Hel", "lo ", "wörld 🎉", usage=details))
    gate = Gate()
    told = ask(engine_for(server.address, gate=gate, key="sk-1234"))
    assert told.error is None
    assert told.text == "Hello wörld 🎉"
    assert told.end is not None
    assert (told.end.reason, told.end.model) == (EndReason.END, "served")
    usage = told.usage
    assert (usage.prompt_tokens, usage.cached_tokens) == (12, 8)
    assert (usage.generated_tokens, usage.thought_tokens) == (5, 2)
    assert usage.first_token_seconds > 0
    request = server.received[0]
    assert request.headers["authorization"] == "Bearer sk-1234"
    assert request.body["stream_options"]["include_usage"]
    assert gate.asked == [(f"{server.address}/chat/completions", Purpose.ANSWERS)]
    assert gate.closed == 1
    assert gate.received > 0


def test_figures_of_llama_server(server: Server) -> None:
    timings = {"cache_n": 90, "prompt_n": 10, "prompt_ms": 50, "predicted_n": 4,
               "predicted_ms": 200}  # fmt: skip
    progress = {"prompt_progress": {"total": 100, "cache": 90, "processed": 95}, "choices": []}
    server.chat(stream(progress, chunk("A"), {**chunk(finish="stop"), "timings": timings}))
    told = ask(engine_for(server.address))
    assert told.deltas[0] == PromptProgressDelta(95, 100)
    usage = told.usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.generated_tokens) == (100, 90, 4)
    assert (usage.prompt_seconds, usage.decode_seconds) == (0.05, 0.2)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100_000])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_bytes_may_come_in_any_pieces(server: Server, size: int, line_end: str) -> None:
    text = ": ping\n\nevent: message\nid: 7\nretry: 10\n"
    text += "data:" + json.dumps(chunk("Größe "), ensure_ascii=False) + "\n\n: keep-alive\n\n"
    text += "data: " + json.dumps(chunk("日本", "stop"), ensure_ascii=False) + "\n\n"
    body = text.replace("\n", line_end).encode()
    pieces: list[Any] = [body[at : at + size] for at in range(0, len(body), size)]
    server.chat(Reply(pieces, headers={"Content-Type": "text/event-stream"}))
    told = ask(engine_for(server.address))
    assert told.error is None
    assert told.text == "Größe 日本"
    assert told.end is not None  # without [DONE]


def test_stream_without_empty_lines_and_with_a_byte_order_mark(server: Server) -> None:
    lines = [json.dumps(chunk("A")), json.dumps(chunk("B", "stop")), "[DONE]"]
    body = "\ufeff" + "".join(f"data: {line}\n" for line in lines)
    server.chat(Reply([body.encode()]))
    assert ask(engine_for(server.address)).text == "AB"


def test_data_in_several_lines(server: Server) -> None:
    pretty = json.dumps(chunk("A", "stop"), indent=1)
    body = "".join(f"data: {line}\n" for line in pretty.splitlines()) + "\n"
    server.chat(Reply([body.encode()]))
    assert ask(engine_for(server.address)).text == "A"


def test_nothing_is_read_after_the_end(server: Server) -> None:
    server.chat(Reply([event(chunk("A", "stop")), DONE, Step.HOLD]))
    told = ask(engine_for(server.address))
    assert told.text == "A"
    assert server.received[0].gone.wait(5)


@pytest.mark.parametrize("step", [Step.CLOSE, Step.RESET])
def test_complete_answer_whose_response_is_cut_is_complete(server: Server, step: Step) -> None:
    server.chat(Reply([event(chunk("A", "stop")), 0.05, step]))
    told = ask(engine_for(server.address))
    assert told.error is None
    assert told.end is not None


def test_answer_that_is_not_streamed(server: Server) -> None:
    whole = {
        "choices": [{"message": {"role": "assistant", "content": "All of it",
                                 "reasoning_content": "Hm"}, "finish_reason": "length"}],
        "usage": USAGE,
    }  # fmt: skip
    for reply in (json_reply(whole), Reply([json.dumps(whole, indent=2).encode()])):
        server.chat(reply)
        told = ask(engine_for(server.address), question(max_tokens=5))
        assert (told.text, told.thoughts) == ("All of it", "Hm")
        assert told.end is not None
        assert told.end.reason is EndReason.LENGTH
        assert told.usage.generated_tokens == 5


def test_compressed_response(server: Server) -> None:
    body = gzip.compress(event(chunk("Small", "stop")) + DONE)
    server.chat(Reply([body[:10], body[10:]], headers={"Content-Encoding": "gzip"}))
    assert ask(engine_for(server.address)).text == "Small"


# --- thoughts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_content": "Hm"},
        {"reasoning": "Hm"},
        {"reasoning": "Hm", "reasoning_content": "Hm"},
        {"reasoning_content": None, "reasoning": "Hm"},
        {"reasoning_details": [{"type": "reasoning.text", "text": "Hm"}]},
        {"thinking": "Hm"},
    ],
)
def test_thoughts_have_one_of_two_fields_or_both(server: Server, fields: dict[str, Any]) -> None:
    server.chat(stream(chunk(None, **fields), chunk("\n\n"), chunk("Yes"), chunk(finish="stop")))
    told = ask(engine_for(server.address))
    assert (told.thoughts, told.text) == ("Hm", "Yes")


def test_thoughts_as_parts_of_the_content(server: Server) -> None:
    thinking = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]
    text = [{"type": "text", "text": "Yes"}]
    server.chat(
        stream({"choices": [{"delta": {"content": thinking}}]},
               {"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]})
    )  # fmt: skip
    told = ask(engine_for(server.address))
    assert (told.thoughts, told.text) == ("Hm", "Yes")


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("text", "thoughts", "said"),
    [
        ("<think>\nHm</think>\n\nYes", "Hm", "Yes"),
        ("\n<think></think>\n\nYes", "", "Yes"),
        ("<reasoning>A</reasoning><reasoning>B</reasoning>Yes", "AB", "Yes"),
        ("[THINK]Hm[/THINK]Yes", "Hm", "Yes"),
        ("<think>never ended </thin", "never ended </thin", ""),
        ("Write <think> in a text</think>", "", "Write <think> in a text</think>"),
        ("<thin ice>", "", "<thin ice>"),
        (" <", "", " <"),
    ],
)
def test_thoughts_between_tags(
    server: Server, size: int, text: str, thoughts: str, said: str
) -> None:
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    server.chat(answer(*pieces))
    told = ask(engine_for(server.address))
    assert (told.thoughts, told.text) == (thoughts, said)


# --- tool calls ----------------------------------------------------------------------------------


def _calls(*rows: Any) -> dict[str, Any]:
    return chunk(None, tool_calls=list(rows))


def _call(arguments: Any = None, name: str = "", **fields: Any) -> dict[str, Any]:
    function = {"name": name} if name else {}
    return {
        **fields,
        "function": function | ({} if arguments is None else {"arguments": arguments}),
    }


@pytest.mark.parametrize(
    "chunks",
    [
        # By index, the arguments in pieces, as OpenAI sends them.
        [_calls(_call("", "add", index=0, id="x", type="function")), _calls(_call('{"a"', index=0)),
         _calls(_call(": 1}", index=0)), _calls(_call('{"b": 2}', "sub", index=1, id="y"))],
        # The pieces of both calls by turns.
        [_calls(_call("", "add", index=0, id="x")), _calls(_call("", "sub", index=1, id="y")),
         _calls(_call('{"a": 1}', index=0)), _calls(_call('{"b": 2}', index=1))],
        # By turns too, but in one chunk and by their place in it.
        [_calls(_call("", "add", id="x"), _call("", "sub", id="y")),
         _calls(_call('{"a": 1}'), _call('{"b": 2}'))],
        # Without any index.
        [_calls(_call('{"a"', "add", id="x")), _calls(_call(": 1}")),
         _calls(_call('{"b": 2}', "sub", id="y"))],
        # Every call with the index 0.
        [_calls(_call('{"a": 1}', "add", index=0, id="x")),
         _calls(_call('{"b": 2}', "sub", index=0, id="y"))],
        # Arguments as objects, both calls in one chunk.
        [_calls(_call({"a": 1}, "add", id="x"), _call({"b": 2}, "sub", id="y"))],
        # Id and name again in every piece.
        [_calls(_call('{"a"', "add", index=0, id="x")), _calls(_call(": 1}", "add", index=0, id="x")),
         _calls(_call('{"b": 2}', "sub", index=1, id="y"))],
        # Arguments before the name.
        [_calls(_call('{"a": 1}', index=0, id="x")), _calls(_call(None, "add", index=0)),
         _calls(_call('{"b": 2}', "sub", index=1, id="y"))],
    ],
)  # fmt: skip
def test_tool_calls(server: Server, chunks: list[Any]) -> None:
    for finish in ("tool_calls", "stop"):
        server.chat(stream(chunk("I add."), *chunks, chunk(finish=finish)))
        told = ask(engine_for(server.address))
        assert [(id, name, json.loads(text)) for id, name, text in told.calls] == [
            ("x", "add", {"a": 1}),
            ("y", "sub", {"b": 2}),
        ]
        assert told.text == "I add."
        assert told.end is not None
        assert told.end.reason is EndReason.TOOL_CALLS


def test_tool_calls_without_index_and_id_begin_with_their_names(server: Server) -> None:
    server.chat(
        stream(_calls(_call("{}", "add")), _calls(_call("{}", "sub")), chunk(finish="stop"))
    )
    assert ask(engine_for(server.address)).calls == [
        ("call_0", "add", "{}"),
        ("call_1", "sub", "{}"),
    ]


def test_tool_call_without_an_id_or_arguments_and_an_old_one(server: Server) -> None:
    server.chat(stream(_calls(_call(None, "now", index=0)), chunk(finish="tool_calls")))
    assert ask(engine_for(server.address)).calls == [("call_0", "now", "")]
    old = [chunk(None, function_call={"name": "now", "arguments": ""}),
           chunk(None, function_call={"arguments": "{}"}), chunk(finish="function_call")]  # fmt: skip
    server.chat(stream(*old))
    assert ask(engine_for(server.address)).calls == [("call_0", "now", "{}")]


# --- stop ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [[], [event(chunk("One "))]])
def test_stopping_closes_the_socket(server: Server, pieces: list[Any]) -> None:
    server.chat(Reply([*pieces, Step.HOLD]))
    gate = Gate()
    engine = engine_for(server.address, gate=gate)

    async def run() -> None:
        texts: list[str] = []

        async def read() -> None:
            async with contextlib.aclosing(engine.generate(question())) as deltas:
                async for delta in deltas:
                    assert isinstance(delta, TextDelta)
                    texts.append(delta.text)

        reading = asyncio.create_task(read())
        await until(lambda: bool(server.received) and len(texts) >= len(pieces))
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await asyncio.to_thread(server.received[0].gone.wait, 5)

    asyncio.run(run())
    assert server.received[0].gone.is_set()
    assert gate.closed == 1


def test_leaving_the_generator_closes_the_socket(server: Server) -> None:
    server.chat(Reply([event(chunk("One ")), Step.HOLD]))

    async def run() -> None:
        async with contextlib.aclosing(engine_for(server.address).generate(question())) as deltas:
            async for _ in deltas:
                break
        await asyncio.to_thread(server.received[0].gone.wait, 5)

    asyncio.run(run())
    assert server.received[0].gone.is_set()


def test_offline_switch_cuts_an_answer_and_keeps_its_text(server: Server) -> None:
    server.chat(Reply([event(chunk("Partial")), Step.HOLD]))
    gate = Gate()
    engine = engine_for(server.address, gate=gate)

    def switch() -> None:
        while not gate.received:
            time.sleep(0.01)
        gate.cut()

    switching = threading.Thread(target=switch)
    switching.start()
    told = ask(engine)
    switching.join()
    assert told.text == "Partial"
    assert told.error is not None
    assert told.error.fault.kind is RemoteFaultKind.OFFLINE
    assert told.error.fault.partial
    again = ask(engine)
    assert again.error is not None
    assert again.error.fault.kind is RemoteFaultKind.OFFLINE
    assert len(server.received) == 1


# --- waiting -------------------------------------------------------------------------------------


def test_waits_while_the_server_loads_the_model(server: Server) -> None:
    loading = error("Loading model", 503, 503, "unavailable_error")
    other = json_reply({"error": "Model m is currently loading", "estimated_time": 20.0}, 503)
    server.chat(loading, loading, other, answer("Ready"))
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    told = ask(engine_for(server.address, sleep=sleep))
    assert told.text == "Ready"
    assert waited == [0.5, 1.0, 20.0]
    assert [wait.seconds for wait in told.waits] == waited


def test_waits_as_long_as_a_busy_server_asks(server: Server) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    server.chat(error("Too many", 429, Retry_After="7"), answer("Now"))
    assert ask(engine_for(server.address, sleep=sleep)).text == "Now"
    server.chat(error("queue is full", 503, Retry_After="2"), answer("Now"))
    assert ask(engine_for(server.address, sleep=sleep)).text == "Now"
    assert waited == [7.0, 2.0]
    for reply in (error("Too many", 429), error("Too many", 429, Retry_After="3600")):
        server.chat(reply)
        told = ask(engine_for(server.address, sleep=sleep))
        assert told.error is not None
        assert told.error.fault.kind is RemoteFaultKind.LIMIT
    assert len(waited) == 2


def test_waiting_ends_when_it_is_stopped(server: Server) -> None:
    server.chat(error("Loading model", 503))
    engine = engine_for(server.address, sleep=asyncio.sleep)

    async def run() -> None:
        async with asyncio.timeout(5):
            async with contextlib.aclosing(engine.generate(question())) as deltas:
                async for _ in deltas:
                    return

    asyncio.run(run())


# --- fields that a server refuses ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("refusal", "left_out"),
    [
        (error("Unknown parameter: 'stream_options'.", 400), "stream_options"),
        (error("Unrecognized request argument supplied: top_k", 400), "top_k"),
        (json_reply({"detail": [{"loc": ["body", "min_p"], "msg": "Extra inputs are not permitted",
                                 "type": "extra_forbidden"}]}, 422), "min_p"),
        (json_reply({"error": {"message": "Unsupported value: 0.7", "param": "temperature"}}, 400),
         "temperature"),
        (error("property 'repetition_penalty' is unsupported", 400), "repetition_penalty"),
    ],
)  # fmt: skip
def test_refused_field_is_left_out(server: Server, refusal: Reply, left_out: str) -> None:
    server.chat(refusal, answer("Fine"))
    sampling = {"temperature": 0.7, "top_k": 20, "min_p": 0.1, "repeat_penalty": 1.1}
    engine = engine_for(server.address)
    told = ask(engine, question(sampling=sampling))
    assert told.text == "Fine"
    first, second = server.asked
    assert first.keys() - second.keys() == {left_out}
    ask(engine, question(sampling=sampling))
    assert server.asked[2] == second  # it is not sent again


def test_server_that_refuses_one_field_after_another(server: Server) -> None:
    names = ("stream_options", "top_k", "min_p")
    refusals = [error(f"Unrecognized request argument supplied: {name}", 400) for name in names]
    server.chat(*refusals, answer("Fine"))
    assert (
        ask(engine_for(server.address), question(sampling={"top_k": 5, "min_p": 0.1})).text
        == "Fine"
    )


def test_refusal_without_end_is_an_error(server: Server) -> None:
    server.chat(error("Unknown parameter: 'top_k'", 400))
    told = ask(engine_for(server.address), question(sampling={"top_k": 5}))
    assert told.error is not None
    assert told.error.fault.kind is RemoteFaultKind.REFUSED
    assert len(server.asked) == 2


def test_max_tokens_under_its_other_name(server: Server) -> None:
    text = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    server.chat(error(text, 400), answer("Fine"))
    ask(engine_for(server.address), question(max_tokens=50))
    assert server.asked[1]["max_completion_tokens"] == 50
    assert "max_tokens" not in server.asked[1]


def test_too_long_an_answer_is_asked_for_again_without_a_limit(server: Server) -> None:
    text = ("'max_tokens' or 'max_completion_tokens' is too large: 32768. This model's maximum "
            "context length is 4096 tokens and your request has 100 input tokens")  # fmt: skip
    server.chat(error(text, 400), answer("Fine"))
    engine = engine_for(server.address)
    told = ask(engine, question(max_tokens=32768))
    assert told.text == "Fine"
    assert "max_tokens" not in server.asked[1]
    ask(engine, question(max_tokens=20))
    assert server.asked[2]["max_tokens"] == 20  # the value was refused, not the field


def test_instructions_go_into_the_question_where_they_are_refused(server: Server) -> None:
    server.chat(error("System role not supported", 400), answer("Fine"))
    messages = (
        PromptMessage(Role.SYSTEM, (TextPart("Be brief."),)),
        PromptMessage(Role.USER, (TextPart("Hello"),)),
    )
    ask(engine_for(server.address), question(messages=messages))
    assert server.asked[1]["messages"] == [{"role": "user", "content": "Be brief.\n\nHello"}]


def test_tools_are_never_left_out_silently(server: Server) -> None:
    server.chat(error("registry/m does not support tools", 400))
    tool = OfferedTool("now", "The time.", '{"type": "object"}')
    told = ask(engine_for(server.address, ServerKind.OLLAMA), question(tools=(tool,)))
    assert told.error is not None
    assert told.error.fault.kind is RemoteFaultKind.TOOLS
    assert len(server.asked) == 1


# --- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("finish", "limit", "context", "reason"),
    [
        ("stop", 0, 0, EndReason.END),
        ("length", 5, 0, EndReason.LENGTH),
        ("length", 5, 17, EndReason.LENGTH),
        ("length", 0, 17, EndReason.CONTEXT),
        ("length", 0, 0, EndReason.CONTEXT),
        ("content_filter", 0, 0, EndReason.FILTERED),
        ("something new", 0, 0, EndReason.END),
    ],
)
def test_reasons(server: Server, finish: str, limit: int, context: int, reason: EndReason) -> None:
    server.chat(answer("A", finish=finish, usage=USAGE))
    told = ask(engine_for(server.address), question(max_tokens=limit, context=context))
    assert told.end is not None
    assert told.end.reason is reason


def test_no_usage_is_zero(server: Server) -> None:
    server.chat(answer("A"))
    told = ask(engine_for(server.address))
    assert told.usage.generated_tokens == 0
    assert isinstance(told.deltas[-2], AnswerUsage)


def test_odd_chunks_do_no_harm(server: Server) -> None:
    odd = [
        {"choices": None}, {"choices": [None, 3, {"index": 1, "delta": {"content": "other"}}]},
        {"choices": [{"delta": None}]}, {"choices": [{"delta": {"content": None}}]},
        {"choices": [{"delta": {"content": 3, "tool_calls": "x"}}]}, {"usage": "none"},
        {"choices": [{"delta": {"tool_calls": [None, {}, {"function": 3}]}}]},
        {"choices": [], "usage": {"prompt_tokens": -5, "completion_tokens": "x",
                                  "prompt_tokens_details": None}, "timings": []},
    ]  # fmt: skip
    server.chat(stream(*odd, chunk("A", "stop")))
    told = ask(engine_for(server.address))
    assert told.error is None
    assert told.text == "A"
    assert told.calls == []


def test_silence_ends_an_answer(server: Server) -> None:
    server.chat(Reply([event(chunk("Part")), Step.HOLD]))
    times = Times(connect=5.0, first=30.0, between=0.2, short=5.0)
    told = ask(engine_for(server.address, times=times))
    assert told.text == "Part"
    assert told.error is not None
    assert told.error.fault.kind is RemoteFaultKind.SILENT
    assert told.error.fault.partial
    server.chat(Reply([Step.HOLD]))
    times = Times(connect=5.0, first=0.2, between=30.0, short=5.0)
    told = ask(engine_for(server.address, times=times))
    assert told.error is not None
    assert told.error.fault.kind is RemoteFaultKind.SILENT


def test_pings_are_no_silence(server: Server) -> None:
    times = Times(connect=5.0, first=0.5, between=0.5, short=5.0)
    pings: list[Any] = [b": ping\n\n", 0.2] * 4
    server.chat(Reply([*pings, event(chunk("A", "stop"))]))
    assert ask(engine_for(server.address, times=times)).text == "A"


@pytest.mark.parametrize("size", [1, 4, 100])
@pytest.mark.parametrize(
    ("kind", "sent", "added"),
    [
        (ServerKind.LLAMA_SERVER, "1, 2, 3, 4", " 3, 4"),  # it repeats what it continues
        (ServerKind.LLAMA_SERVER, " 3, 4", " 3, 4"),
        (ServerKind.LLAMA_SERVER, "1, 1", "1, 1"),
        (ServerKind.LLAMA_SERVER, "1, 2", "1, 2"),
        (ServerKind.VLLM, "1, 2, 3", "1, 2, 3"),
    ],
)
def test_continued_text_is_not_repeated(
    server: Server, size: int, kind: ServerKind, sent: str, added: str
) -> None:
    server.chat(answer(*(sent[at : at + size] for at in range(0, len(sent), size))))
    messages = (
        PromptMessage(Role.USER, (TextPart("Count"),)),
        PromptMessage(Role.ASSISTANT, (TextPart("1, 2,"),)),
    )
    assert ask(engine_for(server.address, kind), question(messages=messages)).text == added
