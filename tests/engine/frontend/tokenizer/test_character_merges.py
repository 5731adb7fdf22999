"""Vocabularies of merged characters, as Gemma 4 has: lines, newlines, bytes, special tokens."""

from __future__ import annotations

import pytest

from engine.errors import ModelFileError
from engine.frontend.tokenizer.special import TokenKind
from engine.frontend.tokenizer.tokenizer import Tokenizer

SPACE = "\u2581"
SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>", "<|tool_response>"]
VISIBLE = ["<|channel>", "<channel|>"]
MERGES = [
    "\n\n \n", "\n \n", f"{SPACE} {SPACE}", "h e", "l l", "he ll", "hell o", f"{SPACE} hello",
    f"> {SPACE}", f">{SPACE} <",
]  # fmt: skip
LETTERS = [*"abcdehlo", SPACE, "\n", ">", "<", "/", "s", "\u00e9"]


def keys(**changed: object) -> dict[str, object]:
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    words = [merge.replace(" ", "", 1) for merge in MERGES]
    tokens = [*SPECIAL, *VISIBLE, *bytes_, "</s>", *LETTERS, *words]
    kinds = [TokenKind.CONTROL] * len(SPECIAL) + [TokenKind.USER_DEFINED] * len(VISIBLE)
    kinds += [TokenKind.BYTE] * 256
    kinds += [TokenKind.NORMAL] * (len(tokens) - len(kinds))
    made: dict[str, object] = {
        "model": "gemma4",
        "tokens": tokens,
        "token_type": [int(kind) for kind in kinds],
        "merges": MERGES,
        "bos_token_id": 2,
        "eos_token_id": 1,
        "unknown_token_id": 3,
        "add_bos_token": True,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in (made | changed).items()}


def made(**changed: object) -> Tokenizer:
    return Tokenizer.from_metadata(keys(**changed))


def texts(tokenizer: Tokenizer, text: str, **options: bool) -> list[str]:
    """The tokens as they are spelled in the vocabulary."""
    spelled = keys()["tokenizer.ggml.tokens"]
    assert isinstance(spelled, list)
    return [spelled[token] for token in tokenizer.encode(text, **options)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("hello hello", ["hello", f"{SPACE}hello"]),
        ("   hello", [SPACE * 2, f"{SPACE}hello"]),
        ("hello\n\n\nhello", ["hello", "\n\n\n", "hello"]),
        ("\n\n\n\n\n", ["\n\n\n", "\n\n"]),
        ("> <a", [f">{SPACE}<", "a"]),  # a token with a space inside
        ("h\u00e9", ["h", "\u00e9"]),
        ("x\u732b", ["<0x78>", "<0xE7>", "<0x8C>", "<0xAB>"]),
        ("", []),
    ],
)
def test_characters_of_a_line_are_merged(text: str, wanted: list[str]) -> None:
    tokenizer = made()
    assert texts(tokenizer, text, add_special=False) == wanted
    assert tokenizer.decode(tokenizer.encode(text, add_special=False)) == text


def test_special_tokens_are_split_out_on_request() -> None:
    tokenizer = made()
    text = "<|turn>hello<turn|>\n"
    assert texts(tokenizer, text) == ["<bos>", "<|turn>", "hello", "<turn|>", "\n"]
    plain = texts(tokenizer, text, parse_special=False)
    assert plain[:3] == ["<bos>", "<", "<0x7C>"]
    assert tokenizer.encode_within("<|channel>hello")[0] == len(SPECIAL)
    assert (
        tokenizer.decode([7, *tokenizer.encode_within("hello"), 8]) == "<|channel>hello<channel|>"
    )


def test_the_end_of_strikethrough_text_is_text() -> None:
    assert texts(made(), "</s>", add_special=False) == ["<", "/", "s", ">"]


def test_an_answer_ends_at_the_end_of_a_turn() -> None:
    tokenizer = made()
    assert tokenizer.end_tokens == {1, 5, 6}
    assert not tokenizer.sentencepiece
    assert not tokenizer.wordpiece


def test_text_always_begins_with_bos() -> None:
    assert texts(made(add_bos_token=False), "a") == ["<bos>", "a"]
    assert texts(made(bos_token_id=None), "a") == ["a"]


def test_a_vocabulary_without_merges_is_refused() -> None:
    with pytest.raises(ModelFileError, match="merges"):
        made(merges=None)


def test_characters_without_bytes_become_the_unknown_token() -> None:
    tokens = keys()["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    without = [text if not text.startswith("<0x") else f"[{text[1:-1]}]" for text in tokens]
    tokenizer = made(tokens=without)
    assert tokenizer.encode("h\u732b\u732bh", add_special=False).count(3) == 1
