"""Tokens and prompts: there and back, with pieces, and as the template writes them."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from engine import Load
from engine.server.serve import ServerOptions
from engine.server.service import ServiceOptions
from scripted_model import template
from serving import Served


@pytest.mark.parametrize("text", ["hello there", "", "naïve 🙂 text\n", "<|im_end|>"])
def test_tokens_are_the_text_again(served: Served, text: str) -> None:
    tokens = served.post("/tokenize", {"content": text})["tokens"]
    assert served.post("/detokenize", {"tokens": tokens})["content"] == text


def test_pieces_are_texts_or_bytes(served: Served) -> None:
    found = served.post("/tokenize", {"content": "hello 🙂", "with_pieces": True})["tokens"]
    pieces = [one["piece"] for one in found]
    raw = b"".join(one.encode() if isinstance(one, str) else bytes(one) for one in pieces)
    assert raw.decode() == "hello 🙂"
    assert any(isinstance(one, list) for one in pieces)


def test_control_texts_are_tokens_unless_they_are_plain_text(served: Served) -> None:
    special = served.post("/tokenize", {"content": "<|im_end|>"})
    plain = served.post("/tokenize", {"content": "<|im_end|>", "parse_special": False})
    assert special["count"] == 1 < plain["count"]
    longer = served.post("/tokenize", {"prompt": "hello", "add_special": True})
    assert longer["max_model_len"] == 2048


def test_the_prompt_of_a_conversation(served: Served) -> None:
    messages = [{"role": "user", "content": "hello"}]
    found = served.post("/apply-template", {"messages": messages})
    assert found == {"prompt": "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"}
    alone = served.post("/apply-template", {"messages": messages, "add_generation_prompt": False})
    assert alone == {"prompt": "<|im_start|>user\nhello<|im_end|>\n"}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/tokenize", {"content": 3}, "content"),
        ("/detokenize", {"tokens": ["a"]}, "tokens[0]"),
        ("/detokenize", {"tokens": 3}, "tokens"),
        ("/apply-template", {}, "messages"),
    ],
)
def test_a_wrong_field_is_named(served: Served, path: str, body: dict, field: str) -> None:
    assert served.error(path, body)["error"]["param"] == field


def test_a_token_outside_the_vocabulary_is_refused(served: Served) -> None:
    for token in (-1, 999_999):
        served.error("/detokenize", {"tokens": [token]})


def test_another_template_may_be_given(tiny_model: Path) -> None:
    messages = {"messages": [{"role": "user", "content": "hello"}]}
    made = Served()
    try:
        made.load_with(Load(tiny_model, template="command-r"))
        prompt = made.post("/apply-template", messages)["prompt"]
        assert prompt.startswith("<|START_OF_TURN_TOKEN|><|USER_TOKEN|>hello")
        assert "START_OF_TURN" in made.get("/props")["chat_template"]
    finally:
        made.close()


def test_templates_know_the_date(tiny_model: Path) -> None:
    messages = {"messages": [{"role": "user", "content": "hello"}]}
    made = Served()
    try:
        made.load_with(Load(tiny_model, template="{{ date_string }}: {{ messages[0].content }}"))
        today = f"{date.today():%d %b %Y}"
        assert made.post("/apply-template", messages) == {"prompt": f"{today}: hello"}
        asked = messages | {"chat_template_kwargs": {"date_string": "then"}}
        assert made.post("/apply-template", asked) == {"prompt": "then: hello"}
    finally:
        made.close()


def test_the_server_says_whether_models_think(tiny_model: Path) -> None:
    """A request may say otherwise."""
    messages = {"messages": [{"role": "user", "content": "hello"}]}
    made = Served(options=ServerOptions(service=ServiceOptions(thinking=False)))
    try:
        made.load_with(Load(tiny_model, template=template()))
        assert made.post("/apply-template", messages)["prompt"].endswith("</think>\n\n")
        asked = messages | {"chat_template_kwargs": {"enable_thinking": True}}
        assert made.post("/apply-template", asked)["prompt"].endswith("assistant\n")
    finally:
        made.close()
