"""llama.cpp's own completions: a text continued, with everything it tells about it."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from engine.messages import FinishReason, Infill, TokenLogprobs
from engine.server.http import Call, Stream, json_response, post, sse, sse_error
from engine.server.openai.chat import logprob
from engine.server.openai.completions import prompts
from engine.server.options import (
    MOST_LOGPROBS,
    MOST_SLOT,
    answer_limit,
    constraint,
    keep_seconds,
    lora,
    progress,
    stop_strings,
    timings,
)
from engine.server.pace import Pace
from engine.server.sampling import llama_names, sampling, text_biases
from engine.server.service import Service
from engine.server.values import Begun, Content, Delta, Done, Progress, Reasoning, Wanted

_STOP_TYPES = {
    FinishReason.END: "eos",
    FinishReason.STOP: "word",
    FinishReason.LENGTH: "limit",
    FinishReason.CONTEXT: "limit",
}


def routes(service: Service) -> list[Route]:
    """The routes of this module."""

    async def complete(call: Call) -> Response | Stream:
        return await completed(service, call, await prompts(service, call.body))

    return [post("/completion", complete), post("/completions", complete)]


async def completed(
    service: Service, call: Call, found: Sequence[str | tuple[int, ...] | Infill]
) -> Response | Stream:
    """The response to a request with these prompts."""
    body = call.body
    limit = answer_limit(body, least=0)
    shown = body.integer("n_probs", 0, 0, MOST_LOGPROBS)
    returns_tokens = body.flag("return_tokens", body.flag("stream"))
    wanted = Wanted(
        model=body.text("model"),
        prompt=found[0],
        sampling=sampling(body),
        text_biases=text_biases(body),
        max_tokens=service.limit(limit or 0),
        stop=stop_strings(body),
        constraint=constraint(body),
        logprobs=max(shown, int(returns_tokens)),
        sampled_logprobs=body.flag("post_sampling_probs"),
        adapters=lora(body, service),
        keep_seconds=keep_seconds(body),
        slot=body.integer("id_slot", -1, -1, MOST_SLOT),
        reports_progress=body.flag("return_progress") and body.flag("stream"),
        exchange=call.exchange,
    )
    fields = body.texts("response_fields")
    settings = await _settings(service, wanted)
    states = [
        _State(replace(wanted, prompt=one), shown, returns_tokens, settings, fields)
        for one in found
    ]
    if body.flag("stream"):
        if len(found) > 1 or limit is None:
            body.fail("stream", "needs one prompt and a token at least.")
        pace = Pace(is_shown=body.flag("timings_per_token"))
        return Stream(_chunks(states[0], service.generate(wanted), pace), sse_error)
    made = [await _answer(service, one, is_read_only=limit is None) for one in states]
    return json_response(made[0] if len(made) == 1 else made)


@dataclass(slots=True)
class _State:
    """An answer so far."""

    wanted: Wanted
    shown: int  # most likely tokens that are shown beside each token; 0: none is
    returns_tokens: bool
    settings: dict[str, Any]  # of the request, as the response repeats them
    fields: tuple[str, ...] = ()  # of the response, all others are left out; none: all
    model: str = ""
    slot: int = 0
    text: list[str] = field(default_factory=list[str])
    logprobs: list[TokenLogprobs] = field(default_factory=list[TokenLogprobs])
    done: Done | None = None

    def add(self, delta: Delta) -> None:
        """Take in a delta."""
        match delta:
            case Begun():
                self.model, self.slot = delta.model, delta.slot
            case Content() | Reasoning():
                self.text.append(delta.text)
                self.logprobs += delta.logprobs
            case Done():
                self.done = delta
            case _:
                pass

    def part(self, text: str, logprobs: Sequence[TokenLogprobs]) -> dict[str, Any]:
        """A part of a stream."""
        made: dict[str, Any] = {"index": 0, "content": text, "stop": False, "id_slot": self.slot}
        return made | {"tokens": self._tokens(logprobs)} | self._probabilities(logprobs)

    def last(self, text: str | None = None) -> dict[str, Any]:
        """The response, or with `text` the last part of a stream."""
        assert self.done is not None, "the answer goes on"
        usage, reason = self.done.usage, self.done.finish_reason
        made: dict[str, Any] = {
            "index": 0,
            "content": "".join(self.text) if text is None else text,
            "tokens": self._tokens(self.logprobs) if text is None else [],
            "generation_settings": self.settings | {"seed": self.done.seed},
            "stop": True,
            "id_slot": self.slot,
            "model": self.model,
            "tokens_predicted": usage.generated,
            "tokens_evaluated": usage.prompt,
            "tokens_cached": usage.prompt + usage.generated,
            "prompt": self.wanted.prompt if isinstance(self.wanted.prompt, str) else "",
            "has_new_line": any("\n" in one for one in self.text),
            "truncated": reason is FinishReason.CONTEXT,
            "stop_type": _STOP_TYPES.get(reason, "none"),
            "stopping_word": self.done.stop,
            "timings": timings(self.done),
        }
        made |= self._probabilities(self.logprobs) if text is None else {}
        return {name: _at(made, name) for name in self.fields} if self.fields else made

    def _tokens(self, tokens: Sequence[TokenLogprobs]) -> list[int]:
        return [one.token for one in tokens] if self.returns_tokens else []

    def _probabilities(self, tokens: Sequence[TokenLogprobs]) -> dict[str, Any]:
        if not self.shown:
            return {}
        make = _sampled if self.wanted.sampled_logprobs else logprob
        return {"completion_probabilities": [make(one, self.shown) for one in tokens]}


async def _settings(service: Service, wanted: Wanted) -> dict[str, Any]:
    """The options of a request under llama.cpp's names; null is a bias that forbids a token."""
    card = await service.models.find(wanted.model)
    drawn = service.drawn(card, wanted.sampling)
    biases = [
        {"token": token, "bias": None if bias == -math.inf else bias}
        for token, bias in drawn.logit_bias
    ]
    if drawn.ignore_end and card.loaded is not None and card.loaded.end:
        _, end = await service.tokenize(card.name, card.loaded.end)
        biases += [{"token": token, "bias": None} for token in end.ids]
    return llama_names(drawn) | {
        "n_predict": wanted.max_tokens or -1,
        "stop": list(wanted.stop),
        "ignore_eos": drawn.ignore_end,
        "logit_bias": biases,
        "n_probs": wanted.logprobs,
    }


def _at(value: Any, path: str) -> Any:
    """The value at a path such as "generation_settings/n_predict"; None where there is none."""
    for name in path.split("/"):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _sampled(token: TokenLogprobs, shown: int) -> dict[str, Any]:
    """As `logprob`, of what was drawn from: as probabilities, without those that are 0."""
    made = logprob(token, shown)
    rows = made.pop("top_logprobs")
    for row in (made, *rows):
        row["prob"] = math.exp(row.pop("logprob"))
    return made | {"top_probs": rows}


async def _answer(service: Service, state: _State, *, is_read_only: bool) -> dict[str, Any]:
    """The response for one prompt."""
    if is_read_only:
        state.model, state.done = await service.read(state.wanted)
        return state.last()
    async with aclosing(service.generate(state.wanted)) as deltas:
        async for delta in deltas:
            state.add(delta)
    return state.last()


async def _chunks(
    state: _State, deltas: AsyncGenerator[Delta, None], pace: Pace
) -> AsyncGenerator[bytes, None]:
    async with aclosing(deltas) as made:
        async for delta in made:
            state.add(delta)
            timed = pace.push(delta)
            if isinstance(delta, Content | Reasoning):
                yield sse(state.part(delta.text, delta.logprobs) | timed)
            elif isinstance(delta, Progress):
                yield sse(state.part("", ()) | progress(delta))
    yield sse(state.last(""))
