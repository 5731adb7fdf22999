"""The body of a request for an answer: messages, samplers, format and tools as servers read them.

What one program understands and another refuses is in tables by `ServerKind`. A server that still
refuses a field names it: `without` leaves it out, and the request is sent again.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import dropwhile
from typing import Any, cast

from app.domain.answer_request import AnswerRequest, PromptMessage
from app.domain.connection import ServerKind
from app.domain.parts import (
    ErrorPart,
    FilePart,
    ImagePart,
    Part,
    PassagesPart,
    TextPart,
    ThoughtPart,
    ToolCallPart,
    ToolResultPart,
    prompt_text,
    unseen_image,
)
from app.domain.picture_types import media_type
from app.domain.tool_files import result_pictures
from app.engines.remote.faults import ErrorBody
from engine import Constraint, ConstraintKind, Detail, Role

Body = dict[str, Any]
ReadImage = Callable[[ImagePart], bytes]  # raises OSError

_K = ServerKind
# Names of samplers that are not the same everywhere; "": the server has none.
_STANDARD = ("temperature", "top_p", "frequency_penalty", "presence_penalty", "seed")
_LLAMA = {
    **dict.fromkeys((*_STANDARD, "top_k", "min_p", "typical_p", "repeat_penalty"), ""),
    "top_n_sigma": "", "xtc_probability": "", "xtc_threshold": "", "dry_multiplier": "",
    "dry_allowed_length": "", "mirostat": "", "mirostat_tau": "", "mirostat_eta": "",
    "temperature_range": "dynatemp_range", "temperature_exponent": "dynatemp_exponent",
    "dry_base": "", "penalty_window": "repeat_last_n",
}  # fmt: skip
_VLLM = {
    **dict.fromkeys((*_STANDARD, "top_k", "min_p"), ""),
    "repeat_penalty": "repetition_penalty",
}
_SAMPLERS: dict[ServerKind, dict[str, str]] = {
    _K.TOKONOMA: _LLAMA,
    _K.LLAMA_SERVER: _LLAMA,
    _K.LM_STUDIO: dict.fromkeys((*_STANDARD, "top_k", "min_p", "repeat_penalty"), ""),
    _K.VLLM: _VLLM,
    _K.SGLANG: _VLLM,
    _K.OLLAMA: dict.fromkeys(_STANDARD, ""),
    _K.OPENAI: _VLLM,  # such as OpenRouter; one that knows fewer names those that it refuses
}
_WHOLE = {"top_k", "seed", "dry_allowed_length", "mirostat", "penalty_window"}  # integers
# Servers that go on with the text of a last message by the model.
CONTINUES = {_K.TOKONOMA, _K.LLAMA_SERVER, _K.VLLM, _K.SGLANG, _K.OLLAMA}
_TEMPLATE_ARGUMENTS = {_K.TOKONOMA, _K.LLAMA_SERVER, _K.VLLM, _K.SGLANG}
_GO_ON = "Continue your last message exactly where it ends. Do not repeat any of it."
_RETURNED = "The pictures that the tools returned:"
_ANY_JSON = {"type": ["object", "array"]}
_FORMATS: dict[ConstraintKind, frozenset[ServerKind]] = {
    ConstraintKind.JSON_SCHEMA: frozenset(_K),
    ConstraintKind.CHOICES: frozenset({_K.TOKONOMA, _K.LLAMA_SERVER, _K.VLLM, _K.SGLANG}),
    ConstraintKind.GBNF: frozenset({_K.TOKONOMA, _K.LLAMA_SERVER, _K.VLLM}),
    ConstraintKind.REGEX: frozenset({_K.TOKONOMA, _K.VLLM, _K.SGLANG}),
}


def formats_of(kind: ServerKind) -> frozenset[ConstraintKind]:
    """The formats that answers of a server can be held to."""
    return frozenset(each for each, kinds in _FORMATS.items() if kind in kinds)


def samplers_of(kind: ServerKind) -> frozenset[str]:
    """The samplers that a server reads, by their names in `engine.Sampling`."""
    return frozenset(_SAMPLERS[kind])


def can_switch_thinking(kind: ServerKind) -> bool:
    """Whether a server can be told that its model thinks first, or does not."""
    return kind in _TEMPLATE_ARGUMENTS or kind is _K.OLLAMA


def request_body(request: AnswerRequest, kind: ServerKind, read: ReadImage) -> Body:
    """The body for a server; reads images, so it may block. Raises OSError."""
    messages = _messages(request.messages, read if request.images else None)
    last: Body = messages[-1] if messages else {}
    continues = last.get("role") == "assistant" and "tool_calls" not in last
    body: Body = {
        "model": request.model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if kind in (_K.VLLM, _K.SGLANG):
        body["stream_options"]["continuous_usage_stats"] = True
    elif kind is _K.LLAMA_SERVER:
        body |= {"timings_per_token": True, "return_progress": True}
    elif kind is _K.TOKONOMA:
        body["return_progress"] = True
    if continues and kind not in CONTINUES:
        body["messages"].append({"role": "user", "content": _GO_ON})
    elif continues and kind in (_K.VLLM, _K.SGLANG):
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    for name, value in request.sampling.items():
        known = _SAMPLERS[kind].get(name)
        if known is not None and not (name == "seed" and value < 0):
            body[known or name] = int(value) if name in _WHOLE else value
    if request.max_tokens:
        body["max_tokens"] = request.max_tokens
    if request.stop:
        body["stop"] = list(request.stop[:4] if kind is _K.OPENAI else request.stop)
    if request.thinking is not None and kind in _TEMPLATE_ARGUMENTS:
        body["chat_template_kwargs"] = {"enable_thinking": request.thinking}
    elif request.thinking is False and kind is _K.OLLAMA:
        body["reasoning_effort"] = "none"
    if request.constraint is not None:
        body |= _format(request.constraint, kind)
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": json.loads(tool.schema or "{}"),
                },
            }
            for tool in request.tools
        ]
        if request.tool_choice in ("none", "required"):
            body["tool_choice"] = request.tool_choice
        elif request.tool_choice != "auto":
            body["tool_choice"] = {"type": "function", "function": {"name": request.tool_choice}}
    return body


def _format(constraint: Constraint, kind: ServerKind) -> Body:
    """The fields for a format that `can_constrain` allows."""
    text = constraint.text
    match constraint.kind:
        case ConstraintKind.JSON_SCHEMA:
            schema = json.loads(text)
            if schema == _ANY_JSON:
                return {"response_format": {"type": "json_object"}}
            named = {"name": "answer", "schema": schema, "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": named}}
        case ConstraintKind.CHOICES if kind is _K.VLLM:
            return {"structured_outputs": {"choice": json.loads(text)}}
        case ConstraintKind.CHOICES if kind is _K.SGLANG:
            choices = cast("list[str]", json.loads(text))
            return {"regex": "|".join(f"({re.escape(each)})" for each in choices)}
        case ConstraintKind.CHOICES:
            choices = cast("list[str]", json.loads(text))
            rule = " | ".join(json.dumps(each, ensure_ascii=False) for each in choices)
            return {"grammar": f"root ::= {rule}"}
        case ConstraintKind.REGEX if kind is _K.SGLANG:
            return {"regex": text}
        case ConstraintKind.REGEX:
            return {"structured_outputs": {"regex": text}}
        case ConstraintKind.GBNF if kind is _K.VLLM:
            return {"structured_outputs": {"grammar": text}}
        case _:
            return {"grammar": text}


# --- messages ------------------------------------------------------------------------------------


def _messages(messages: Sequence[PromptMessage], read: ReadImage | None) -> list[Body]:
    """The messages: none is empty, and none of the user or the system follows another.

    For a model that takes no pictures (`read` is None) a note stands for each: a chat may go on
    with another model than the one that saw them.

    Thoughts are only sent back since the last question, where the results of tools belong to them;
    before it, models were not trained to read their own.
    """
    last = max((at for at, each in enumerate(messages) if each.role is Role.USER), default=-1)
    made: list[Body] = []
    for at, message in enumerate(messages):
        for part in _of_message(message, at > last, read):
            before = made[-1] if made else None
            if before and part["role"] == before["role"] != "tool" and _joins(before, part):
                before["content"] = _joined(before["content"], part["content"])
            else:
                made.append(part)
    return made


def _joins(before: Body, after: Body) -> bool:
    return not before.get("tool_calls") and set(after) == {"role", "content"}


def _joined(first: Any, second: Any) -> Any:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: Any) -> list[Body]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _of_message(message: PromptMessage, thinks: bool, read: ReadImage | None) -> Iterable[Body]:
    """One message of the chat: more than one where results of tools are between its parts."""
    if message.role is not Role.ASSISTANT:
        if content := _content(message.parts, read):
            yield {"role": message.role.value, "content": content}
        return
    parts: list[Part] = []
    pictures: list[Body] = []  # of the results so far: behind all of them, as they are texts
    for part in message.parts:
        if not isinstance(part, ToolResultPart) and pictures:
            yield _of_tools(pictures)
            pictures.clear()
        if isinstance(part, ToolResultPart):
            yield from _of_answer(parts, thinks)
            parts.clear()
            pictures += _pictures(part, read) if read else ()
            if part.call:
                yield {"role": "tool", "tool_call_id": part.call, "content": part.text}
            else:  # servers refuse a result without its call
                yield {
                    "role": "user",
                    "content": f"<tool_response>\n{part.text}\n</tool_response>",
                }
        else:
            parts.append(part)
    if pictures:
        yield _of_tools(pictures)
    yield from _of_answer(parts, thinks)


def _pictures(result: ToolResultPart, read: ReadImage) -> Iterable[Body]:
    """The pictures of a result; the model does without one that is not there any more."""
    for image in result_pictures(result):
        with suppress(OSError):
            yield {"type": "image_url", "image_url": _image(image, read(image))}


def _of_tools(pictures: Sequence[Body]) -> Body:
    """A message of the user, the only one that may have pictures."""
    return {"role": "user", "content": [{"type": "text", "text": _RETURNED}, *pictures]}


def _of_answer(parts: Sequence[Part], thinks: bool) -> Iterable[Body]:
    """A message by the model with its calls; nothing if it said nothing."""
    text = "".join(part.text for part in parts if isinstance(part, TextPart)).lstrip("\n")
    calls = [
        {
            "id": part.call,
            "type": "function",
            "function": {"name": part.name, "arguments": part.arguments or "{}"},
        }
        for part in parts
        if isinstance(part, ToolCallPart)
    ]
    thoughts = "".join(part.text for part in parts if isinstance(part, ThoughtPart))
    if not text.strip() and not calls:
        return
    made: Body = {"role": "assistant", "content": text}
    if thinks and thoughts.strip():  # servers read one of the two names
        made |= {"reasoning_content": thoughts, "reasoning": thoughts}
    if calls:
        made["tool_calls"] = calls
    yield made


def _content(parts: Sequence[Part], read: ReadImage | None) -> Any:
    """Text, or a list of texts and images; "" for nothing to read."""
    if read is None:
        parts = [
            TextPart(unseen_image(part)) if isinstance(part, ImagePart) else part for part in parts
        ]
    if read is None or not any(isinstance(part, ImagePart) for part in parts):
        text = prompt_text(part for part in parts if not isinstance(part, ErrorPart))
        return text if text.strip() else ""
    made: list[Body] = []
    run: list[Part] = []

    def end_run() -> None:
        if (text := prompt_text(run)).strip():
            made.append({"type": "text", "text": text})
        run.clear()

    for part in parts:
        if isinstance(part, ImagePart):
            end_run()
            made.append({"type": "image_url", "image_url": _image(part, read(part))})
        elif isinstance(part, TextPart | FilePart | PassagesPart):
            run.append(part)
    end_run()
    return made


def _image(part: ImagePart, content: bytes) -> Body:
    """A picture with its detail, which servers choose where nothing is said ("auto")."""
    url = data_url(content)
    if part.detail in (Detail.LOW, Detail.HIGH):  # servers know no number of tokens
        return {"url": url, "detail": Detail(part.detail).value}
    return {"url": url}


def data_url(content: bytes) -> str:
    """The bytes of an image as a URL; raises OSError if there are none."""
    if not content:
        raise OSError("The picture's file is empty.")
    kind = media_type(content) or "image/png"
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


# --- refused fields ------------------------------------------------------------------------------

_REQUIRED = {"model", "messages", "stream"}
_SYSTEM = re.compile(r"system (?:role|message|prompt)s? (?:is |are )?(?:not|un)\s?support", re.I)
_NO_PICTURES = re.compile(r"image|vision|multi-?modal|alternat", re.I)  # of tools, or so placed
_NO_PREFILL = re.compile(r"prefill.{0,60}(?:thinking|not support)|last message.{0,40}user", re.I)


def without(body: Body, error: ErrorBody) -> Body | None:
    """The body without what a server refuses by name; None if it names nothing of it."""
    text = f"{error.message} {error.param}"
    if "max_completion_tokens" in text and "max_tokens" in body:
        renamed = {name: value for name, value in body.items() if name != "max_tokens"}
        return {**renamed, "max_completion_tokens": body["max_tokens"]}
    if _SYSTEM.search(text) and (folded := _without_system(body)) is not None:
        return folded
    if _NO_PREFILL.search(text) and body["messages"][-1]["role"] == "assistant":
        arguments = body.get("chat_template_kwargs", {})
        if "thinking" in text and arguments.get("enable_thinking") is not False:
            return {**body, "chat_template_kwargs": {**arguments, "enable_thinking": False}}
        asked = [*body["messages"], {"role": "user", "content": _GO_ON}]
        prefill = ("continue_final_message", "add_generation_prompt")
        kept = {name: value for name, value in body.items() if name not in prefill}
        return {**kept, "messages": asked}
    if _NO_PICTURES.search(text) and (fewer := _without_returned(body)) is not None:
        return fewer
    inner = {
        "include_usage": "stream_options",
        "continuous_usage_stats": "stream_options",
        "enable_thinking": "chat_template_kwargs",
        "json_schema": "",
    }
    words = set(re.findall(r"[a-z][a-z_]+", text))
    named = {inner.get(word, word) for word in words}
    refused = (named & body.keys()) - _REQUIRED - {"tools", "response_format", "grammar"}
    if refused:
        return {name: value for name, value in body.items() if name not in refused}
    for field in ("reasoning_content", "reasoning"):
        if field in words and any(field in each for each in body["messages"]):
            kept = [
                {name: value for name, value in each.items() if name != field}
                for each in body["messages"]
            ]
            return {**body, "messages": kept}
    return None


def _without_returned(body: Body) -> Body | None:
    """The body without the pictures that tools returned; None: there are none."""
    messages: list[Body] = []
    for message in cast("list[Body]", body["messages"]):
        content = message.get("content")
        parts = cast("list[Body]", content) if isinstance(content, list) else []
        if parts[:1] != [{"type": "text", "text": _RETURNED}]:
            messages.append(message)
            continue
        more = dropwhile(lambda each: each["type"] == "image_url", parts[1:])
        if rest := list(more):  # the next question
            messages.append({**message, "content": rest})
    return {**body, "messages": messages} if messages != body["messages"] else None


def _without_system(body: Body) -> Body | None:
    """The body with its instructions at the beginning of the first question."""
    messages = cast("list[Body]", body["messages"])
    if len(messages) < 2 or messages[0]["role"] != "system":
        return None
    system, first, *rest = messages
    joined = {**first, "content": _joined(system["content"], first["content"])}
    return {**body, "messages": [joined, *rest]}
