"""Events of an answer in the Messages format, and the message that they add up to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from engine.messages import FinishReason
from engine.server.carried import pack
from engine.server.errors import ApiError, Family
from engine.server.service import new_id
from engine.server.values import Begun, CallDelta, Content, Delta, Done, Reasoning, Usage

Event = dict[str, Any]  # with its "type"

_STOP_REASONS = {
    FinishReason.STOP: "stop_sequence",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.CONTEXT: "model_context_window_exceeded",
    FinishReason.TOOL_CALLS: "tool_use",
}
_NO_ID = re.compile(r"[^a-zA-Z0-9_-]")  # characters that an id of a call must not have


class MessageEvents:
    """Turns the deltas of one answer into events; `whole` is the message so far."""

    def __init__(self, *, hides_thoughts: bool = False) -> None:
        """`hides_thoughts`: the client gets them packed only, to give them back."""
        self._hides_thoughts = hides_thoughts
        self._block: dict[str, Any] | None = None  # that grows
        self._call = -1  # index of the tool call that grows; -1: none does
        self._text: list[str] = []
        self.whole: dict[str, Any] = {
            "id": new_id("msg_"),
            "type": "message",
            "role": "assistant",
            "model": "",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "stop_details": None,
            "container": None,
            "usage": _usage(Usage()),
        }

    def push(self, delta: Delta) -> Iterator[Event]:
        """The events of a delta."""
        match delta:
            case Begun(model, prompt, cached):
                self.whole |= {"model": model, "usage": _usage(Usage(prompt, cached))}
                yield {"type": "message_start", "message": self.whole | {"content": []}}
                yield {"type": "ping"}
            case Reasoning(text):
                if text:
                    yield from self._open("thinking")
                    yield from self._grow(text)
            case Content(text):
                if text:
                    yield from self._open("text")
                    yield from self._grow(text)
            case CallDelta():
                yield from self._open("tool_use", delta)
                yield from self._grow(delta.arguments)
            case Done():
                yield from self._finish(delta)

    def fail(self, error: ApiError) -> Event:
        """The event of an error after the answer began."""
        return error.body(Family.ANTHROPIC)

    def _open(self, kind: str, call: CallDelta | None = None) -> Iterator[Event]:
        """Begin a block unless it goes on; the one before it is complete."""
        number = -1 if call is None else call.index
        if self._block is not None:
            if self._block["type"] == kind and self._call == number:
                return
            yield from self._close()
        if call is not None:
            block = {"type": kind, "id": _NO_ID.sub("_", call.id), "name": call.name, "input": {}}
            block["caller"] = {"type": "direct"}
        elif kind == "thinking":
            block = {"type": kind, "thinking": "", "signature": ""}
        else:
            block = {"type": kind, "text": "", "citations": None}
        self._block, self._call, self._text = block, number, []
        self.whole["content"].append(block)
        yield self._event("content_block_start", content_block=dict(block))

    def _grow(self, text: str) -> Iterator[Event]:
        assert self._block is not None
        self._text.append(text)
        kind = self._block["type"]
        if not text or (kind == "thinking" and self._hides_thoughts):
            return
        name, field = {
            "text": ("text_delta", "text"),
            "thinking": ("thinking_delta", "thinking"),
            "tool_use": ("input_json_delta", "partial_json"),
        }[kind]
        yield self._event("content_block_delta", delta={"type": name, field: text})

    def _close(self) -> Iterator[Event]:
        """Complete the block that grows."""
        block, text = self._block, "".join(self._text)
        assert block is not None
        if block["type"] == "thinking":
            if self._hides_thoughts:
                block["signature"] = pack(text)
            else:
                block["thinking"] = text
            signature = {"type": "signature_delta", "signature": block["signature"]}
            yield self._event("content_block_delta", delta=signature)
        elif block["type"] == "text":
            block["text"] = text
        else:
            block["input"] = _input(text)
        yield self._event("content_block_stop")
        self._block = None

    def _event(self, type: str, **fields: Any) -> Event:
        return {"type": type, "index": len(self.whole["content"]) - 1, **fields}

    def _finish(self, done: Done) -> Iterator[Event]:
        if not any(block["type"] != "thinking" for block in self.whole["content"]):
            yield from self._open("text")  # an answer without text: clients read its last block
        if self._block is not None:
            yield from self._close()
        reason = _STOP_REASONS.get(done.finish_reason, "end_turn")
        stop = done.stop or None
        usage = _usage(done.usage)
        self.whole |= {"stop_reason": reason, "stop_sequence": stop, "usage": usage}
        ended = {"stop_reason": reason, "stop_sequence": stop, "stop_details": None}
        yield {"type": "message_delta", "delta": ended | {"container": None}, "usage": usage}
        yield {"type": "message_stop"}


def _input(text: str) -> Any:
    """The arguments of a call; {} for one that was cut."""
    try:
        return json.loads(text or "{}")
    except ValueError:
        return {}


def _usage(usage: Usage) -> dict[str, Any]:
    """The tokens of an answer; those of the prompt that were cached count on their own."""
    return {
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "cache_creation": None,
        "output_tokens": usage.generated,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
        "server_tool_use": None,
        "service_tier": "standard",
        "inference_geo": None,
    }
