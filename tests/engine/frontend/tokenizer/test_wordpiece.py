"""WordPiece vocabularies: words, pieces, accents, special tokens, decoding, templates."""

from __future__ import annotations

import pytest

import tiny_encoders
from engine.errors import ModelFileError
from engine.frontend.tokenizer.tokenizer import Tokenizer


def made(**changed: object) -> Tokenizer:
    keys = {f"tokenizer.ggml.{name}": value for name, value in changed.items()}
    return Tokenizer.from_metadata(tiny_encoders.wordpiece() | keys)


def pieces(tokenizer: Tokenizer, text: str, **options: bool) -> list[str]:
    return [tokenizer.piece(token).decode() for token in tokenizer.encode(text, **options)]


def test_a_text_is_between_cls_and_sep() -> None:
    assert pieces(made(), "hello") == ["[CLS]", " hello", "[SEP]"]
    assert pieces(made(), "") == ["[CLS]", "[SEP]"]
    assert pieces(made(), "hello", add_special=False) == [" hello"]


def test_words_are_cut_into_the_longest_pieces() -> None:
    found = pieces(made(), "Jumped the foxes,jumping", add_special=False)
    assert found == [" jump", "ed", " the", " fox", "e", "s", " ,", " jump", "ing"]


def test_accents_and_case_are_kept_on_request() -> None:
    assert pieces(made(), "H\u00e9ll\u00d6", add_special=False) == [" hello"]
    keeps = made(**{"normalizer.lowercase": False})
    assert pieces(keeps, "hello", add_special=False) == [" hello"]
    assert pieces(keeps, "Hello", add_special=False) == ["[UNK]"]
    assert pieces(keeps, "h\u00e9llo", add_special=False) == ["[UNK]"]
    accents = made(**{"normalizer.lowercase": False, "normalizer.strip_accents": True})
    assert pieces(accents, "h\u00e9llo", add_special=False) == [" hello"]


def test_unknown_and_endless_words_are_one_token() -> None:
    assert pieces(made(), "\u732b hello", add_special=False) == ["[UNK]", " hello"]
    assert pieces(made(), "a" * 101, add_special=False) == ["[UNK]"]
    assert len(pieces(made(), "a" * 100, add_special=False)) == 100


def test_control_texts_are_tokens_on_request() -> None:
    assert pieces(made(), "[SEP]", add_special=False) == ["[SEP]"]
    plain = pieces(made(), "[SEP]", add_special=False, parse_special=False)
    assert "[SEP]" not in plain
    assert plain[0] == " ["


def test_decoding_joins_pieces() -> None:
    tokenizer = made()
    ids = tokenizer.encode("the quick jumping fox")
    assert tokenizer.decode(ids) == "the quick jumping fox"
    assert tokenizer.decode(ids, special=True) == "[CLS] the quick jumping fox[SEP]"


def test_a_template_is_filled_without_reading_its_values_as_markup() -> None:
    tokenizer = made()
    values = {"{query}": "[SEP] {document}", "{document}": "fox"}
    ids = tokenizer.encode_filled("[CLS]the {query}[SEP]{document}", values)
    found = [tokenizer.piece(token).decode() for token in ids]
    assert found[:2] == ["[CLS]", " the"]
    assert found.count("[SEP]") == 1
    assert found[-2:] == ["[SEP]", " fox"]
    assert tokenizer.decode(ids[: found.index("[SEP]")]) == "the [ sep ] { document }"


@pytest.mark.parametrize(
    "changed",
    [
        {"seperator_token_id": "x"},
        {"unknown_token_id": 1.5},
        {"normalizer.lowercase": 3},
        {"tokens": [1, 2]},
        {"token_type": ["x"]},
        {"tokens": ["a"], "token_type": [1], "cls_token_id": 0, "seperator_token_id": 0},
    ],
)
def test_damaged_keys_are_refused(changed: dict[str, object]) -> None:
    with pytest.raises(ModelFileError):
        made(**changed)
