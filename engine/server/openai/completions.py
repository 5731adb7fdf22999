"""Completions of texts without a chat template: OpenAI's, with the prompt echoed and scored."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from engine.messages import Infill, TokenLogprobs
from engine.server.conversation import part_text
from engine.server.fields import Fields
from engine.server.http import END_OF_STREAM, Call, Stream, json_response, post, sse, sse_error
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
    stop_strings,
    timings,
    usage,
)
from engine.server.sampling import sampling, text_biases
from engine.server.service import Service, new_id
from engine.server.values import Begun, Content, Done, Reasoning, Wanted

_USUAL_TOKENS = 16  # of an answer, as in OpenAI's API
_MOST_PROMPTS = 256
_TOGETHER = 8  # prompts of one request that are answered at once
_PICTURES = ("images", "image_data")  # Ollama's and llama.cpp's names
_ONLY_CHATS = "has pictures, which only chats may have: /v1/chat/completions takes them."

Prompt = str | tuple[int, ...]


def routes(service: Service) -> list[Route]:
    """The routes of this module."""

    async def complete(call: Call) -> Response | Stream:
        body = call.body
        wanted = _wanted(call, service)
        shape = _Shape(body.flag("echo"), body.integer("logprobs", -1, -1, MOST_LOGPROBS))
        limit = answer_limit(body, least=0, usual=_USUAL_TOKENS)
        tasks = [
            _Task(replace(wanted, prompt=one, max_tokens=limit or 0), number, limit is None)
            for number, one in enumerate(_with_suffix(body, await prompts(service, body)))
        ]
        if body.flag("stream"):
            options = body.object("stream_options")
            includes = options is not None and options.flag("include_usage")
            return Stream(_chunks(service, shape, tasks, includes_usage=includes), sse_error)
        return json_response(await _whole(service, shape, tasks))

    return [post("/v1/completions", complete)]


async def prompts(
    service: Service, body: Fields, name: str = "prompt", most: int = _MOST_PROMPTS
) -> list[Prompt]:
    """The prompts in a field: a text, token ids, both in turn, or a list of these, `most` at most.

    A text may be an object with a `prompt_string`, or with `content` in parts, as llama.cpp has it.
    """
    for pictures in _PICTURES:
        if body.get(pictures):
            body.fail(pictures, _ONLY_CHATS)
    value = body.get(name)
    if not isinstance(value, list):
        return [_text(body, name, value)]
    if not value:
        body.fail(name, "is empty; give a text, a list of texts, or of token ids.")
    if any(_is_token(one) for one in value):
        return [await _joined(service, body, name, value)]
    if len(value) > most:
        body.fail(name, f"has {len(value):,} texts; give {most:,} at most.")
    return [
        await _joined(service, body, f"{name}[{at}]", one)
        if isinstance(one, list) and one
        else _text(body, f"{name}[{at}]", one)
        for at, one in enumerate(value)
    ]


def _with_suffix(body: Fields, found: list[Prompt]) -> Sequence[Prompt | Infill]:
    """The prompts, or the gaps between them and the `suffix`."""
    if not (suffix := body.text("suffix")):
        return found
    if body.flag("echo"):
        body.fail("echo", "must be false with a `suffix`: there is no one text to give back.")
    made: list[Infill] = []
    for one in found:
        if not isinstance(one, str):
            body.fail("suffix", "needs a prompt that is text, not token ids.")
        made.append(Infill(one, suffix))
    return made


async def _joined(service: Service, body: Fields, name: str, parts: list[Any]) -> tuple[int, ...]:
    """The token ids of one prompt in parts, which are token ids and texts."""
    found: list[int] = []
    for at, part in enumerate(parts):
        if _is_token(part):
            found.append(part)
            continue
        text = _text(body, f"{name}[{at}]", part)
        _, split = await service.tokenize(body.text("model"), text, adds_special=not at)
        found += split.ids
    return tuple(found)


def _text(body: Fields, name: str, value: Any) -> str:
    """The text of a prompt."""
    if isinstance(value, dict):
        fields = Fields(value, f"{body.path}{name}.")
        if "multimodal_data" in fields:
            fields.fail("multimodal_data", _ONLY_CHATS)
        if isinstance(value.get("content"), list):
            return "".join(part_text(part) for part in fields.objects("content"))
        value = value.get("prompt_string")
    if not isinstance(value, str):
        body.fail(name, "must be a text, a list of texts, or of token ids.")
    return value


def _is_token(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _wanted(call: Call, service: Service) -> Wanted:
    body = call.body
    count = answers(body)
    if body.integer("best_of", count) != count:
        body.fail("best_of", "must be equal to `n`.")
    return Wanted(
        model=model_name(call, may_lack=service.models.takes_any),
        sampling=sampling(body),
        text_biases=text_biases(body),
        stop=stop_strings(body),
        constraint=constraint(body),
        logprobs=max(body.integer("logprobs", -1, -1, MOST_LOGPROBS), 1)
        if "logprobs" in body
        else 0,
        answers=count,
        adapters=lora(body, service),
        keep_seconds=keep_seconds(body),
        exchange=call.exchange,
    )


@dataclass(frozen=True, slots=True)
class _Task:
    """One of the prompts of a request."""

    wanted: Wanted
    number: int
    is_read_only: bool  # no token is generated


@dataclass(slots=True)
class _Answer:
    """One answer to a prompt so far."""

    text: list[str] = field(default_factory=list[str])
    logprobs: list[TokenLogprobs] = field(default_factory=list[TokenLogprobs])
    done: Done | None = None


@dataclass(slots=True)
class _Shape:
    """What all objects of one response have in common."""

    echoes: bool
    top: int  # most likely tokens in log probabilities; -1: there are none
    model: str = ""
    id: str = field(default_factory=lambda: new_id("cmpl-"))
    created: int = field(default_factory=lambda: int(time.time()))

    def made(self, choices: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """An object of this response."""
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": FINGERPRINT,
            "choices": list(choices),
        }

    def choice(
        self,
        index: int,
        text: str,
        tokens: Sequence[TokenLogprobs],
        done: Done | None,
        start: int = 0,
    ) -> dict[str, Any]:
        """A choice, or a part of one whose text begins at the character `start`."""
        return {
            "index": index,
            "text": text,
            "logprobs": _logprobs(tokens, self.top, start) if self.top >= 0 and tokens else None,
            "finish_reason": finish_reason(done.finish_reason) if done else None,
        }


def _logprobs(tokens: Sequence[TokenLogprobs], top: int, start: int) -> dict[str, Any]:
    """Log probabilities as four lists. Nothing comes before the first token of a prompt."""
    offsets = [start]
    for token in tokens:
        offsets.append(offsets[-1] + len(token.text))
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.logprob if token.top else None for token in tokens],
        "top_logprobs": [_top(token, top) if token.top else None for token in tokens],
        "text_offset": offsets[:-1],
    }


def _top(token: TokenLogprobs, count: int) -> dict[str, float]:
    """The most likely tokens by their text, with the token that is there; the likeliest of equal
    texts counts.
    """
    found: dict[str, float] = {}
    for one in token.top[:count]:
        found.setdefault(one.text, one.logprob)
    found.setdefault(token.text, token.logprob)
    return found


async def _prompt(service: Service, shape: _Shape, task: _Task) -> tuple[str, list[TokenLogprobs]]:
    """The text of a prompt that is echoed, and its tokens if log probabilities are wanted."""
    wanted = task.wanted
    assert wanted.prompt is not None
    tokens: list[TokenLogprobs] = []
    if shape.echoes and shape.top >= 0:
        tokens = list(await service.score(wanted))
    if not shape.echoes:
        return "", tokens
    if isinstance(wanted.prompt, str):
        return wanted.prompt, tokens
    assert not isinstance(wanted.prompt, Infill), "gaps are not echoed"
    return await service.detokenize(wanted.model, wanted.prompt), tokens


async def _answered(
    service: Service, shape: _Shape, task: _Task
) -> tuple[list[dict[str, Any]], list[Done]]:
    """The choices of one prompt."""
    wanted = task.wanted
    text, tokens = await _prompt(service, shape, task)
    made = [_Answer([text], list(tokens)) for _ in range(wanted.answers)]
    if task.is_read_only:
        done = await service.read(wanted)
        shape.model = done[0]
        for one in made:
            one.done = done[1]
    else:
        async with aclosing(service.generate(wanted)) as deltas:
            async for delta in deltas:
                if isinstance(delta, Begun):
                    shape.model = delta.model
                elif isinstance(delta, Content | Reasoning):
                    made[delta.answer].text.append(delta.text)
                    made[delta.answer].logprobs += delta.logprobs
                elif isinstance(delta, Done):
                    made[delta.answer].done = delta
    first = task.number * wanted.answers
    choices = [
        shape.choice(first + at, "".join(one.text), one.logprobs, one.done)
        for at, one in enumerate(made)
    ]
    return choices, [one.done for one in made if one.done is not None]


async def _whole(service: Service, shape: _Shape, tasks: Sequence[_Task]) -> dict[str, Any]:
    gate = asyncio.Semaphore(_TOGETHER)

    async def one(task: _Task) -> tuple[list[dict[str, Any]], list[Done]]:
        async with gate:
            return await _answered(service, shape, task)

    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(one(task)) for task in tasks]
    except* Exception as errors:  # noqa: BLE001  the first one is the response
        raise _first(errors) from None
    found = [task.result() for task in running]
    choices = [choice for made, _ in found for choice in made]
    counts = [usage(ended) for _, ended in found]
    result = shape.made(choices) | {"usage": _sum(counts)}
    return result | ({"timings": timings(found[0][1][0])} if found[0][1] else {})


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = errors.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


def _sum(counts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The usage of several prompts."""
    made: dict[str, Any] = {}
    for count in counts:
        for name, value in count.items():
            if isinstance(value, dict):
                made[name] = _sum([made.get(name, {}), value])
            else:
                made[name] = made.get(name, 0) + value
    return made


async def _chunks(
    service: Service, shape: _Shape, tasks: Sequence[_Task], *, includes_usage: bool
) -> AsyncGenerator[bytes, None]:
    """The events of a streamed response: one prompt after the other."""
    counts: list[dict[str, Any]] = []
    for task in tasks:
        text, tokens = await _prompt(service, shape, task)
        ended: list[Done] = []
        first, count = task.number * task.wanted.answers, task.wanted.answers
        lengths = dict.fromkeys(range(count), len(text))
        if task.is_read_only:
            shape.model, done = await service.read(task.wanted)
            for at in range(count):
                ended.append(done)
                yield sse(shape.made([shape.choice(first + at, text, tokens, done)]))
            counts.append(usage(ended))
            continue
        async with aclosing(service.generate(task.wanted)) as deltas:
            async for delta in deltas:
                if isinstance(delta, Begun):
                    shape.model = delta.model
                    for at in range(count if text or tokens else 0):
                        yield sse(shape.made([shape.choice(first + at, text, tokens, None)]))
                elif isinstance(delta, Content | Reasoning):
                    start = lengths[delta.answer]
                    lengths[delta.answer] += len(delta.text)
                    index = first + delta.answer
                    choice = shape.choice(index, delta.text, delta.logprobs, None, start)
                    yield sse(shape.made([choice]))
                elif isinstance(delta, Done):
                    ended.append(delta)
                    choice = shape.choice(first + delta.answer, "", (), delta)
                    yield sse(shape.made([choice]) | {"timings": timings(delta)})
        counts.append(usage(ended))
    if includes_usage:
        yield sse(shape.made([]) | {"usage": _sum(counts)})
    yield END_OF_STREAM
