"""Vocabularies from tokenizer.json: ids equal to the library's, lookup order, and errors."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as LibraryTokenizer

import tiny
from engine.cli.commands import main
from engine.errors import EngineError, ModelFileError, RequestError, UnsupportedModel
from engine.frontend.tokenizer.added import AddedTokens
from engine.frontend.tokenizer.json import read
from engine.frontend.tokenizer.special import SpecialTokens
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.frontend.tokenizer.vocabulary import INSIDE, find
from engine.gguf.reader import GGUFFile
from engine.loading.loader import load

CONTROLS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
SPACE = "▁"


def merged_bytes() -> LibraryTokenizer:
    """The vocabulary of tiny models, as a tokenizer of the library."""
    keys = tiny.bpe("llama")
    tokens: list[str] = keys["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in keys["tokenizer.ggml.merges"]]
    library = LibraryTokenizer(models.BPE({t: n for n, t in enumerate(tokens)}, merges))
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{N}| ?\p{L}+|\s+|[^\s\p{L}\p{N}]+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(CONTROLS)
    library.add_tokens([AddedToken("<tool>", normalized=False)])
    return library


def pieces(scheme: str = "") -> LibraryTokenizer:
    """BPE with byte fallback; `scheme` is that of Metaspace, "" the older normalizer."""
    words = ["he", "ll", f"{SPACE}he", "hell", "hello", f"{SPACE}hello", f"{SPACE}{SPACE}"]
    letters = [SPACE, "h", "e", "l", "o", "é"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{n:02X}>" for n in range(256)), *letters, *words]
    pairs = [("h", "e"), ("l", "l"), (SPACE, "he"), ("he", "ll"), ("hell", "o")]
    pairs += [(SPACE, "hello"), (SPACE, SPACE)]
    library = LibraryTokenizer(
        models.BPE(
            {t: n for n, t in enumerate(tokens)},
            pairs,
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    if scheme:
        library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    else:
        library.normalizer = normalizers.Sequence(
            [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
        )
    strip = [] if scheme == "never" else [decoders.Strip(" ", 1, 0)]
    library.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    library.add_special_tokens(["<unk>", "<s>", "</s>"])
    library.add_tokens([AddedToken("<|end|>", special=True, rstrip=True, normalized=False)])
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return library


LIBRARIES = {
    "bytes": merged_bytes(),
    "pieces": pieces(),
    "pieces, first": pieces("first"),
    "pieces, always": pieces("always"),
    "pieces, never": pieces("never"),
}
OURS = {name: Tokenizer(*read(library.to_str(), name)) for name, library in LIBRARIES.items()}
TEXTS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    | st.sampled_from(
        [*CONTROLS, "<tool>", "<s>", "</s>", "<|end|>", " ", "  ", "hello", " hello", "é你好", "\n"]
    ),
    max_size=8,
).map("".join)


def with_options() -> LibraryTokenizer:
    """Byte-level BPE with overlapping added tokens of all matching options."""
    library = LibraryTokenizer.from_str(merged_bytes().to_str())
    for text, options in OPTIONS.items():
        library.add_special_tokens([AddedToken(text, **({"normalized": False} | options))])
    for text in ("<|im_start|><|", "<to", "ol>", "\n\n", "  "):
        library.add_tokens([AddedToken(text, normalized=text == "<to")])
    return library


OPTIONS = {
    "<before>": {"lstrip": True},
    "<after>": {"rstrip": True},
    "<around>": {"lstrip": True, "rstrip": True},
    "<word>": {"single_word": True},
    "word": {"single_word": True, "lstrip": True},
    "<late>": {"normalized": True, "lstrip": True},
}
WITH_OPTIONS = with_options()
OURS_WITH_OPTIONS = Tokenizer(*read(WITH_OPTIONS.to_str(), "options"))
# Characters that count as whitespace or as part of a word, and similar ones that do not.
TOUCHING = " \t\n\v\f\r\x1c\x1f\x85\xa0\u1680\u2003\u2028\u202f\u205f\u3000\u200b\u180e\ufeff" + (
    "a_é你7²①Ⅷⓐ🄰\u0301\u0903\u20dd\u200c\u200d‿-.ª٣"
)


# --- the library's ids --------------------------------------------------------------------------


@pytest.mark.parametrize("name", LIBRARIES)
@given(text=TEXTS)
def test_any_text_has_the_same_ids_as_in_the_library(name: str, text: str) -> None:
    library, ours = LIBRARIES[name], OURS[name]
    ids = library.encode(text).ids
    assert ours.encode(text) == ids
    assert ours.decode(ids) == library.decode(ids, skip_special_tokens=True)


@given(st.lists(st.sampled_from([*OPTIONS, *TOUCHING, *CONTROLS, "<tool>", "  "])).map("".join))
def test_options_of_added_tokens_work_as_in_the_library(text: str) -> None:
    assert OURS_WITH_OPTIONS.encode(text) == WITH_OPTIONS.encode(text).ids


def test_options_treat_every_adjacent_character_as_in_the_library() -> None:
    for left, between, right in product(("", *OPTIONS), TOUCHING, ("", *OPTIONS)):
        text = f"{left}{between}{right}"
        assert OURS_WITH_OPTIONS.encode(text) == WITH_OPTIONS.encode(text).ids, text


@pytest.mark.parametrize("kind", [SpecialTokens, AddedTokens])
def test_a_special_token_without_text_is_never_matched(kind: Any) -> None:
    options = {} if kind is AddedTokens else frozenset[int]()
    tokens = kind([("", 5), ("ab", 6)], [("", 7)], options)
    assert tokens.split("xaby", parse_control=True) == ["x", 6, "y"]


@pytest.mark.parametrize("name", LIBRARIES)
def test_control_text_typed_by_the_user_stays_text(name: str) -> None:
    ours = OURS[name]
    for text in (*CONTROLS, "</s>", "<|end|>"):
        assert not any(
            map(ours.is_control, ours.encode(text, add_special=False, parse_special=False))
        )


def test_bos_and_eos_follow_the_file_and_its_config() -> None:
    ours = OURS["pieces"]
    assert (ours.bos, ours.add_bos, ours.eos, ours.add_eos) == (1, True, None, False)
    assert ours.end_tokens == {2, ours.token_id("<|end|>")}
    config = json.dumps({"eos_token": {"content": "</s>"}, "bos_token": "<s>"})
    keys, subwords = read(LIBRARIES["pieces"].to_str(), "it", config)
    assert Tokenizer(keys, subwords).eos == 2
    assert 2 in Tokenizer(keys, subwords).end_tokens


def test_the_same_vocabulary_in_ggmls_keys_gives_the_same_ids() -> None:
    keys = tiny.bpe("llama") | {"tokenizer.ggml.pre": "gpt-2"}
    library = merged_bytes()
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    ours, theirs = Tokenizer.from_metadata(keys), Tokenizer(*read(library.to_str(), "it"))
    for text in ("hello there", "the 12 dogs<|im_end|>\n\n  x", "你好 مرحبا", ""):
        assert ours.encode(text, add_special=False) == theirs.encode(text, add_special=False)


# --- lookup order -------------------------------------------------------------------------------


def ids_of(path: Path, named: Path | None = None) -> tuple[str, int]:
    """The source of a model's vocabulary and its number of tokens."""
    with GGUFFile.open(path) as file:
        found = find(file, named)
        return found.origin, found.tokenizer().size


def other(count: int) -> str:
    """A vocabulary with `count` more tokens than usual."""
    library = merged_bytes()
    library.add_tokens([f"<more {n}>" for n in range(count)])
    return library.to_str()


def test_the_vocabulary_is_looked_up_in_order(tmp_path: Path) -> None:
    usual = LIBRARIES["bytes"].get_vocab_size()
    named = tmp_path / "named"
    named.mkdir()
    (named / "tokenizer.json").write_text(other(1), encoding="utf-8")
    (tmp_path / "tokenizer.json").write_text(other(2), encoding="utf-8")
    bare = tiny.write(tmp_path / "m.gguf", tokenizer=None)
    assert ids_of(bare) == ("tokenizer.json", usual + 2)
    (tmp_path / "m.tokenizer.json").write_text(other(3), encoding="utf-8")
    assert ids_of(bare) == ("m.tokenizer.json", usual + 3)
    tiny.write(bare, tokenizer=None, metadata={INSIDE: other(4)})
    assert ids_of(bare) == (f"the key {INSIDE!r}", usual + 4)
    tiny.write(bare, metadata={INSIDE: other(4)})
    assert ids_of(bare) == ("", usual - 1)  # without <tool>
    for path in (named, named / "tokenizer.json"):
        assert ids_of(bare, path) == (str(named / "tokenizer.json"), usual + 1)


def test_metadata_and_tokenizer_json_give_the_same_ids(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = merged_bytes()
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    own = tiny.write(tmp_path / "own.gguf")
    keys = {"tokenizer.ggml.eos_token_id": 2, "tokenizer.chat_template": tiny.CHATML}
    bare = tiny.write(tmp_path / "bare.gguf", tokenizer=None, vocabulary=308, metadata=keys)
    (tmp_path / "bare.tokenizer.json").write_text(library.to_str(), encoding="utf-8")
    outputs = []
    for path in (own, bare):
        assert main(["tokenize", "-m", str(path), "-p", "hello 42 <|im_end|>"]) == 0
        assert main(["info", "-m", str(path)]) == 0
        outputs.append(capsys.readouterr().out)
    ids, others = (lines.partition("name:")[0] for lines in outputs)
    assert ids == others
    assert "vocabulary_from: the file's own keys" in outputs[0]
    assert "vocabulary_from: bare.tokenizer.json" in outputs[1]
    model = load(bare, tokenizer_file=tmp_path / "bare.tokenizer.json")
    assert model.tokenizer.eos == 2
    assert model.vocabulary.endswith("bare.tokenizer.json")


# --- errors -------------------------------------------------------------------------------------


def described(**changed: Any) -> str:
    return json.dumps(json.loads(LIBRARIES["pieces"].to_str()) | changed)


def model_with(**changed: Any) -> str:
    return described(model=json.loads(LIBRARIES["pieces"].to_str())["model"] | changed)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("", ModelFileError, "not JSON"),
        ("[" * 100_000, ModelFileError, "not JSON"),
        ("[1]", ModelFileError, "not a JSON object"),
        ("{}", ModelFileError, "no 'model'"),
        (model_with(vocab=[1, 2]), ModelFileError, "vocabulary is malformed"),
        (model_with(vocab={"a": -1}), ModelFileError, "vocabulary is malformed"),
        (model_with(vocab={"a": 1 << 40}), ModelFileError, "vocabulary is malformed"),
        (model_with(vocab={"a": True}), ModelFileError, "vocabulary is malformed"),
        (model_with(vocab={}, unk_token=None), ModelFileError, "tokenizers library|empty"),
        (model_with(merges=[["no", "such"]]), ModelFileError, "tokenizers library"),
        (model_with(type="WordPiece"), UnsupportedModel, "WordPiece"),
        (described(added_tokens=[{"id": "x"}]), ModelFileError, "added tokens"),
        (described(added_tokens=7), ModelFileError, "added tokens"),
        (described(normalizer=None, decoder=None), UnsupportedModel, "neither byte-level"),
        (described(normalizer={"type": "Nonsense"}), EngineError, "tokenizers library|neither"),
        (
            described(pre_tokenizer={"type": "Split", "pattern": {"Regex": "("}}),
            EngineError,
            "tokenizers library",
        ),
    ],
)
def test_a_damaged_vocabulary_is_refused_in_one_sentence(
    text: str, error: type[EngineError], words: str, tmp_path: Path
) -> None:
    model = tiny.write(tmp_path / "m.gguf", tokenizer=None)
    (tmp_path / "tokenizer.json").write_text(text, encoding="utf-8")
    with pytest.raises(error, match=words) as caught:
        ids_of(model)
    assert "\n" not in caught.value.sentence
    assert len(caught.value.sentence) < 500
    assert caught.value.remedy


def test_a_vocabulary_of_another_model_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tiny.write(tmp_path / "m.gguf", vocabulary=310)
    (tmp_path / "other.json").write_text(other(400), encoding="utf-8")
    options = ["--tokenizer", str(tmp_path / "other.json")]
    assert main(["complete", "-m", str(model), "-p", "hello", *options]) == 1
    output = capsys.readouterr().err
    assert "other.json" in output
    assert "310 rows" in output
    assert output.count("\n") == 1


def test_missing_and_unreadable_vocabularies_are_refused(tmp_path: Path) -> None:
    model = tiny.write(tmp_path / "m.gguf", tokenizer=None)
    with pytest.raises(ModelFileError, match=r"no tokenizer.ggml.model") as caught:
        ids_of(model)
    assert "tokenizer.json" in caught.value.remedy
    with pytest.raises(RequestError, match="cannot be read"):
        ids_of(model, tmp_path / "nowhere.json")
    (tmp_path / "bad.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(RequestError, match="not UTF-8"):
        ids_of(model, tmp_path / "bad.json")
