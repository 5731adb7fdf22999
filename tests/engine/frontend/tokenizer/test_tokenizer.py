"""Tokenizer: recorded ids of llama.cpp, round trips, BPE and SentencePiece rules.

`golden/tokenizer_vectors.json` holds ten real vocabularies reduced to the tokens its strings use.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ModelFileError, UnsupportedModel
from engine.frontend.answer_stream import AnswerStream
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.gguf.reader import GGUFFile

VOCABULARIES = [
    "llama-spm", "phi-3", "llama-bpe", "gpt-2", "qwen2", "starcoder", "command-r",
    "deepseek-llm", "falcon", "bert-bge",
]  # fmt: skip
SPACE = "\u2581"


@cache
def vectors(folder: Path) -> Any:
    return json.loads((folder / "tokenizer_vectors.json").read_text(encoding="utf-8"))


@cache
def vector_tokenizer(folder: Path, name: str) -> Tokenizer:
    return Tokenizer.from_metadata(vectors(folder)["vocabularies"][name]["metadata"])


@cache
def model_tokenizer(path: Path) -> Tokenizer:
    with GGUFFile.open(path) as file:
        return Tokenizer.from_metadata(file.metadata)


def keys(**named: object) -> dict[str, object]:
    return {f"tokenizer.ggml.{name}": value for name, value in named.items()}


def sentencepiece(
    scored: Mapping[str, float], special: Mapping[str, int] | None = None, **named: object
) -> Tokenizer:
    """A vocabulary of <unk> <s> </s>, 256 bytes, `scored` pieces and `special` texts by type."""
    special = special or {}
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [2, 3, 3] + [6] * 256
    scores = [0.0] * len(tokens)
    tokens += [*scored, *special]
    kinds += [1] * len(scored) + list(special.values())
    scores += [*scored.values(), *([0.0] * len(special))]
    return Tokenizer.from_metadata(
        keys(model="llama", tokens=tokens, token_type=kinds, scores=scores) | keys(**named)
    )


def byte_level(
    merges: list[str], special: Mapping[str, int] | None = None, **named: object
) -> Tokenizer:
    """A vocabulary of all byte characters, the results of `merges`, and `special` texts by type."""
    special = special or {}
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = [chr(code) for code in printable] + [chr(0x100 + code) for code in range(68)]
    tokens = alphabet + [merge.replace(" ", "") for merge in merges] + list(special)
    kinds = [1] * (len(tokens) - len(special)) + list(special.values())
    return Tokenizer.from_metadata(
        keys(model="gpt2", pre="gpt-2", tokens=tokens, token_type=kinds, merges=merges)
        | keys(**named)
    )


def texts(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    return [tokenizer.piece(token).decode("utf-8", "replace") for token in ids]


# --- recorded ids -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VOCABULARIES)
def test_shared_strings_give_the_recorded_ids(golden: Path, name: str) -> None:
    tokenizer, facts = vector_tokenizer(golden, name), vectors(golden)["vocabularies"][name]
    strings = vectors(golden)["strings"]
    assert len(strings) >= 46
    for text, expected in zip(strings, facts["ids"], strict=True):
        ids = tokenizer.encode(text, add_special=False, parse_special=False)
        assert [facts["original"][token] for token in ids] == expected, text


@pytest.mark.parametrize("name", VOCABULARIES)
def test_random_strings_give_the_recorded_ids(golden: Path, name: str) -> None:
    tokenizer, facts = vector_tokenizer(golden, name), vectors(golden)["vocabularies"][name]
    for text, expected in zip(facts["random"], facts["random_ids"], strict=True):
        composed = unicodedata.normalize("NFC", text)
        if composed != text and name in ("qwen2", "command-r"):
            # ggml does not compose characters as these tokenizers do: test_characters_are_composed
            assert tokenizer.encode(text) == tokenizer.encode(composed)
            continue
        for bits in range(4):
            ids = tokenizer.encode(text, add_special=bool(bits & 1), parse_special=bool(bits & 2))
            assert [facts["original"][token] for token in ids] == expected[bits], (text, bits)


@pytest.mark.real
@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_real_models_give_the_recorded_ids(
    golden: Path, name: str, starter_model: Path, gemma_model: Path
) -> None:
    facts = json.loads((golden / f"{name}.json").read_text(encoding="utf-8"))
    tokenizer = model_tokenizer({"smollm2": starter_model, "gemma3": gemma_model}[name])
    for row in facts["tokenize"]:
        text = row["text"]
        assert tokenizer.encode(text, add_special=False, parse_special=False) == row["ids"]
        assert tokenizer.encode(text, add_special=False) == row["ids_special"]
        assert tokenizer.encode(text) == row["ids_add"]
        assert tokenizer.decode(row["ids"]) == row["detokenized"]
    for row in facts["completions"]:
        assert tokenizer.encode(row["prompt"]) == row["prompt_ids"]
    whole = (golden / "ppl_text.txt").read_text(encoding="utf-8")
    assert tokenizer.encode(whole) == facts["perplexity"]["token_ids"]


@pytest.mark.real
def test_real_models_have_the_right_end_tokens(starter_model: Path, gemma_model: Path) -> None:
    starter, gemma = model_tokenizer(starter_model), model_tokenizer(gemma_model)
    assert set(texts(starter, sorted(starter.end_tokens))) == {
        "<|endoftext|>", "<|im_end|>", "<reponame>"
    }  # fmt: skip
    assert set(texts(gemma, sorted(gemma.end_tokens))) == {"<eos>", "<end_of_turn>"}
    assert (starter.add_bos, gemma.add_bos) == (False, True)
    assert (gemma.bos, gemma.eos, gemma.size) == (2, 1, 262_144)


# --- round trips --------------------------------------------------------------------------------


def streamed(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The text of an answer of these tokens."""
    stream = AnswerStream(None, tokenizer)
    return "".join(text for _, text in [*stream.push_all(ids), *stream.flush()])


@given(st.text())
def test_any_text_round_trips_through_byte_level_bpe(text: str) -> None:
    tokenizer = byte_level(["a b", "Ġ ab", "ã ģ"], pre="qwen2")
    text = unicodedata.normalize("NFC", text)  # as the tokenizer does
    ids = tokenizer.encode(text, parse_special=False)
    assert streamed(tokenizer, ids) == text
    assert tokenizer.decode(ids) == text


@given(st.text(st.characters(exclude_characters=[SPACE], exclude_categories=["Cs"])))
def test_any_text_round_trips_through_sentencepiece(text: str) -> None:
    tokenizer = sentencepiece({SPACE: -1.0, "a": -2.0, "b": -3.0, "ab": -4.0, f"{SPACE}a": -5.0})
    assert tokenizer.decode(tokenizer.encode(text, parse_special=False)) == text


@pytest.mark.parametrize("text", ["\ud83d", "a\udc00b", "\ud800\ud800"])
def test_lone_surrogates_become_replacement_characters(text: str) -> None:
    as_replaced = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    for tokenizer in (byte_level([]), sentencepiece({SPACE: -1.0})):
        assert tokenizer.encode(text) == tokenizer.encode(as_replaced)


def test_surrogate_pairs_become_their_character() -> None:
    tokenizer = byte_level([])
    assert tokenizer.encode("\ud83d\ude01") == tokenizer.encode("😁")


def test_nul_round_trips() -> None:
    assert byte_level([]).decode(byte_level([]).encode("a\0b")) == "a\0b"
    tokenizer = sentencepiece({SPACE: -1.0})
    assert texts(tokenizer, tokenizer.encode("\0", add_special=False)) == [" ", "\0"]


def test_ids_outside_the_vocabulary_decode_to_nothing() -> None:
    tokenizer = byte_level([])
    assert tokenizer.piece(-1) == tokenizer.piece(tokenizer.size) == b""
    assert not tokenizer.is_control(tokenizer.size)
    assert tokenizer.decode([tokenizer.size, -5]) == ""


def test_control_tokens_are_decoded_only_on_request() -> None:
    tokenizer = byte_level([], {"<|im_end|>": 3, "<think>": 4})
    ids = tokenizer.encode("a<|im_end|><think>b")
    assert tokenizer.decode(ids) == "a<think>b"
    assert tokenizer.decode(ids, special=True) == "a<|im_end|><think>b"
    assert streamed(tokenizer, ids) == "a<think>b"


# --- SentencePiece ------------------------------------------------------------------------------


def test_the_best_score_merges_first() -> None:
    tokenizer = sentencepiece(
        {"a": 0, "b": 0, "c": 0, "ab": -2.0, "bc": -1.0}, add_space_prefix=False
    )
    assert texts(tokenizer, tokenizer.encode("abc", add_special=False)) == ["a", "bc"]


def test_equal_scores_merge_leftmost_first() -> None:
    tokenizer = sentencepiece({"a": 0, "aa": -1.0, "aaa": -1.0}, add_space_prefix=False)
    assert texts(tokenizer, tokenizer.encode("aaaaaaa", add_special=False)) == ["aaa", "aaa", "a"]


def test_a_pair_with_an_already_merged_half_is_skipped() -> None:
    scored = {"a": 0, "b": 0, "ba": -1.0, "aa": -2.0, "aaaa": -3.0, "baa": -9.0}
    tokenizer = sentencepiece(scored, add_space_prefix=False)
    assert texts(tokenizer, tokenizer.encode("baaaa", add_special=False)) == ["ba", "aa", "a"]


def test_unknown_characters_fall_back_to_bytes_after_merging() -> None:
    tokenizer = sentencepiece({"é": -1.0, "x日": -2.0}, add_space_prefix=False)
    assert texts(tokenizer, tokenizer.encode("x日é", add_special=False)) == ["x日", "é"]
    assert tokenizer.encode("日", add_special=False) == [3 + byte for byte in "日".encode()]


def test_missing_byte_tokens_become_the_unknown_token() -> None:
    tokenizer = Tokenizer.from_metadata(
        keys(model="llama", tokens=["<unk>", "a"], token_type=[2, 1])
    )
    # The prepended space is three bytes, é two.
    assert tokenizer.encode("aé", add_special=False) == [0, 0, 0, 1, 0, 0]


def test_a_space_is_prepended_at_the_start_and_after_special_tokens() -> None:
    scored = {SPACE: -1.0, "a": -2.0, f"{SPACE}a": -3.0}
    tokenizer = sentencepiece(scored, {"<|im_end|>": 3})
    ids = tokenizer.encode("a a<|im_end|>a", add_special=False)
    assert texts(tokenizer, ids) == [" a", " a", "<|im_end|>", " a"]
    plain = sentencepiece(scored, {"<|im_end|>": 3}, add_space_prefix=False)
    ids = plain.encode("a a<|im_end|>a", add_special=False)
    assert texts(plain, ids) == ["a", " a", "<|im_end|>", "a"]


def test_a_token_with_a_space_inside_is_found_across_words() -> None:
    scored = dict.fromkeys([">", "<", "/", "a", SPACE], -9.0)
    scored |= {f">{SPACE}": -1.0, "</": -2.0, f">{SPACE}</": -3.0, f"{SPACE}{SPACE}": -4.0}
    tokenizer = sentencepiece(scored, add_space_prefix=False)
    ids = tokenizer.encode("a> </ a>  </", add_special=False)
    assert texts(tokenizer, ids) == ["a", "> </", " ", "a", "> ", " ", "</"]


# --- byte level ---------------------------------------------------------------------------------


def test_merges_are_applied_by_rank_within_words() -> None:
    tokenizer = byte_level(["b c", "a b", "Ġ a"])
    ids = tokenizer.encode("abc ab a1a")
    assert texts(tokenizer, ids) == ["a", "bc", " ", "ab", " a", "1", "a"]


def test_whole_words_are_not_merged_if_the_rule_ignores_merges() -> None:
    merges = ["a b", "c d"]
    tokens = [*"abcd", "ab", "cd", "abcd"]
    made = keys(model="gpt2", tokens=tokens, merges=merges, bos_token_id=0)
    llama3 = Tokenizer.from_metadata(made | keys(pre="llama-bpe"))
    gpt2 = Tokenizer.from_metadata(made | keys(pre="gpt-2"))
    assert texts(llama3, llama3.encode("abcd", add_special=False)) == ["abcd"]
    assert texts(gpt2, gpt2.encode("abcd", add_special=False)) == ["ab", "cd"]
    assert (llama3.add_bos, gpt2.add_bos) == (True, False)


# What says so: see the comment on the names in `engine.frontend.tokenizer.pretokenizers`.
_COMPOSED = ("qwen2", "qwen35", "command-r", "mpt", "olmo", "stablelm2", "hunyuan")
_AS_WRITTEN = ("gpt-2", "llama-bpe", "starcoder", "deepseek-v3", "gpt-4o", "tekken", "glm4")
_WORDS = ("\xe9", "\u1ec7", "\uac01", "\u0439")


def _merges_of(word: str) -> list[str]:
    """Merges that make one token of a word's bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable}
    letters |= {byte: chr(0x100 + at) for at, byte in enumerate(rest)}
    parts, found = [letters[byte] for byte in word.encode()], list[str]()
    while len(parts) > 1:
        found.append(" ".join(parts[:2]))
        parts[:2] = ["".join(parts[:2])]
    return found


@pytest.mark.parametrize("pre", [*_COMPOSED, *_AS_WRITTEN])
def test_characters_are_composed_where_the_tokenizer_does_so(pre: str) -> None:
    merges = list(dict.fromkeys(merge for word in _WORDS for merge in _merges_of(word)))
    tokenizer = byte_level(merges, {"<|im_end|>": 3}, pre=pre)
    for word in _WORDS:
        apart = unicodedata.normalize("NFD", word)
        whole = tokenizer.encode(word, add_special=False)
        assert len(whole) == 1
        found = tokenizer.encode(apart, add_special=False)
        assert (found == whole) == (pre in _COMPOSED)
        between = tokenizer.encode(f"<|im_end|>{apart}<|im_end|>", add_special=False)
        assert between[1:-1] == found
        assert tokenizer.encode_within(apart) == found
        expected = word if pre in _COMPOSED else apart
        assert tokenizer.decode(found) == expected
    # Compatibility forms stay: the form is NFC, not NFKC.
    for text in ("\ufb01", "\u00bd", "\uff21"):
        assert tokenizer.decode(tokenizer.encode(text, add_special=False)) == text


def test_bytes_without_a_token_are_dropped_and_block_merges() -> None:
    tokenizer = Tokenizer.from_metadata(
        keys(model="gpt2", pre="gpt-2", tokens=["a", "b", "ab"], merges=["a b"])
    )
    assert texts(tokenizer, tokenizer.encode("abxaxb")) == ["ab", "a", "b"]


def test_merges_of_missing_tokens_are_ignored() -> None:
    tokenizer = Tokenizer.from_metadata(
        keys(model="gpt2", pre="gpt-2", tokens=["a", "b"], merges=["a b", "x y", "nonsense", ""])
    )
    assert texts(tokenizer, tokenizer.encode("ab")) == ["a", "b"]


@pytest.mark.parametrize(
    ("pre", "text", "words"),
    [
        ("gpt-2", "I'LL go 1234!\n\n x", ["I", "'", "LL", " go", " 1234", "!", "\n", "\n", " x"]),
        ("llama-bpe", "I'LL go 1234!\n\n x", ["I", "'LL", " go", " ", "123", "4", "!\n\n", " x"]),
        ("qwen2", "go 12\n x", ["go", " ", "1", "2", "\n", " x"]),
        ("smollm", "go 12", ["go", " ", "1", "2"]),
        ("tekken", "goHTTPServer", ["go", "HTTPServer"]),
        ("gpt-4o", "camelCase's", ["camel", "Case's"]),
    ],
)
def test_pre_tokenizers_split_words(pre: str, text: str, words: list[str]) -> None:
    made = sorted({word for word in words if len(word) > 1}, key=len)
    merges: list[str] = []
    for word in made:
        mapped = word.replace(" ", "Ġ").replace("\n", "Ċ")
        merges += [f"{mapped[:at]} {mapped[at]}" for at in range(1, len(mapped))]
    tokenizer = byte_level(list(dict.fromkeys(merges)), pre=pre, add_bos_token=False)
    assert texts(tokenizer, tokenizer.encode(text)) == words


# --- special texts ------------------------------------------------------------------------------


def test_control_texts_are_plain_text_unless_parsed() -> None:
    tokenizer = byte_level([], {"<|im_end|>": 3})
    assert texts(tokenizer, tokenizer.encode("a<|im_end|>")) == ["a", "<|im_end|>"]
    assert len(tokenizer.encode("a<|im_end|>", parse_special=False)) == 11


def test_user_defined_texts_are_always_tokens_longest_first() -> None:
    tokenizer = byte_level([], {"--": 4, "----": 4})
    for parse in (True, False):
        ids = tokenizer.encode("-------", parse_special=parse)
        assert texts(tokenizer, ids) == ["----", "--", "-"]


def test_well_known_end_tokens_end_a_reply_whatever_their_type() -> None:
    tokenizer = byte_level([], {"<|eot_id|>": 1, "<end_of_turn>": 4, "<other>": 3})
    assert texts(tokenizer, sorted(tokenizer.end_tokens)) == ["<|eot_id|>", "<end_of_turn>"]
    assert all(tokenizer.is_control(token) for token in tokenizer.end_tokens)


def test_end_tokens_named_by_key_end_a_reply() -> None:
    special = {"<x>": 3, "<y>": 3, "<z>": 3}
    plain = byte_level([], special)
    x, y, z = (plain.token_id(text) for text in special)
    tokenizer = byte_level([], special, eos_token_id=x, eot_token_id=y, eom_token_id=z)
    assert tokenizer.end_tokens == {x, y, z}
    assert tokenizer.eos == x


def test_the_html_strike_tag_ends_a_reply_only_as_a_control_token() -> None:
    shown = byte_level([], {"</s>": 4})
    stop = byte_level([], {"</s>": 3})
    assert not shown.end_tokens
    assert shown.decode(shown.encode("a</s>")) == "a</s>"
    assert stop.end_tokens == {stop.token_id("</s>")}


def test_end_closes_only_a_message_in_vocabularies_with_channels() -> None:
    special = {"<|end|>": 3, "<|return|>": 3, "<|call|>": 3, "<|channel|>": 3}
    tokenizer = byte_level([], special)
    assert texts(tokenizer, sorted(tokenizer.end_tokens)) == ["<|return|>", "<|call|>"]
    assert not tokenizer.is_control(tokenizer.token_id("<|channel|>") or 0)


def test_bos_and_eos_are_added_as_the_file_specifies() -> None:
    special = {"<b>": 3, "<e>": 3}
    plain = byte_level([], special)
    named = {"bos_token_id": plain.token_id("<b>"), "eos_token_id": plain.token_id("<e>")}
    both = byte_level([], special, add_bos_token=True, add_eos_token=True, **named)
    assert texts(both, both.encode("a")) == ["<b>", "a", "<e>"]
    assert texts(both, both.encode("")) == ["<b>", "<e>"]
    assert texts(both, both.encode("a", add_special=False)) == ["a"]
    none = byte_level([], special, add_bos_token=True, add_eos_token=True)
    assert (none.add_bos, none.add_eos) == (False, False)


@pytest.mark.parametrize("named", [{"bos_token_id": 4_294_967_295}, {"eos_token_id": 99_999}])
def test_token_ids_out_of_range_count_as_missing(named: dict[str, int]) -> None:
    tokenizer = byte_level([], None, **named)
    assert (tokenizer.bos, tokenizer.eos) == (None, None)


# --- array types and malformed metadata ---------------------------------------------------------


def test_metadata_may_hold_arrays_and_tuples() -> None:
    made = keys(model="llama", tokens=["<unk>", "<s>", "</s>", "a", "b", "ab"])
    arrays = keys(
        token_type=np.array([2, 3, 3, 1, 1, 1], np.int32),
        scores=np.array([0, 0, 0, -1, -2, -3], np.float32),
        bos_token_id=np.uint32(1),
        add_bos_token=np.bool_(True),
    )
    lists = keys(
        token_type=(2, 3, 3, 1, 1, 1), scores=[0, 0, 0, -1, -2, -3], bos_token_id=1, add_bos_token=1
    )
    one, other = Tokenizer.from_metadata(made | arrays), Tokenizer.from_metadata(made | lists)
    assert one.encode("ab") == other.encode("ab")
    assert one.end_tokens == other.end_tokens


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"model": None}, "tokenizer.ggml.model"),
        ({"tokens": None}, "tokenizer.ggml.tokens"),
        ({"tokens": []}, "tokenizer.ggml.tokens"),
        ({"tokens": "abc"}, "tokenizer.ggml.tokens"),
        ({"tokens": ["a", 5]}, "tokenizer.ggml.tokens"),
        ({"tokens": ["a", "\ud800"]}, "tokenizer.ggml.tokens"),
        ({"merges": None}, "tokenizer.ggml.merges"),
        ({"merges": [1]}, "tokenizer.ggml.merges"),
        ({"token_type": [1]}, "tokenizer.ggml.token_type"),
        ({"token_type": ["x", "y"]}, "tokenizer.ggml.token_type"),
        ({"bos_token_id": "x"}, "tokenizer.ggml.bos_token_id"),
        ({"eos_token_id": 1.5}, "tokenizer.ggml.eos_token_id"),
        ({"suppress_tokens": 3}, "tokenizer.ggml.suppress_tokens"),
        ({"suppress_tokens": ["a"]}, "tokenizer.ggml.suppress_tokens"),
    ],
)
def test_a_bad_key_is_named(changed: dict[str, object], key: str) -> None:
    good = {"model": "gpt2", "pre": "gpt-2", "tokens": ["a", "b"], "merges": []}
    named = {name: value for name, value in (good | changed).items() if value is not None}
    with pytest.raises(ModelFileError, match=key.replace(".", r"\.")) as caught:
        Tokenizer.from_metadata(keys(**named))
    assert caught.value.remedy


@pytest.mark.parametrize("named", [{"model": "rwkv"}, {"model": "gpt2", "pre": "klingon"}])
def test_an_unknown_kind_of_vocabulary_is_named(named: dict[str, str]) -> None:
    with pytest.raises(UnsupportedModel, match=r"rwkv|klingon") as caught:
        Tokenizer.from_metadata(keys(tokens=["a"], merges=[], **named))
    assert caught.value.remedy


def test_empty_and_duplicate_token_texts_are_accepted() -> None:
    tokenizer = Tokenizer.from_metadata(
        keys(model="gpt2", pre="gpt-2", tokens=["a", "", "a", "b"], merges=[])
    )
    assert tokenizer.decode(tokenizer.encode("ab")) == "ab"
    assert tokenizer.size == 4
