"""langchain-openai against the server: answers, streams, tools, schemas and vectors.

python langchain_chain.py ADDRESS MODEL
"""

from __future__ import annotations

import sys

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel

BASE, MODEL = f"{sys.argv[1]}/v1", sys.argv[2]
ANSWER, VALUE = "One two three.", "Paris"
PLAIN = {"chat_template_kwargs": {"enable_thinking": False}}


class Place(BaseModel):
    city: str


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sun in {city}"


def model(**options: object) -> ChatOpenAI:
    return ChatOpenAI(base_url=BASE, api_key="x", model=MODEL, max_tokens=200, **options)


chat = model(extra_body=PLAIN)
found = chat.invoke("hello")
assert found.content == ANSWER, found
assert found.usage_metadata["output_tokens"] > 0
parts = list(model(extra_body=PLAIN, stream_usage=True).stream("hello"))
assert "".join(one.content for one in parts) == ANSWER
assert sum(one.usage_metadata["output_tokens"] for one in parts if one.usage_metadata) > 0
for method in ("json_schema", "function_calling"):
    made = chat.with_structured_output(Place, method=method).invoke("weather?")
    assert made == Place(city=VALUE), (method, made)
asked = [HumanMessage("weather?")]
# Strict: else the schema allows further arguments, and the model draws some.
tools = chat.bind_tools([weather], tool_choice="any", parallel_tool_calls=False, strict=True)
called = tools.invoke(asked)
(call,) = called.tool_calls
assert (call["name"], call["args"]) == ("weather", {"city": VALUE})
asked += [called, ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"])]
assert chat.bind_tools([weather]).invoke(asked).content == ANSWER
responses = model(use_responses_api=True, reasoning={"effort": "none"})
assert responses.invoke("hello").text == ANSWER
assert "".join(one.text for one in responses.stream("hello")) == ANSWER
scored = model(extra_body=PLAIN, logprobs=True, top_logprobs=2).invoke("hello")
rows = scored.response_metadata["logprobs"]["content"]
assert [len(one["top_logprobs"]) for one in rows] == [2] * len(rows)
assert isinstance(OpenAI(base_url=BASE, api_key="x", model=MODEL, max_tokens=4).invoke("a"), str)
# Else it asks OpenAI's own tokenizer, which it downloads, for token ids to send.
vectors = OpenAIEmbeddings(
    base_url=BASE, api_key="x", model=MODEL, check_embedding_ctx_length=False
).embed_documents(["one", "two"])
assert len(vectors) == 2
