"""The clients of OpenAI (Responses), Anthropic and Ollama, unchanged, against the server."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import scripted_model
import tiny_encoders
from engine.server.serve import ServerOptions
from engine.server.service import ServiceOptions
from serving import Served, wait_until

pytestmark = pytest.mark.slow
MODEL, ANSWER, THOUGHTS = "scripted", "One two three.", "I count."
QUESTION: list[Any] = [{"role": "user", "content": "hello there"}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("scripted")
    model = scripted_model.write(folder / f"{MODEL}.gguf", thoughts=scripted_model.THOUGHTS)
    options = ServerOptions(service=ServiceOptions(folders=lambda: (folder,)))
    made = Served(model, options)
    yield made
    made.close()


def package(name: str) -> Any:
    return pytest.importorskip(name, reason=f"the package {name} is not installed")


@pytest.fixture
def openai(scripted: Served) -> Iterator[Any]:
    with package("openai").OpenAI(base_url=f"{scripted.server.address}/v1", api_key="x") as made:
        yield made


@pytest.fixture
def anthropic(scripted: Served) -> Iterator[Any]:
    with package("anthropic").Anthropic(base_url=scripted.server.address, api_key="x") as made:
        yield made


@pytest.fixture
def ollama(scripted: Served) -> Iterator[Any]:
    with package("ollama").Client(host=scripted.server.address) as made:
        yield made


def test_all_fields_that_the_clients_types_require_are_there(scripted: Served) -> None:
    """The clients themselves make their types of anything."""
    types = importlib.import_module
    package("openai")
    response, chat = types("openai.types.responses"), types("openai.types.chat")
    package("anthropic")
    messages = types("anthropic.types")
    asked = {"model": MODEL, "messages": QUESTION}
    include = ["reasoning.encrypted_content", "message.output_text.logprobs"]
    bodies: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "/v1/chat/completions": (chat.ChatCompletion, chat.ChatCompletionChunk, asked),
        "/v1/responses": (
            response.Response,
            response.ResponseStreamEvent,
            {"model": MODEL, "input": "hello", "include": include},
        ),
        "/v1/messages": (
            messages.Message,
            messages.RawMessageStreamEvent,
            asked | {"max_tokens": 50},
        ),
    }
    adapter = package("pydantic").TypeAdapter
    for path, (whole, part, body) in bodies.items():
        adapter(whole).validate_python(scripted.post(path, body))
        with scripted.http.stream("POST", path, json=body | {"stream": True}) as stream:
            found = [line[6:] for line in stream.iter_lines() if line.startswith("data: {")]
        for one in map(json.loads, found):
            if one.get("type") != "ping":
                adapter(part).validate_python(one)
    for one in scripted.get("/v1/models")["data"]:
        adapter(messages.ModelInfo).validate_python(one)
        adapter(types("openai.types").Model).validate_python(one)


def test_openai_a_response(openai: Any) -> None:
    found = openai.responses.create(model=MODEL, input="hello", reasoning={"summary": "auto"})
    thoughts, message = found.output
    assert thoughts.summary[0].text.strip() == THOUGHTS
    assert message.role == "assistant"
    assert found.output_text == ANSWER
    assert found.usage.output_tokens_details.reasoning_tokens > 0
    assert openai.responses.input_tokens.count(model=MODEL, input="hello").input_tokens > 0


def test_openai_a_stream_of_events_adds_up(openai: Any) -> None:
    with openai.responses.stream(model=MODEL, input="hello") as stream:
        pieces = [one.delta for one in stream if one.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(pieces) == final.output_text
    assert [one.type for one in final.output] == ["reasoning", "message"]


def test_openai_a_parsed_response(openai: Any) -> None:
    from pydantic import BaseModel

    class Place(BaseModel):
        city: str

    found = openai.responses.parse(
        model=MODEL, input="hello", text_format=Place, reasoning={"effort": "none"}
    )
    assert found.output_parsed.city == scripted_model.VALUE


def test_openai_a_conversation_goes_on_with_its_reasoning(openai: Any) -> None:
    asked = [{"role": "user", "content": "hello"}]
    options = {"model": MODEL, "store": False, "include": ["reasoning.encrypted_content"]}
    first = openai.responses.create(input=asked, **options)
    asked += [one.model_dump(exclude_none=True) for one in first.output]
    second = openai.responses.create(input=[*asked, QUESTION[0]], **options)
    assert second.output_text == ANSWER
    short = openai.responses.compact(model=MODEL, input=asked)
    assert short.output[-1].type == "compaction"


def test_openai_a_tool_is_called_and_answered(openai: Any) -> None:
    tool = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}
    asked: list[Any] = [{"role": "user", "content": "weather?"}]
    options = {"model": MODEL, "tools": [tool], "reasoning": {"effort": "none"}}
    with openai.responses.stream(input=asked, tool_choice="required", **options) as stream:
        names = [one.type for one in stream]
        found = stream.get_final_response()
    (call,) = [one for one in found.output if one.type == "function_call"]
    assert json.loads(call.arguments) == {"city": scripted_model.VALUE}
    assert "response.function_call_arguments.delta" in names
    asked += [one.model_dump(exclude_none=True) for one in found.output]
    asked.append({"type": "function_call_output", "call_id": call.call_id, "output": "sun"})
    assert openai.responses.create(input=asked, **options).output_text == ANSWER


def test_openai_the_asynchronous_client_leaves_a_stream(scripted: Served) -> None:
    async def run() -> None:
        made = package("openai").AsyncOpenAI(base_url=f"{scripted.server.address}/v1", api_key="x")
        async with made as client:
            stream = await client.responses.create(model=MODEL, input="hello", stream=True)
            async for _ in stream:
                break
            await stream.close()

    asyncio.run(run())
    wait_until(lambda: scripted.server.service.activity().running == 0)


def test_openai_errors_are_typed(openai: Any) -> None:
    errors = package("openai")
    with pytest.raises(errors.NotFoundError):
        openai.responses.create(model="gpt-6", input="hello")
    with pytest.raises(errors.BadRequestError) as raised:
        openai.responses.create(model=MODEL, input="word " * 9000)
    assert raised.value.code == "context_length_exceeded"


def test_anthropic_a_message(anthropic: Any) -> None:
    found = anthropic.messages.create(model=MODEL, max_tokens=50, messages=QUESTION)
    thoughts, text = found.content
    assert thoughts.thinking.strip() == THOUGHTS
    assert text.text == ANSWER
    assert found.stop_reason == "end_turn"
    assert found.usage.output_tokens > 0
    counted = anthropic.messages.count_tokens(model=MODEL, messages=QUESTION)
    assert counted.input_tokens == found.usage.input_tokens + found.usage.cache_read_input_tokens


def test_anthropic_lists_models(anthropic: Any) -> None:
    (found,) = [one for one in anthropic.models.list() if one.id == MODEL]
    assert found.type == "model"
    assert found.created_at.year > 2000
    assert anthropic.models.retrieve(MODEL).display_name == MODEL


def test_anthropic_a_stream_adds_up(anthropic: Any) -> None:
    options = {"model": MODEL, "max_tokens": 50, "messages": QUESTION}
    with anthropic.messages.stream(**options) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert final.content[-1].text == text
    assert text == ANSWER
    assert final.usage.input_tokens + final.usage.cache_read_input_tokens > 0
    with anthropic.beta.messages.stream(**options, betas=["context-1m"]) as stream:
        assert stream.get_final_message().content[-1].text == text


def test_anthropic_a_tool_is_called_and_answered(anthropic: Any) -> None:
    tool = {"name": "weather", "description": "d", "input_schema": SCHEMA}
    messages: list[Any] = [{"role": "user", "content": "weather?"}]
    options = {"model": MODEL, "max_tokens": 99, "tools": [tool], "thinking": {"type": "disabled"}}
    choice = {"type": "tool", "name": "weather"}
    with anthropic.messages.stream(messages=messages, tool_choice=choice, **options) as stream:
        found = stream.get_final_message()
    assert found.stop_reason == "tool_use"
    (call,) = [block for block in found.content if block.type == "tool_use"]
    assert call.input == {"city": scripted_model.VALUE}
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sun"}
    messages += [
        {"role": "assistant", "content": found.content},
        {"role": "user", "content": [result]},
    ]
    found = anthropic.messages.create(messages=messages, **options)
    assert found.content[0].text == ANSWER


def test_anthropic_the_asynchronous_client(scripted: Served) -> None:
    async def run() -> str:
        made = package("anthropic").AsyncAnthropic(base_url=scripted.server.address, api_key="x")
        async with made as client:
            options = {"model": MODEL, "max_tokens": 50, "messages": QUESTION}
            async with client.messages.stream(**options) as stream:
                return (await stream.get_final_message()).content[-1].text

    assert asyncio.run(run()) == ANSWER


def test_anthropic_errors_are_typed(anthropic: Any) -> None:
    errors = package("anthropic")
    with pytest.raises(errors.NotFoundError, match="claude-7"):
        anthropic.messages.create(model="claude-7", max_tokens=9, messages=QUESTION)
    long = [{"role": "user", "content": "word " * 9000}]
    with pytest.raises(errors.BadRequestError, match="prompt is too long"):
        anthropic.messages.create(model=MODEL, max_tokens=9, messages=long)


def test_ollama_a_chat_streams_and_is_whole(ollama: Any) -> None:
    found = ollama.chat(model=MODEL, messages=QUESTION)
    assert found.message.content == ANSWER
    assert found.message.thinking.strip() == THOUGHTS
    assert found.eval_count > 0
    lines = list(ollama.chat(model=MODEL, messages=QUESTION, stream=True))
    assert "".join(one.message.content for one in lines) == ANSWER
    assert lines[-1].done
    made = ollama.generate(model=MODEL, prompt="hello", think=False)
    assert made.response == ANSWER


def test_ollama_an_answer_by_a_schema(ollama: Any) -> None:
    found = ollama.chat(model=MODEL, messages=QUESTION, format=SCHEMA, think=False)
    assert json.loads(found.message.content) == {"city": scripted_model.VALUE}


def test_ollama_a_tool_is_answered(ollama: Any) -> None:
    def weather(city: str) -> str:
        """The weather.

        Args:
          city: where
        """
        return f"sun in {city}"

    call = {"function": {"name": "weather", "arguments": {"city": "Paris"}}}
    messages = [
        *QUESTION,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_name": "weather", "content": weather("Paris")},
    ]
    found = ollama.chat(model=MODEL, messages=messages, tools=[weather], think=False)
    assert found.message.content == ANSWER


def test_ollama_models(ollama: Any) -> None:
    assert MODEL in [one.model for one in ollama.list().models]
    assert MODEL in [one.model for one in ollama.ps().models]
    shown = ollama.show(MODEL)
    assert shown.modelinfo["llama.context_length"] == 4096
    assert "tools" in shown.capabilities
    assert shown.details.format == "gguf"


def test_ollama_embeddings(tmp_path: Path) -> None:
    tiny_encoders.write(tmp_path / "encoder.gguf")
    options = ServerOptions(service=ServiceOptions(folders=lambda: (tmp_path,)))
    client = package("ollama").Client
    served = Served(options=options)
    try:
        with client(host=served.server.address) as made:
            found = made.embed(model="encoder", input=["fox", "dog"])
        assert len(found.embeddings) == 2
    finally:
        served.close()


def test_ollama_errors_are_typed(ollama: Any) -> None:
    with pytest.raises(package("ollama").ResponseError, match="no model 'llama4'") as raised:
        ollama.chat(model="llama4", messages=QUESTION)
    assert raised.value.status_code == 404


def test_ollama_the_asynchronous_client(scripted: Served) -> None:
    async def run() -> str:
        async with package("ollama").AsyncClient(host=scripted.server.address) as client:
            found = await client.chat(model=MODEL, messages=QUESTION)
            return found.message.content

    assert asyncio.run(run()) == ANSWER
