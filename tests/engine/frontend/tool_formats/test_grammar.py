"""Constraints made of tools: what templates write is allowed, what a schema forbids is not."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import tiny
import tool_templates
from engine.errors import RequestError
from engine.frontend.constraints.grammars import Grammars
from engine.frontend.constraints.matcher import Matcher
from engine.frontend.template import ChatTemplate
from engine.frontend.tokenizer import vocabulary
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.frontend.tool_formats.formats import Kind
from engine.frontend.tool_formats.grammar import tool_constraint
from engine.frontend.tool_formats.parser import ToolCallParser
from engine.gguf.reader import GGUFFile
from engine.messages import Constraint, Role, Tool, ToolCall, ToolChoice, Turn
from engine.messages.reasoning_markers import ThoughtMarkers

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1},
        "unit": {"enum": ["c", "f"]},
        "places": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = (
    Tool("get_weather", "Weather", json.dumps(SCHEMA)),
    Tool("get_time", "Time", '{"type": "object", "properties": {}, "additionalProperties": false}'),
)
RIGHT = ({"city": "Zürich", "days": 3}, {"city": "Bern", "unit": "c"}, {"city": "B", "days": 12})
WRONG = ({"days": 3}, {"city": "Bern", "unit": "k"}, {"city": "Bern", "days": "many"})


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path: Path = tiny.write(tmp_path_factory.mktemp("model") / "tiny.gguf")
    with GGUFFile.open(path) as file:
        return vocabulary.find(file).tokenizer()


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer) -> Grammars:
    return Grammars(tokenizer, tokenizer.size)


def template(name: str) -> ChatTemplate:
    return ChatTemplate(tool_templates.TEMPLATES[name], bos="", eos="")


def written(name: str, calls: Sequence[ToolCall]) -> str:
    made, question = template(name), Turn(Role.USER, "Well?")
    prompt = made.render((question,), tools=TOOLS)
    turns = (question, Turn(Role.ASSISTANT, tuple(calls)))
    text = made.render(turns, tools=TOOLS, add_generation_prompt=False).removeprefix(prompt)
    for end in ("<|call|>", "<|end|>"):
        text = text.removesuffix(end)
    return text.lstrip()


def call(arguments: Mapping[str, object], index: int = 0, name: str = "get_weather") -> ToolCall:
    text = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(f"functions.{name}:{index}", name, text)


def allows(grammars: Grammars, tokenizer: Tokenizer, constraint: Constraint, text: str) -> bool:
    matcher = Matcher(grammars.compile(constraint))
    tokens = tokenizer.encode_within(text)
    if matcher.allowed(tokens) < len(tokens):
        return False
    for token in tokens:
        matcher.accept(token)
    return matcher.is_complete


NAMES = sorted(tool_templates.TEMPLATES.keys() - {"gpt-oss", "kimi-k2", "kimi-k3", "cohere"})


@pytest.mark.parametrize("name", NAMES)
def test_a_call_that_must_be_is_one_that_the_schema_allows(
    name: str, tokenizer: Tokenizer, grammars: Grammars
) -> None:
    form = template(name).tool_format
    required = tool_constraint(form, TOOLS, ToolChoice.REQUIRED, parallel=True)
    assert required is not None
    for one in RIGHT:
        text = written(name, [call(one)])
        assert allows(grammars, tokenizer, required, text), text
    both = written(name, [call(RIGHT[0]), call(RIGHT[1], 1)])
    assert allows(grammars, tokenizer, required, both), both
    single = tool_constraint(form, TOOLS, ToolChoice.REQUIRED, parallel=False)
    assert single is not None
    assert not allows(grammars, tokenizer, single, both)
    for one in WRONG:
        text = written(name, [call(one)])
        assert not allows(grammars, tokenizer, required, text), text
    assert not allows(grammars, tokenizer, required, "Hello!")
    assert not allows(grammars, tokenizer, required, written(name, [call({}, 0, "other")]))


@pytest.mark.parametrize("name", NAMES)
def test_a_call_that_may_be_comes_after_any_text(
    name: str, tokenizer: Tokenizer, grammars: Grammars
) -> None:
    form = template(name).tool_format
    free = tool_constraint(form, TOOLS, ToolChoice.AUTO, parallel=True)
    assert free is not None
    text = written(name, [call(RIGHT[0])])
    assert allows(grammars, tokenizer, free, "Hello, a < b [1] {x}!")
    assert allows(grammars, tokenizer, free, text)
    assert allows(grammars, tokenizer, free, "<think>\nWell.\n</think>\n\nI look.\n" + text)
    wrong = written(name, [call(WRONG[1])])
    assert not allows(grammars, tokenizer, free, wrong)
    both = written(name, [call(RIGHT[0]), call(RIGHT[1], 1)])
    for behind in (
        "",
        "\n",
        "\n\nI wait for {it}.",
        f"\nAnd then:\n{text}",
        f"\nAnd:\n{both} Done.",
    ):
        assert allows(grammars, tokenizer, free, both + behind), behind
    assert not allows(grammars, tokenizer, free, f"{text}\nAnd then:\n{wrong}")
    single = tool_constraint(form, TOOLS, ToolChoice.AUTO, parallel=False)
    assert single is not None
    assert not allows(grammars, tokenizer, single, f"{text}\nAnd then:\n{text}")


@pytest.mark.parametrize("name", ["hermes", "qwen3-xml"])
def test_a_named_tool_is_called_perhaps_after_thoughts(
    name: str, tokenizer: Tokenizer, grammars: Grammars
) -> None:
    form = template(name).tool_format
    markers = ThoughtMarkers(can_think=True)
    named = tool_constraint(form, TOOLS, "get_time", parallel=True, thoughts=markers)
    assert named is not None
    text = written(name, [call({}, 0, "get_time")])
    assert allows(grammars, tokenizer, named, text)
    assert allows(grammars, tokenizer, named, f"<think>\nWell.\n</think>\n\n{text}")
    assert not allows(grammars, tokenizer, named, "<think>\nWell.\n</think>\n\nHello!")
    twice = written(name, [call({}, 0, "get_time"), call({}, 1, "get_time")])
    assert not allows(grammars, tokenizer, named, twice)
    assert not allows(grammars, tokenizer, named, written(name, [call(RIGHT[0])]))


def test_harmony_calls_follow_its_headers(tokenizer: Tokenizer, grammars: Grammars) -> None:
    form = template("gpt-oss").tool_format
    assert form.kind is Kind.HARMONY
    head = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
    for choice in (ToolChoice.AUTO, ToolChoice.REQUIRED):
        made = tool_constraint(form, TOOLS, choice, parallel=True)
        assert made is not None
        assert allows(grammars, tokenizer, made, head + '{"city": "Bern"}')
        assert not allows(grammars, tokenizer, made, head + '{"days": 1}')
        assert not allows(grammars, tokenizer, made, head.replace("weather", "w") + "{}")


def test_a_choice_that_is_no_tool_is_refused() -> None:
    form = template("hermes").tool_format
    with pytest.raises(RequestError, match="'get_news' that the answer must call is not among"):
        tool_constraint(form, TOOLS, "get_news", parallel=True)
    with pytest.raises(RequestError, match="schema of the tool 'f' is not JSON"):
        tool_constraint(form, [Tool("f", "", "{")], ToolChoice.AUTO, parallel=True)
    assert tool_constraint(form, TOOLS, ToolChoice.NONE, parallel=True) is None
    assert tool_constraint(form, (), ToolChoice.AUTO, parallel=True) is None


@pytest.mark.parametrize("name", ["hermes", "qwen3-xml", "gemma-4"])
def test_a_tool_with_many_optional_arguments_can_be_called_twice(
    name: str, tokenizer: Tokenizer, grammars: Grammars
) -> None:
    kinds = ("string", "integer", "boolean", "number")
    properties = {f"argument_{at}": {"type": kinds[at % 4]} for at in range(48)}
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    tools = (Tool("get_weather", "", json.dumps(schema)), *TOOLS[1:])
    form = template(name).tool_format
    made = tool_constraint(form, tools, ToolChoice.AUTO, parallel=True)
    assert made is not None
    calls = [call({"argument_1": 3, "argument_44": "x"}), call({"argument_3": 2.5}, 1)]
    assert allows(grammars, tokenizer, made, written(name, calls))
    assert not allows(grammars, tokenizer, made, written(name, [call({"argument_1": "x"})]))


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A vocabulary whose markers of calls are control tokens."""
    words = tiny.bpe("llama")
    tokens = [*words["tokenizer.ggml.tokens"], "<tool_call>", "</tool_call>"]
    kinds = [*words["tokenizer.ggml.token_type"], tiny.CONTROL, tiny.CONTROL]
    metadata = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds}
    path = tmp_path_factory.mktemp("marked") / "tiny.gguf"
    tiny.write(path, vocabulary=len(tokens), metadata=metadata)
    with GGUFFile.open(path) as file:
        return vocabulary.find(file).tokenizer()


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("begins", [True, False])
def test_markers_may_be_tokens_or_their_letters(
    begins: bool, ends: bool, marked: Tokenizer
) -> None:
    grammars = Grammars(marked, marked.size)

    def spelled(text: str) -> list[int]:
        found: list[int] = []
        for part in re.split("(</?tool_call>)", text):
            token = marked.token_id(part)
            if token is not None and (ends if part.startswith("</") else begins):
                found.append(token)
            else:
                found += [one for letter in part for one in marked.encode_within(letter)]
        return found

    form = template("hermes").tool_format
    for choice in (ToolChoice.AUTO, ToolChoice.REQUIRED):
        made = tool_constraint(form, TOOLS, choice, parallel=True)
        assert made is not None
        is_free = choice is ToolChoice.AUTO
        grammar = grammars.compile(made)
        for arguments in (*RIGHT, *WRONG):
            tokens = spelled(written("hermes", [call(arguments)] * 2))
            is_right = arguments in RIGHT and (is_free or (begins and ends))
            assert (Matcher(grammar).allowed(tokens) == len(tokens)) is is_right
            tokens = spelled(f"I look: {written('hermes', [call(arguments)])}\nSo.")
            is_right = arguments in RIGHT and is_free
            assert (Matcher(grammar).allowed(tokens) == len(tokens)) is is_right


@pytest.mark.parametrize("name", NAMES)
def test_calls_in_a_row_end(name: str, tokenizer: Tokenizer, grammars: Grammars) -> None:
    # A model that must call calls until the limit of tokens (vllm 50399).
    form = template(name).tool_format
    required = tool_constraint(form, TOOLS, ToolChoice.REQUIRED, parallel=True)
    assert required is not None
    for count in (32, 33):
        text = written(name, [call({}, at, "get_time") for at in range(count)])
        assert allows(grammars, tokenizer, required, text) is (count == 32)


@pytest.mark.parametrize("markers", [("<think>", "</think>"), ("[THINK]", "[/THINK]")])
def test_a_marker_in_thoughts_begins_no_call(
    markers: tuple[str, str], tokenizer: Tokenizer, grammars: Grammars
) -> None:
    opens, ends = markers
    form = template("hermes").tool_format
    made = tool_constraint(
        form,
        TOOLS,
        ToolChoice.AUTO,
        parallel=True,
        thoughts=ThoughtMarkers(opens, ends, can_think=True),
    )
    assert made is not None
    text = written("hermes", [call(RIGHT[0])])
    thoughts = f"{opens}\nI write <tool_call> tags or not.\n{ends}\n\n"
    for right in (thoughts + "Hello!", f"\n{thoughts}I look.\n{text}", text, "Hello <thin", ""):
        assert allows(grammars, tokenizer, made, right), right
    for wrong in (thoughts + "<tool_call> is", f"{opens} I", f"{thoughts}<tool_call>\n{{}}"):
        assert not allows(grammars, tokenizer, made, wrong), wrong


def test_thoughts_may_begin_with_a_control_token(tokenizer: Tokenizer, grammars: Grammars) -> None:
    form, opens = template("hermes").tool_format, "<|im_start|>"
    control = tokenizer.token_id(opens)
    assert control is not None
    assert tokenizer.is_control(control)
    markers = ThoughtMarkers(opens, "</think>", can_think=True)
    made = tool_constraint(form, TOOLS, ToolChoice.AUTO, parallel=True, thoughts=markers)
    assert made is not None
    thoughts = [control, *tokenizer.encode_within("I write <tool_call> or not.</think>\n\n")]
    for text in ("Hello!", written("hermes", [call(RIGHT[0])])):
        for tokens in (thoughts + tokenizer.encode_within(text), tokenizer.encode_within(text)):
            matcher = Matcher(grammars.compile(made))
            assert matcher.allowed(tokens) == len(tokens)


def test_two_tools_of_one_name_are_refused() -> None:
    tools, form = [TOOLS[0], *TOOLS], template("hermes").tool_format
    with pytest.raises(RequestError, match="2 tools have the name 'get_weather'"):
        tool_constraint(form, tools, ToolChoice.AUTO, parallel=True)
    assert tool_constraint(form, tools, ToolChoice.NONE, parallel=True) is None


def test_a_hundred_tools_are_told_apart(tokenizer: Tokenizer, grammars: Grammars) -> None:
    tools = [Tool(f"tool_{at}", "", json.dumps(SCHEMA)) for at in range(100)]
    form = template("hermes").tool_format
    required = tool_constraint(form, tools, ToolChoice.REQUIRED, parallel=True)
    assert required is not None
    for at, right in ((0, True), (57, True), (99, True), (100, False)):
        text = written("hermes", [call(RIGHT[0], name=f"tool_{at}")])
        assert allows(grammars, tokenizer, required, text) is right


def test_a_call_without_a_marker_may_have_a_type(tokenizer: Tokenizer, grammars: Grammars) -> None:
    form = template("llama-3").tool_format
    made = tool_constraint(form, TOOLS, ToolChoice.AUTO, parallel=True)
    assert made is not None
    for begin in ("", '"type": "function", '):
        right, wrong = (
            f'{{{begin}"name": "get_weather", "parameters": {json.dumps(one)}}}'
            for one in (RIGHT[1], WRONG[1])
        )
        assert allows(grammars, tokenizer, made, right)
        assert allows(grammars, tokenizer, made, f"{right}; {right}\nI wait.")
        assert not allows(grammars, tokenizer, made, wrong)
        parser = ToolCallParser(form, TOOLS, constrained=True)
        pieces = [one for letter in right for one in parser.push(letter)]
        assert json.loads("".join(one.arguments for one in pieces)) == RIGHT[1]
        assert len(pieces) > 5
    assert allows(grammars, tokenizer, made, '{"type": "function", "name": "get_news"}')
