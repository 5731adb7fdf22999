"""Tokens and prompts: there and back, with pieces, and as the template writes them."""

from __future__ import annotations

import pytest

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
