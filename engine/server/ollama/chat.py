"""Ollama's answers to conversations and prompts, as lines of JSON or one object."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from engine.messages import Constraint, FinishReason, Infill, TextPart, TokenLogprobs
from engine.server.conversation import Conversation, call_arguments
from engine.server.errors import ApiError, Family
from engine.server.fields import Fields
from engine.server.http import NDJSON, Call, Stream, json_response, ndjson, post, respond
from engine.server.ollama.names import model_name, nanoseconds, timestamp
from engine.server.openai.chat import logprob
from engine.server.openai.messages import turns
from engine.server.options import json_constraint, keep_seconds, stop_strings, thinking
from engine.server.sampling import sampling
from engine.server.service import Service
from engine.server.tools import tools
from engine.server.values import Begun, CallDelta, Content, Delta, Done, Reasoning, Wanted

_CUT = (FinishReason.LENGTH, FinishReason.CONTEXT)
_EFFORTS = ("low", "medium", "high", "max")
Line = dict[str, Any]


def routes(service: Service) -> list[Route]:
    """The routes of this module."""

    async def answer(call: Call, shape: Shape, wanted: Wanted) -> Response | Stream:
        writer = Lines(shape, call.body.integer("top_logprobs", 0))
        deltas, streams = service.generate(wanted), call.body.flag("stream", True)
        return await respond(deltas, writer, streams=streams, encode=ndjson, media_type=NDJSON)

    async def chat(call: Call) -> Response | Stream:
        if not call.body.items("messages"):
            return await _loaded(service, call, CHAT)
        return await answer(call, CHAT, parse_chat(call))

    async def generate(call: Call) -> Response | Stream:
        if not (call.body.text("prompt") or call.body.texts("images")):
            return await _loaded(service, call, GENERATE)
        return await answer(call, GENERATE, parse_prompt(call))

    return [post("/api/chat", chat), post("/api/generate", generate)]


def parse_chat(call: Call) -> Wanted:
    """What a request for a chat asks for; raises ApiError that names the field at fault."""
    return replace(_wanted(call), turns=turns(call), tools=tools(call.body))


def parse_prompt(call: Call) -> Wanted:
    """What a request for the answer to a prompt asks for; raises ApiError."""
    body = call.body
    if body.text("template"):
        body.fail("template", "is not supported; give `system` and `prompt`, or `raw`.")
    conversation = Conversation(call.pictures)
    images, prompt = conversation.pictures.of_list(body), body.text("prompt")
    suffix, is_raw = body.text("suffix"), body.flag("raw")
    if images and (suffix or is_raw):
        body.fail("images", "has pictures, which need a chat template: no `raw`, and no `suffix`.")
    if suffix:
        return replace(_wanted(call), prompt=Infill(prompt, suffix))
    if is_raw:
        return replace(_wanted(call), prompt=prompt)
    conversation.system(body.text("system"))
    conversation.user([*images, TextPart(prompt)] if images else prompt)
    return replace(_wanted(call), turns=conversation.turns())


def _wanted(call: Call) -> Wanted:
    """What both kinds of requests have in common."""
    body = call.body
    options = body.object("options") or Fields({})
    switch, budget = _thinking(body)
    top = body.integer("top_logprobs", 0, 0, 20)
    effort = body.get("think")
    return Wanted(
        model=model_name(body),
        sampling=sampling(options),
        max_tokens=max(options.integer("num_predict", 0), 0),
        stop=stop_strings(options),
        thinking=switch,
        thinking_budget=budget,
        template_arguments={"reasoning_effort": effort} if isinstance(effort, str) else {},
        constraint=_constraint(body),
        logprobs=max(top, 1) if body.flag("logprobs") else 0,
        drops_oldest=body.flag("truncate", True),
        keep_seconds=keep_seconds(body),
        exchange=call.exchange,
    )


def _thinking(body: Fields) -> tuple[bool | None, int | None]:
    """Whether the model thinks, and for how many tokens at most, by `think`."""
    value = body.get("think")
    if not isinstance(value, str):
        return (None if value is None else body.flag("think")), None
    body.choice("think", _EFFORTS, "medium")
    return thinking(Fields({"reasoning_effort": value, "thinking": True}))


def _constraint(body: Fields) -> Constraint | None:
    """What the answer must be, by `format`."""
    value = body.get("format")
    if value in (None, ""):
        return None
    if isinstance(value, str):
        body.choice("format", ("json",), "json")
        return json_constraint({"type": "object"})
    schema = body.object("format")
    return schema and json_constraint(schema.values)


async def _loaded(service: Service, call: Call, shape: Shape) -> Response:
    """Load a model without asking it anything, or unload it where it is not to be kept."""
    kept = keep_seconds(call.body)
    card = await service.models.find(model_name(call.body))
    is_unloading = kept is not None and kept == 0
    if not is_unloading or card.loaded is not None:
        async with service.models.use(card.name, kept):
            pass
    reason = "unload" if is_unloading else "load"
    return json_response(shape.line(card.name, "") | {"done": True, "done_reason": reason})


def _chat_line(model: str, text: str, more: Line) -> Line:
    message = {"role": "assistant", "content": text, **more}
    return {"model": model, "created_at": timestamp(), "message": message, "done": False}


def _prompt_line(model: str, text: str, more: Line) -> Line:
    return {"model": model, "created_at": timestamp(), "response": text, **more, "done": False}


@dataclass(frozen=True, slots=True)
class Shape:
    """How the lines of a route look."""

    make: Callable[[str, str, Line], Line]

    def line(self, model: str, text: str, **more: Any) -> Line:
        """A line with text and further fields beside it."""
        return self.make(model, text, more)


CHAT, GENERATE = Shape(_chat_line), Shape(_prompt_line)


@dataclass(slots=True)
class Lines:
    """Turns the deltas of one answer into lines; `whole` is the answer as one object."""

    shape: Shape
    top_logprobs: int
    whole: Line = field(default_factory=dict[str, Any])
    _model: str = ""
    _began: float = field(default_factory=time.monotonic)
    _load_seconds: float = 0.0
    _texts: list[str] = field(default_factory=list[str])
    _thoughts: list[str] = field(default_factory=list[str])
    _calls: list[Line] = field(default_factory=list[Line])
    _logprobs: list[Any] = field(default_factory=list[Any])
    _call: CallDelta | None = None  # that grows

    def push(self, delta: Delta) -> Iterator[Line]:
        """The lines of a delta."""
        if self._call is not None and self._ends_call(delta, self._call):
            yield self._complete_call()
        match delta:
            case Begun(model):
                self._model = model
                self._load_seconds = time.monotonic() - self._began
            case Reasoning(text, logprobs=logprobs) if text or logprobs:
                self._thoughts.append(text)
                line = self.shape.line(self._model, "", thinking=text)
                yield line | self._probabilities(logprobs)
            case Content(text, logprobs=logprobs) if text or logprobs:
                self._texts.append(text)
                yield self.shape.line(self._model, text) | self._probabilities(logprobs)
            case CallDelta():
                before = "" if self._call is None else self._call.arguments
                first = delta if self._call is None else self._call
                self._call = replace(first, arguments=before + delta.arguments)
            case Done():
                yield self._finish(delta)
            case _:
                pass

    def fail(self, error: ApiError) -> Line:
        """The line of an error after the answer began."""
        return error.body(Family.OLLAMA)

    @staticmethod
    def _ends_call(delta: Delta, call: CallDelta) -> bool:
        """Whether a call is whole before a delta; one without a text may come within it."""
        match delta:
            case CallDelta(index):
                return index != call.index
            case Reasoning(text) | Content(text):
                return bool(text)
            case _:
                return isinstance(delta, Done)

    def _probabilities(self, logprobs: tuple[TokenLogprobs, ...]) -> Line:
        made = [logprob(one, self.top_logprobs) for one in logprobs]
        self._logprobs += made
        return {"logprobs": made} if made else {}

    def _complete_call(self) -> Line:
        """The line of a call, which is sent whole."""
        call = self._call
        assert call is not None
        self._call = None
        arguments = json.loads(call_arguments(call.arguments))
        function = {"index": call.index, "name": call.name, "arguments": arguments}
        made = {"id": call.id, "function": function}
        self._calls.append(made)
        return self.shape.line(self._model, "", tool_calls=[made])

    def _finish(self, done: Done) -> Line:
        usage, times = done.usage, done.timings
        end: Line = {
            "done": True,
            "done_reason": "length" if done.finish_reason in _CUT else "stop",
            "total_duration": nanoseconds(time.monotonic() - self._began),
            "load_duration": nanoseconds(self._load_seconds),
            "prompt_eval_count": usage.prompt,
            "prompt_eval_duration": nanoseconds(times.prompt_seconds),
            "eval_count": usage.generated,
            "eval_duration": nanoseconds(times.decode_seconds),
        }
        more: Line = {}
        if thoughts := "".join(self._thoughts):
            more["thinking"] = thoughts
        if self._calls:
            more["tool_calls"] = self._calls
        self.whole = self.shape.line(self._model, "".join(self._texts), **more) | end
        if self._logprobs:
            self.whole["logprobs"] = self._logprobs
        return self.shape.line(self._model, "") | end
