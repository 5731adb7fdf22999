"""Chat completions: OpenAI's requests, with llama.cpp's and vLLM's further fields."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from engine.messages import Logprob, TokenLogprobs
from engine.server.fields import Fields
from engine.server.http import END_OF_STREAM, Call, Stream, json_response, post, sse, sse_error
from engine.server.openai.messages import turns
from engine.server.options import (
    FINGERPRINT,
    MOST_LOGPROBS,
    answer_limit,
    answers,
    constraint,
    finish_reason,
    keep_seconds,
    lora,
    model_name,
    progress,
    stop_strings,
    template_arguments,
    thinking,
    timings,
    usage,
)
from engine.server.pace import Pace
from engine.server.sampling import sampling, text_biases
from engine.server.service import Service, new_id
from engine.server.tools import tool_choice, tools
from engine.server.values import (
    Begun,
    CallDelta,
    Content,
    Delta,
    Done,
    Progress,
    Reasoning,
    Wanted,
)


def routes(service: Service) -> list[Route]:
    """The routes of this module."""

    async def complete(call: Call) -> Response | Stream:
        body = call.body
        wanted = _wanted(call, service)
        shape = _Shape(body.integer("top_logprobs", body.integer("n_probs", 0)))
        deltas = service.generate(wanted)
        if not body.flag("stream"):
            found = await _whole(shape, wanted.answers, deltas)
            if body.flag("verbose", service.options.shows_prompts):
                found["__verbose"] = {"prompt": (await service.apply_template(wanted)).text}
            return json_response(found)
        options = body.object("stream_options")
        includes = options is not None and options.flag("include_usage")
        pace = Pace(is_shown=body.flag("timings_per_token"))
        frames = _chunks(shape, wanted.answers, deltas, pace, includes_usage=includes)
        return Stream(frames, sse_error)

    async def count(call: Call) -> Response:
        return json_response({"input_tokens": await service.count(_wanted(call, service))})

    return [
        post("/v1/chat/completions", complete),
        post("/chat/completions", complete),
        post("/v1/chat/completions/input_tokens", count),
        post("/chat/completions/input_tokens", count),
    ]


def _wanted(call: Call, service: Service) -> Wanted:
    body = call.body
    switch, budget = thinking(body)
    offered, choice = tool_choice(body, tools(body))
    if body.flag("add_generation_prompt") and body.flag("continue_final_message"):
        body.fail("continue_final_message", "and `add_generation_prompt` cannot both be true.")
    return Wanted(
        model=model_name(call, may_lack=service.models.takes_any),
        turns=turns(call),
        tools=offered,
        tool_choice=choice,
        parallel_tool_calls=body.flag("parallel_tool_calls", True),
        sampling=sampling(body),
        text_biases=text_biases(body),
        max_tokens=answer_limit(body) or 0,
        stop=stop_strings(body),
        thinking=switch,
        thinking_budget=budget,
        constraint=constraint(body),
        logprobs=_logprobs(body),
        answers=answers(body),
        template_arguments=template_arguments(body),
        adapters=lora(body, service),
        keep_seconds=keep_seconds(body),
        reports_progress=body.flag("return_progress") and body.flag("stream"),
        exchange=call.exchange,
    )


def _logprobs(body: Fields) -> int:
    """Of how many tokens the engine gives log probabilities; 0: of none."""
    top = body.integer("top_logprobs", 0, 0, MOST_LOGPROBS)
    if body.flag("logprobs"):
        return max(top, 1)
    if top:
        body.fail("top_logprobs", "needs `logprobs` to be true.")
    return body.integer("n_probs", 0, 0, MOST_LOGPROBS)


@dataclass(slots=True)
class _Answer:
    """One answer so far."""

    reasoning: list[str] = field(default_factory=list[str])
    content: list[str] = field(default_factory=list[str])
    calls: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    logprobs: list[TokenLogprobs] = field(default_factory=list[TokenLogprobs])
    done: Done | None = None

    def add(self, delta: Delta) -> None:
        """Take in a delta of this answer."""
        match delta:
            case Reasoning():
                self.reasoning.append(delta.text)
                self.logprobs += delta.logprobs
            case Content():
                self.content.append(delta.text)
                self.logprobs += delta.logprobs
            case CallDelta():
                call = self.calls.setdefault(delta.index, _call(delta.id, delta.name))
                call["function"]["arguments"] += delta.arguments
            case Done():
                self.done = delta
            case _:
                pass

    @property
    def message(self) -> dict[str, Any]:
        """The message of the response."""
        text = "".join(self.content)
        made: dict[str, Any] = {
            "role": "assistant",
            "content": text,
            "refusal": None,
            "annotations": [],
        }
        if thoughts := "".join(self.reasoning):
            made |= {"reasoning_content": thoughts, "reasoning": thoughts}
        if self.calls:
            made["tool_calls"] = [self.calls[index] for index in sorted(self.calls)]
            made["content"] = text or None
        return made


@dataclass(slots=True)
class _Shape:
    """What all objects of one response have in common."""

    top: int  # most likely tokens in log probabilities
    model: str = ""
    id: str = field(default_factory=lambda: new_id("chatcmpl-"))
    created: int = field(default_factory=lambda: int(time.time()))

    def made(self, kind: str, choices: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """An object of this response."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": FINGERPRINT,
            "choices": list(choices),
        }

    def chunk(
        self, answer: int, delta: dict[str, Any], reason: str | None = None
    ) -> dict[str, Any]:
        """A part of a stream."""
        choice = {"index": answer, "delta": delta, "logprobs": None, "finish_reason": reason}
        return self.made("chat.completion.chunk", [choice])

    def logprobs(self, tokens: Sequence[TokenLogprobs]) -> dict[str, Any] | None:
        """The log probabilities of tokens; None where there are none."""
        return (
            {"content": [logprob(one, self.top) for one in tokens], "refusal": None}
            if tokens
            else None
        )


async def _whole(shape: _Shape, count: int, deltas: AsyncGenerator[Delta, None]) -> dict[str, Any]:
    made = [_Answer() for _ in range(count)]
    async with aclosing(deltas) as found:
        async for delta in found:
            if isinstance(delta, Begun):
                shape.model = delta.model
            elif not isinstance(delta, Progress):
                made[delta.answer].add(delta)
    ended = [one.done for one in made if one.done is not None]
    choices = [
        {
            "index": at,
            "message": one.message,
            "logprobs": shape.logprobs(one.logprobs),
            "finish_reason": finish_reason(one.done.finish_reason) if one.done else "stop",
        }
        for at, one in enumerate(made)
    ]
    whole = shape.made("chat.completion", choices) | {"usage": usage(ended)}
    return whole | ({"timings": timings(ended[0])} if ended else {})


async def _chunks(
    shape: _Shape,
    count: int,
    deltas: AsyncGenerator[Delta, None],
    pace: Pace,
    *,
    includes_usage: bool,
) -> AsyncGenerator[bytes, None]:
    """The events of a streamed response."""
    ended: list[Done] = []
    async with aclosing(deltas) as found:
        async for delta in found:
            timed = pace.push(delta)
            if isinstance(delta, Begun):
                shape.model = delta.model
                for answer in range(count):
                    yield sse(shape.chunk(answer, {"role": "assistant", "content": None}))
                continue
            if isinstance(delta, Progress):
                yield sse(shape.chunk(0, {}) | progress(delta))
                continue
            answer = delta.answer
            if isinstance(delta, Done):
                ended.append(delta)
                last = shape.chunk(answer, {}, finish_reason(delta.finish_reason))
                yield sse(last | {"timings": timings(delta)})
                continue
            tokens = () if isinstance(delta, CallDelta) else delta.logprobs
            if (part := _part(delta)) or tokens:
                chunk = shape.chunk(answer, part)
                chunk["choices"][0]["logprobs"] = shape.logprobs(tokens)
                yield sse(chunk | timed)
    if includes_usage:
        last = shape.made("chat.completion.chunk", []) | {"usage": usage(ended)}
        yield sse(last | ({"timings": timings(ended[0])} if ended else {}))
    yield END_OF_STREAM


def _part(delta: Reasoning | Content | CallDelta) -> dict[str, Any]:
    """The delta of a message; {} without text."""
    match delta:
        case Reasoning(text):
            return {"reasoning_content": text, "reasoning": text} if text else {}
        case Content(text):
            return {"content": text} if text else {}
        case CallDelta():
            if not delta.name:
                return {
                    "tool_calls": [
                        {"index": delta.index, "function": {"arguments": delta.arguments}}
                    ]
                }
            call = _call(delta.id, delta.name)
            call["function"]["arguments"] = delta.arguments
            return {"tool_calls": [{"index": delta.index} | call]}


def _call(id: str, name: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": ""}}


def logprob(token: TokenLogprobs, top: int) -> dict[str, Any]:
    """The log probability of a token and of the `top` most likely ones."""
    return _logprob(token) | {"top_logprobs": [_logprob(one) for one in token.top[:top]]}


def _logprob(one: TokenLogprobs | Logprob) -> dict[str, Any]:
    raw = one.raw.encode("latin-1") or one.text.encode()
    return {"id": one.token, "token": one.text, "bytes": list(raw), "logprob": one.logprob}
