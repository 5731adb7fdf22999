"""OpenAI's own client against the server: it validates what it reads."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from serving import Served, wait_until

pytestmark = pytest.mark.slow
openai: Any = pytest.importorskip("openai", reason="the package openai is not installed")
QUESTION: list[Any] = [{"role": "user", "content": "hello there"}]


@pytest.fixture
def client(served: Served) -> Any:
    with openai.OpenAI(base_url=f"{served.server.address}/v1", api_key="x") as made:
        yield made


def test_an_answer(client: Any) -> None:
    found = client.chat.completions.create(model="tiny-served", messages=QUESTION, max_tokens=8)
    assert found.choices[0].message.content
    assert found.usage.completion_tokens == 8


def test_a_stream_with_usage(client: Any) -> None:
    stream = client.chat.completions.create(
        model="tiny-served",
        messages=QUESTION,
        max_tokens=8,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage.completion_tokens == 8
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])


def test_the_asynchronous_client_leaves_a_stream(served: Served) -> None:
    async def run() -> None:
        address = f"{served.server.address}/v1"
        async with openai.AsyncOpenAI(base_url=address, api_key="x") as client:
            stream = await client.chat.completions.create(
                model="tiny-served", messages=QUESTION, max_tokens=1000, stream=True
            )
            async for _ in stream:
                break
            await stream.close()

    asyncio.run(run())
    wait_until(lambda: served.running == 0)


def test_a_parsed_answer(client: Any) -> None:
    from pydantic import BaseModel

    class Point(BaseModel):
        kind: bool

    found = client.chat.completions.parse(
        model="tiny-served", messages=QUESTION, response_format=Point, max_tokens=200
    )
    assert isinstance(found.choices[0].message.parsed.kind, bool)


def test_log_probabilities(client: Any) -> None:
    found = client.chat.completions.create(
        model="tiny-served", messages=QUESTION, max_tokens=3, logprobs=True, top_logprobs=5
    )
    rows = found.choices[0].logprobs.content
    assert [len(row.top_logprobs) for row in rows] == [5, 5, 5]


def test_lists_of_models(client: Any) -> None:
    assert [one.id for one in client.models.list()] == ["tiny-served"]
    assert client.models.retrieve("tiny-served").owned_by == "tokonoma"


def test_embeddings(client: Any) -> None:
    found = client.embeddings.create(model="tiny-served", input=["a", "b"])
    assert sum(value * value for value in found.data[1].embedding) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"model": "other"}, "NotFoundError"),
        ({"temperature": -1}, "BadRequestError"),
        ({"messages": [{"role": "user", "content": "x " * 5000}]}, "BadRequestError"),
    ],
)
def test_errors_have_types(client: Any, options: dict[str, Any], kind: str) -> None:
    with pytest.raises(getattr(openai, kind)) as caught:
        client.chat.completions.create(
            **{"model": "tiny-served", "messages": QUESTION, "max_tokens": 4} | options
        )
    assert caught.value.body["message"]


def test_a_wrong_key_is_an_authentication_error(tiny_model: Path) -> None:
    from engine.server.guards import Security
    from engine.server.serve import ServerOptions

    made = Served(tiny_model, ServerOptions(security=Security("right")))
    try:
        client = openai.OpenAI(base_url=f"{made.server.address}/v1", api_key="wrong")
        with client, pytest.raises(openai.AuthenticationError):
            client.models.list()
    finally:
        made.close()


def test_tools_are_called(client: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    tool: Any = {"type": "function", "function": {"name": "weather", "parameters": schema}}
    found = client.chat.completions.create(
        model="tiny-served", messages=QUESTION, tools=[tool], tool_choice="required", max_tokens=300
    )
    (choice,) = found.choices
    assert choice.finish_reason == "tool_calls"
    call = choice.message.tool_calls[0]
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments) == {"city": "Rome"}
