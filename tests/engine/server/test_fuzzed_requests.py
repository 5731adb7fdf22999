"""Requests of every API with arbitrary values in their fields: answered, or one sentence."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.server.anthropic import messages
from engine.server.errors import ApiError, Family
from engine.server.fields import Fields
from engine.server.ollama import chat
from engine.server.openai import responses
from engine.server.pictures import PictureAccess

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}
RESPONSE = {
    "model": "m",
    "instructions": "a",
    "input": [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "a"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
            ],
        },
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "a"},
    ],
    "tools": [TOOL],
    "tool_choice": {"type": "function", "name": "f"},
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {"format": {"type": "json_schema", "name": "a", "schema": {}}},
    "include": ["reasoning.encrypted_content"],
    "temperature": 1,
    "max_output_tokens": 5,
    "stream": True,
}
MESSAGE = {
    "model": "m",
    "max_tokens": 5,
    "system": [{"type": "text", "text": "a"}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "a"},
                {"type": "image", "source": {"type": "base64", "data": "AAAA"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "a", "signature": "b"},
                {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": "a"},
                {"type": "document", "source": {"type": "text", "data": "a"}},
            ],
        },
    ],
    "tools": [{"name": "f", "input_schema": {}}],
    "tool_choice": {"type": "tool", "name": "f"},
    "thinking": {"type": "enabled", "budget_tokens": 5},
    "output_config": {"effort": "low"},
    "stop_sequences": ["a"],
}
CHAT = {
    "model": "m",
    "messages": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
        {"role": "tool", "tool_name": "f", "content": "a", "images": ["AAAA"]},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "options": {"temperature": 1, "stop": ["a"], "num_predict": 5},
    "format": {"type": "object"},
    "think": "low",
    "keep_alive": "5m",
}
PROMPT = {
    "model": "m",
    "prompt": "a",
    "images": ["AAAA"],
    "system": "b",
    "options": {},
    "raw": False,
}
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9)
    | st.sampled_from(["text", "image", "tool_use", "message", "function", "assistant", "1h", "-"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "role", "content", "text", "name", "a"]), inner)
    ),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all fields and elements in a value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    found: list[tuple[Any, ...]] = []
    for key, inner in pairs:
        found.append((*path, key))
        if isinstance(inner, dict | list):
            found += places(inner, (*path, key))
    return found


@pytest.mark.parametrize(
    ("parse", "body", "family"),
    [
        (responses.parse, RESPONSE, Family.OPENAI),
        (responses.parse_compaction, RESPONSE, Family.OPENAI),
        (messages.parse, MESSAGE, Family.ANTHROPIC),
        (chat.parse_chat, CHAT, Family.OLLAMA),
        (chat.parse_prompt, PROMPT, Family.OLLAMA),
    ],
)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_value_anywhere(
    parse: Callable[[Any], Any], body: dict[str, Any], family: Family, data: st.DataObject
) -> None:
    made = copy.deepcopy(body)
    for _ in range(data.draw(st.integers(1, 3))):
        *path, last = data.draw(st.sampled_from(places(made)))
        holder: Any = made
        for key in path:
            holder = holder[key]
        holder[last] = data.draw(VALUES)
    url = SimpleNamespace(path="/v1/responses")
    call: Any = SimpleNamespace(
        body=Fields(made), exchange=None, pictures=PictureAccess(), request=SimpleNamespace(url=url)
    )
    error: ApiError | None = None
    try:
        parse(call)
    except ApiError as found:
        error = found
    if error is not None:
        assert error.status == 400
        assert json.dumps(error.body(family))
        assert str(error).endswith(".")
