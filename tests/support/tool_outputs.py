"""Recorded outputs of models that call tools, as the package canitoolcall has them."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import tool_templates
from engine.frontend.answer_stream import AnswerStream
from engine.frontend.answer_stream import Kind as PieceKind
from engine.frontend.template import ChatTemplate
from engine.frontend.tool_formats import tables
from engine.frontend.tool_formats.formats import Kind, ToolFormat
from engine.frontend.tool_formats.parser import CallDelta, Delta
from engine.frontend.tool_formats.stage import ToolCallStage
from engine.messages import Tool
from engine.messages.reasoning_markers import ThoughtMarkers


def _changed(form: ToolFormat, old: str, new: str) -> ToolFormat:
    """A format with another text in all its markers."""
    changes: dict[str, Any] = {}
    for field in fields(form):
        value = getattr(form, field.name)
        if isinstance(value, str):
            changes[field.name] = value.replace(old, new)
        elif field.name == "section":
            changes[field.name] = tuple(one.replace(old, new) for one in value)
    return replace(form, **changes)


def _learned(name: str) -> ToolFormat:
    return ChatTemplate(tool_templates.TEMPLATES[name], bos="", eos="").tool_format


# By name: those that are known, those that a template shows, and others of DeepSeek.
FORMATS = {
    "generic": tables.GENERIC,
    "gpt-oss": tables.HARMONY,
    **tables.FORMATS,
    **{name: _learned(name) for name in ("hermes", "glm-4.7", "deepseek-v3")},
}
FORMATS["deepseek-v4"] = _changed(FORMATS["deepseek-v3.2"], "function_calls", "tool_calls")
FORMATS["deepseek-v4.1"] = _changed(
    _changed(FORMATS["deepseek-v3.2"], "function_calls", "calls"), "DSML\uff5c", "DSML\uff5c "
)
_SPECIAL = re.compile(r"(<\|[^<>|]*\|>|</?[a-z_]+>|\[[A-Z_/]+\])")
FORMAT_NAMES = {
    "deepseek": {
        "V3-0324": "deepseek-v3",
        "V3.1": "deepseek-v3.1",
        "V3.2": "deepseek-v3.2",
        "V4-Flash": "deepseek-v4",
        "V4.1": "deepseek-v4.1",
    },
    "gemma4": {"": "gemma-4"},
    "glm": {"4.5": "glm-4.5", "": "glm-4.7"},
    "gpt-oss": {"": "gpt-oss"},
    "kimi": {"K3": "kimi-k3", "": "kimi-k2"},
    "llama": {"Llama-4": "llama-4", "": "llama-3"},
    "mistral": {"v0.3": "mistral-v3", "": "mistral-v11"},
    "qwen3-hermes": {"": "hermes"},
    "qwen3-xml": {"": "qwen3-xml"},
}
_USUAL = ThoughtMarkers(can_think=True)
_K3_ANSWER = "<|open|>response<|sep|>"
_FINAL = "<|channel|>final<|message|>"
_ANALYSIS = "<|channel|>analysis<|message|>"
MARKERS = {
    "gemma-4": ThoughtMarkers("<|channel>thought", "<channel|>", "<channel|>", can_think=True),
    "gpt-oss": ThoughtMarkers(
        _ANALYSIS,
        "<|end|><|start|>assistant" + _FINAL,
        header=_FINAL,
        again="<|end|><|start|>assistant" + _ANALYSIS,
        can_think=True,
    ),
    "kimi-k3": ThoughtMarkers(
        "<|open|>think<|sep|>",
        "<|close|>think<|sep|>" + _K3_ANSWER,
        header=_K3_ANSWER,
        can_think=True,
    ),
    "mistral-v11": ThoughtMarkers("[THINK]", "[/THINK]", "[/THINK]", can_think=True),
}


class Pieces:
    """Pieces of a text in place of the tokens of a vocabulary."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self._pieces = [piece.encode() for piece in pieces]

    def piece(self, token: int) -> bytes:
        return self._pieces[token]

    def shown_piece(self, token: int) -> bytes:
        return self._pieces[token]

    def token_id(self, text: str) -> int | None:
        return None


def format_name(family: str, model: str) -> str:
    """The format of a fixture's family and model."""
    return next(name for part, name in FORMAT_NAMES[family].items() if part in model)


def cuts(text: str) -> Iterator[tuple[str, list[str]]]:
    """A text in pieces, cut in several ways."""
    yield "one", [text]
    yield "special", [piece for piece in _SPECIAL.split(text) if piece]
    yield "token", list(text)
    for seed in range(1, 6):
        draw, pieces, at = random.Random(seed), list[str](), 0
        while at < len(text):
            length = draw.randint(1, 24)
            pieces.append(text[at : at + length])
            at += length
        yield f"rand:{seed}:8", pieces


def parsed(fixture: Any, prompt: str, pieces: Sequence[str]) -> tuple[str, str, list[CallDelta]]:
    """The text, the thoughts and the calls of an output in pieces, behind the end of a prompt."""
    name = format_name(fixture.family, fixture.reference_model)
    form: ToolFormat = FORMATS[name]
    markers = MARKERS.get(name, _USUAL)
    if "Magistral-Small-2506" in fixture.reference_model:
        markers = _USUAL
    begun = markers.opening(prompt)
    all_pieces = [*([begun] if begun else []), *pieces]
    stream = AnswerStream(markers, Pieces(all_pieces), calls_end=form.kind is Kind.HARMONY)  # type: ignore[arg-type]
    tools = [Tool(one["function"]["name"], schema=_schema(one)) for one in fixture.tools]
    stage = ToolCallStage(form, tools)
    deltas: list[Delta] = []
    for token in range(len(all_pieces) + 1):
        for kind, text in stream.push(token) if token < len(all_pieces) else stream.flush():
            if kind is PieceKind.THOUGHT:
                deltas += stage.thought(text)
            elif kind is PieceKind.TEXT:
                deltas += stage.text(text)
    deltas += stage.finish(cut=fixture.truncated)
    texts = [one for one in deltas if not isinstance(one, CallDelta)]
    said = "".join(one.text for one in texts if not one.is_thought)
    thought = "".join(one.text for one in texts if one.is_thought)
    return said, thought.strip("\n"), [one for one in deltas if isinstance(one, CallDelta)]


def _schema(tool: Any) -> str:
    return json.dumps(tool["function"].get("parameters") or {})
