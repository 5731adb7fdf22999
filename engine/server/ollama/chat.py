"""Ollama's answers to conversations and prompts, as lines of JSON or one object."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from engine.messages import (
    Constraint,
    ConstraintKind,
    FinishReason,
    ReasoningPart,
    TextPart,
    TokenLogprobs,
    ToolCall,
)
from engine.server.conversation import Conversation, call_arguments
from engine.server.errors import ApiError, Family
from engine.server.fields import Fields
from engine.server.http import NDJSON, Call, Stream, json_response, ndjson, post
from engine.server.ollama.names import model_name, nanoseconds, timestamp
from engine.server.openai import messages
from engine.server.openai.chat import logprob
from engine.server.options import keep_seconds, thinking
from engine.server.sampling import sampling
from engine.server.service import Service
from engine.server.values import Begun, CallDelta, Content, Delta, Done, Reasoning, Wanted

_CUT = (FinishReason.LENGTH, FinishReason.CONTEXT)
_EFFORTS = ("low", "medium", "high", "max")
Line = dict[str, Any]


def routes(service: Service) -> list[Route]:
    """The routes of this module."""

    async def answer(call: Call, shape: Shape, wanted: Wanted) -> Response | Stream:
        writer = Lines(shape, call.body.integer("top_logprobs", 0))

        async def frames() -> AsyncGenerator[bytes, None]:
            async with aclosing(service.generate(wanted)) as deltas:
                async for delta in deltas:
                    for line in writer.push(delta):
                        yield ndjson(line)

        if call.body.flag("stream", True):
            return Stream(frames(), NDJSON, _error)
        async with aclosing(frames()) as made:
            async for _ in made:
                pass
        return json_response(writer.whole)

    async def chat(call: Call) -> Response | Stream:
        if not call.body.items("messages"):
            return await _loaded(service, call, CHAT)
        return await answer(call, CHAT, parse_chat(call))

    async def generate(call: Call) -> Response | Stream:
        if not call.body.text("prompt"):
            return await _loaded(service, call, GENERATE)
        return await answer(call, GENERATE, parse_prompt(call))

    return [post("/api/chat", chat), post("/api/generate", generate)]


def parse_chat(call: Call) -> Wanted:
    """What a request for a chat asks for; raises ApiError that names the field at fault."""
    conversation = Conversation()
    for message in call.body.objects("messages"):
        _read_message(message, conversation)
    tools = messages.tools(call.body)
    return replace(_wanted(call), turns=conversation.turns(), tools=tools)


def parse_prompt(call: Call) -> Wanted:
    """What a request for the answer to a prompt asks for; raises ApiError."""
    body = call.body
    for name in ("suffix", "template"):
        if body.text(name):
            body.fail(name, "is not supported; give `system` and `prompt`, or `raw`.")
    if body.items("images"):
        body.fail("images", "has pictures; the models here read text only.")
    prompt = body.text("prompt")
    if body.flag("raw"):
        return replace(_wanted(call), prompt=prompt)
    conversation = Conversation()
    conversation.system(body.text("system"))
    conversation.user(prompt)
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
        stop=options.texts("stop"),
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
    if value == "json":
        return Constraint(ConstraintKind.JSON_SCHEMA, '{"type": "object"}')
    if isinstance(value, str):
        body.fail("format", "must be 'json' or a JSON schema.")
    schema = body.object("format")
    assert schema is not None
    return Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(schema.values))


def _read_message(message: Fields, conversation: Conversation) -> None:
    if message.items("images"):
        message.fail("images", "has pictures; the models here read text only.")
    text = message.text("content")
    match message.choice("role", ("system", "user", "assistant", "tool"), "user"):
        case "system":
            conversation.system(text)
        case "user":
            conversation.user(text)
        case "tool":
            name = message.text("tool_name") or message.text("name")
            conversation.result(message.text("tool_call_id"), text, name)
        case _:
            if thoughts := message.text("thinking"):
                conversation.assistant(ReasoningPart(thoughts))
            if text:
                conversation.assistant(TextPart(text))
            for call in message.objects("tool_calls"):
                conversation.assistant(_call(call, conversation))


def _call(call: Fields, conversation: Conversation) -> ToolCall:
    """A call that the client gives back; without an id, as older clients do, it gets one."""
    function = call.object("function")
    if function is None:
        call.fail("function", "is missing; give the name and the arguments.")
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    id = call.text("id") or f"call{conversation.count_calls:05}"
    return ToolCall(id, function.required_text("name"), call_arguments(text))


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
            case Reasoning(text):
                if text:
                    self._thoughts.append(text)
                    yield self.shape.line(self._model, "", thinking=text)
            case Content(text, logprobs=logprobs):
                if text or logprobs:
                    self._texts.append(text)
                    yield self.shape.line(self._model, text) | self._probabilities(logprobs)
            case CallDelta():
                before = "" if self._call is None else self._call.arguments
                first = delta if self._call is None else self._call
                self._call = replace(first, arguments=before + delta.arguments)
            case Done():
                yield self._finish(delta)

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
        if self._thoughts:
            more["thinking"] = "".join(self._thoughts)
        if self._calls:
            more["tool_calls"] = self._calls
        self.whole = self.shape.line(self._model, "".join(self._texts), **more) | end
        if self._logprobs:
            self.whole["logprobs"] = self._logprobs
        return self.shape.line(self._model, "") | end


def _error(error: ApiError) -> bytes:
    return ndjson(error.body(Family.OLLAMA))
