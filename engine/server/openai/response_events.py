"""Events of an answer in the Responses format; the last one has the whole response.

Answers that are not streamed are made of the same events, so that both are equal.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.messages import FinishReason, TokenLogprobs
from engine.server.carried import pack
from engine.server.errors import ApiError, Family
from engine.server.openai.chat import logprob
from engine.server.options import progress, timings
from engine.server.pace import Pace
from engine.server.service import new_id
from engine.server.values import (
    Begun,
    CallDelta,
    Content,
    Delta,
    Done,
    Progress,
    Reasoning,
    Usage,
)

Event = dict[str, Any]  # with its "type"

_CUT = (FinishReason.LENGTH, FinishReason.CONTEXT, FinishReason.CANCELLED)


@dataclass(frozen=True, slots=True)
class EventOptions:
    """How a client wants an answer's events."""

    echoed: Mapping[str, Any]  # fields of the response that repeat the request
    summarizes: bool = False  # reasoning is given as its summary
    top_logprobs: int = 0  # most likely tokens beside each one
    packs: bool = False  # reasoning is also given packed, for clients that give back only that
    times: bool = False  # deltas and the last event have llama.cpp's timings


@dataclass(slots=True)
class _Item:
    """The output item that grows."""

    value: dict[str, Any]  # as the response has it
    index: int  # in the response's output
    call: int = -1  # index of a tool call; -1: it is none
    text: list[str] = field(default_factory=list[str])
    logprobs: list[Any] = field(default_factory=list[Any])


class ResponseEvents:
    """Turns the deltas of one answer into events; `whole` is the response so far."""

    def __init__(self, options: EventOptions) -> None:
        self._options = options
        self._pace = Pace(is_shown=options.times)
        self._count = 0
        self._item: _Item | None = None
        self._finished: list[dict[str, Any]] = []
        self.whole: dict[str, Any] = {
            "id": new_id("resp_"),
            "object": "response",
            "created_at": int(time.time()),
            "completed_at": None,
            "status": "in_progress",
            "incomplete_details": None,
            "error": None,
            "output": [],
            "usage": None,
            **options.echoed,
        }

    def push(self, delta: Delta) -> Iterator[Event]:
        """The events of a delta."""
        timed = self._pace.push(delta)
        for event in self._events(delta):
            yield event | timed if event["type"].endswith(".delta") else event

    def _events(self, delta: Delta) -> Iterator[Event]:
        match delta:
            case Begun(model, sampling=used):
                self.whole |= {
                    "model": model,
                    "temperature": used.temperature,
                    "top_p": used.top_p,
                    "presence_penalty": used.presence_penalty,
                    "frequency_penalty": used.frequency_penalty,
                }
                yield self._event("response.created", response=dict(self.whole))
                yield self._event("response.in_progress", response=dict(self.whole))
            case Reasoning(text):
                if text:
                    yield from self._open("reasoning")
                    yield self._grow("reasoning", text)
            case Content(text):
                # Tokens without a text of their own belong to the message that grows, if one does.
                if text or (
                    delta.logprobs and self._item and self._item.value["type"] == "message"
                ):
                    yield from self._open("message")
                    yield self._grow("message", text, delta.logprobs)
            case CallDelta():
                yield from self._open("function_call", delta)
                if delta.arguments:
                    yield self._grow("function_call", delta.arguments)
            case Progress():  # llama.cpp's, only where it was asked for
                yield self._event(
                    "response.in_progress", response=dict(self.whole), **progress(delta)
                )
            case Done():
                yield from self._finish(delta)

    def fail(self, error: ApiError) -> Event:
        """The event of an error after the answer began."""
        body = error.body(Family.OPENAI)["error"]
        self.whole["status"] = "failed"
        self.whole["error"] = {
            "code": body["code"] or body["type"],
            "message": body["message"],
        }
        return self._event("response.failed", response=self.whole)

    def _event(self, type: str, **fields: Any) -> Event:
        self._count += 1
        return {"type": type, "sequence_number": self._count - 1, **fields}

    def _open(self, kind: str, call: CallDelta | None = None) -> Iterator[Event]:
        """Begin an item unless it goes on; the one before it is complete."""
        number = -1 if call is None else call.index
        if self._item is not None:
            if self._item.value["type"] == kind and self._item.call == number:
                return
            yield from self._close()
        value = _new_item(kind, call)
        self._item = item = _Item(value, len(self._finished), number)
        place = {"output_index": item.index}
        yield self._event("response.output_item.added", **place, item=dict(value))
        place["item_id"] = value["id"]
        if kind == "message":
            part = _text_part("", [])
            yield self._event("response.content_part.added", **place, content_index=0, part=part)
        elif kind == "reasoning" and self._options.summarizes:
            part = {"type": "summary_text", "text": ""}
            name = "response.reasoning_summary_part.added"
            yield self._event(name, **place, summary_index=0, part=part)
        elif kind == "reasoning":
            part = {"type": "reasoning_text", "text": ""}
            yield self._event("response.content_part.added", **place, content_index=0, part=part)

    def _grow(self, kind: str, text: str, logprobs: Sequence[TokenLogprobs] = ()) -> Event:
        item = self._item
        assert item is not None
        item.text.append(text)
        place = {"output_index": item.index, "item_id": item.value["id"], "delta": text}
        if kind == "message":
            made = [logprob(one, self._options.top_logprobs) for one in logprobs]
            item.logprobs += made
            name = "response.output_text.delta"
            return self._event(name, **place, content_index=0, logprobs=made)
        if kind == "function_call":
            return self._event("response.function_call_arguments.delta", **place)
        if self._options.summarizes:
            return self._event("response.reasoning_summary_text.delta", **place, summary_index=0)
        return self._event("response.reasoning_text.delta", **place, content_index=0)

    def _close(self, status: str = "completed") -> Iterator[Event]:
        """Complete the item that grows."""
        item = self._item
        assert item is not None
        self._item = None
        value, text = item.value, "".join(item.text)
        place = {"output_index": item.index, "item_id": value["id"]}
        if value["type"] == "message":
            part = _text_part(text, item.logprobs)
            value |= {"content": [part], "status": status}
            place["content_index"] = 0
            name = "response.output_text.done"
            yield self._event(name, **place, text=text, logprobs=item.logprobs)
            yield self._event("response.content_part.done", **place, part=part)
        elif value["type"] == "function_call":
            value |= {"arguments": text or "{}", "status": status}
            more = {"name": value["name"], "arguments": value["arguments"]}
            yield self._event("response.function_call_arguments.done", **place, **more)
        else:
            if self._options.packs:
                value["encrypted_content"] = pack(text)
            if self._options.summarizes:
                part = {"type": "summary_text", "text": text}
                value["summary"] = [part]
                place["summary_index"] = 0
                yield self._event("response.reasoning_summary_text.done", **place, text=text)
                yield self._event("response.reasoning_summary_part.done", **place, part=part)
            else:
                part = {"type": "reasoning_text", "text": text}
                value["content"] = [part]
                place["content_index"] = 0
                yield self._event("response.reasoning_text.done", **place, text=text)
                yield self._event("response.content_part.done", **place, part=part)
        self._finished.append(value)
        yield self._event("response.output_item.done", output_index=item.index, item=value)

    def _finish(self, done: Done) -> Iterator[Event]:
        is_cut = done.finish_reason in _CUT
        status = "incomplete" if is_cut else "completed"
        if self._item is None and not any(one["type"] != "reasoning" for one in self._finished):
            yield from self._open("message")  # an answer without text: clients read its last item
        if self._item is not None:
            if self._item.value["type"] == "reasoning":
                yield from self._open("message")
            yield from self._close(status)
        self.whole |= {
            "status": status,
            "output": self._finished,
            "usage": usage_object(done.usage),
        }
        if is_cut:
            self.whole["incomplete_details"] = {"reason": "max_output_tokens"}
        else:
            self.whole["completed_at"] = int(time.time())
        times = {"timings": timings(done)} if self._options.times else {}
        yield self._event(f"response.{status}", response=self.whole, **times)


def usage_object(usage: Usage) -> dict[str, Any]:
    """The tokens of an answer."""
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.generated,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.generated,
    }


def _new_item(kind: str, call: CallDelta | None) -> dict[str, Any]:
    """An item that has nothing in it yet."""
    if kind == "message":
        start = {"id": new_id("msg_"), "type": kind, "status": "in_progress"}
        return start | {"role": "assistant", "content": []}
    if call is not None:
        start = {"id": new_id("fc_"), "type": kind, "status": "in_progress"}
        return start | {"call_id": call.id, "name": call.name, "arguments": ""}
    return {"id": new_id("rs_"), "type": kind, "summary": [], "content": []}


def _text_part(text: str, logprobs: list[Any]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}
