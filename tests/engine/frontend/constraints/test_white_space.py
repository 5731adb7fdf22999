"""White space between the parts of a constrained answer: as anyone indents, but never without end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tiny
import tool_templates
from engine.frontend.constraints.grammars import Grammars
from engine.frontend.constraints.matcher import Matcher
from engine.frontend.template import ChatTemplate
from engine.frontend.tokenizer import vocabulary
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.frontend.tool_formats.grammar import tool_constraint
from engine.gguf.reader import GGUFFile
from engine.messages import Constraint, ConstraintKind, Tool, ToolChoice

MOST = 200  # characters of white space in a row
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "count": {"type": "integer"},
        "kind": {"enum": ["a", "b"]},
        "list": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2},
        "inner": {
            "type": "object",
            "properties": {"x": {"type": "null"}},
            "additionalProperties": False,
        },
    },
    "required": ["count", "kind", "list", "inner"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path: Path = tiny.write(tmp_path_factory.mktemp("model") / "tiny.gguf")
    with GGUFFile.open(path) as file:
        return vocabulary.find(file).tokenizer()


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer) -> Grammars:
    return Grammars(tokenizer, tokenizer.size)


def nested(depth: int) -> Any:
    """An object of that many levels, half of them lists."""
    value: Any = {"a": 1, "b": [], "c": {}}
    for at in range(depth):
        value = {"a": value, "b": "x"} if at % 2 else [value, True]
    return {"top": value}


@pytest.mark.parametrize("options", [{"indent": 4}, {"indent": 2}, {"indent": "\t"}, {}])
@pytest.mark.parametrize("schema", ['{"type": "object"}', "true"])
def test_deep_json_may_be_indented(
    options: dict[str, Any], schema: str, tokenizer: Tokenizer, grammars: Grammars
) -> None:
    matcher = Matcher(grammars.compile(Constraint(ConstraintKind.JSON_SCHEMA, schema)))
    text = json.dumps(nested(16), **options)
    for ends in ("\n", "\r\n"):
        tokens = tokenizer.encode_within(text.replace("\n", ends))
        assert matcher.allowed(tokens) == len(tokens)


def constraints() -> dict[str, Constraint]:
    """Of answers in JSON, and of those that must call a tool, for each family."""
    made = {"JSON": Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(SCHEMA))}
    tools = (Tool("f", "", json.dumps(SCHEMA)),)
    for name, source in tool_templates.TEMPLATES.items():
        form = ChatTemplate(source, bos="", eos="").tool_format
        found = tool_constraint(form, tools, ToolChoice.REQUIRED, parallel=False)
        assert found is not None
        made[name] = found
    return made


@pytest.mark.parametrize("name", ["JSON", *tool_templates.TEMPLATES])
def test_white_space_that_is_written_wherever_it_may_be_ends(
    name: str, tokenizer: Tokenizer, grammars: Grammars
) -> None:
    # A model that ends a string too early writes spaces until the limit (omlx 2990, vllm 38696).
    matcher = Matcher(grammars.compile(constraints()[name]))
    ends = set(tokenizer.end_tokens)
    spaces = [
        token
        for token in range(tokenizer.size)
        if (piece := tokenizer.piece(token)) and not piece.strip() and token not in ends
    ]
    assert len(spaces) > 2
    text = b""
    run = 0
    while not matcher.is_finished:
        mask = matcher.mask()
        allowed = [token for token in range(tokenizer.size) if mask[token // 32] >> token % 32 & 1]
        token = next((one for one in spaces if one in allowed), allowed[0])
        if token in ends:
            break
        piece = tokenizer.piece(token)
        run = 0 if piece.strip() else run + len(piece)
        assert run <= MOST, text[-400:]
        text += piece
        matcher.accept(token)
        assert len(text) < 8000, text
    assert matcher.is_complete, text
