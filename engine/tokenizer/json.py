"""A vocabulary from a `tokenizer.json`, the format of the `tokenizers` library.

The library cuts and merges the words as the file says; everything around them - control tokens,
begin and end, bytes of a token - is done by `engine.tokenizer.tokenizer` as for any other model, so that a
control text somebody types stays text where it must. For that the file's added tokens are taken out
of it and told apart as ggml would have told them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from engine.errors import ModelFileError, UnsupportedModel
from engine.tokenizer.added import AddedTokenOptions
from engine.tokenizer.library import SubwordEncoder
from engine.tokenizer.special import TokenKind

_MOST_BYTES = 1 << 27
_MOST_TOKENS = 1 << 22
_PREFIX = "tokenizer.ggml."


@dataclass(frozen=True, slots=True)
class SubwordModel:
    """How text between control tokens becomes ids.

    first, later: of what a text begins with, and of what follows a control token. strips_space:
    decoding drops the space that encoding put first. habits: what added tokens of the library do
    beside standing for their text; None where they are found ggml's way.
    """

    first: Callable[[str], list[int]]
    later: Callable[[str], list[int]]
    strips_space: bool
    habits: Mapping[int, AddedTokenOptions] | None = None


def read(text: str, name: str, config: str = "") -> tuple[dict[str, Any], SubwordModel]:
    """The `tokenizer.ggml.*` keys that say the same as a `tokenizer.json`, and its words.

    `name` is what to call it in a refusal; `config` the text of the `tokenizer_config.json` that
    came with it, if any. Raises ModelFileError for a damaged one, UnsupportedModel for a kind of
    vocabulary other than merged bytes or pieces.
    """
    described = _object(text, name)
    model = _part(described, "model", name)
    tokens, bytes_too = _model_tokens(model, name), bool(model.get("byte_fallback"))
    added = _added_tokens(described, name)
    texts = _texts(tokens, added, name)
    merged_bytes = "ByteLevel" in _kinds(described)
    if not merged_bytes and not {"Metaspace", "Prepend", "Replace"} & _kinds(described):
        raise UnsupportedModel(
            f"{name} describes a vocabulary of another kind than byte-level or SentencePiece.",
            "Choose a model with one of these.",
        )
    kinds = [int(TokenKind.NORMAL) if text else int(TokenKind.UNUSED) for text in texts]
    for token, text in enumerate(texts):
        if bytes_too and len(text) == 6 and text.startswith("<0x"):
            kinds[token] = TokenKind.BYTE
    for entry in added:
        kinds[entry["id"]] = TokenKind.CONTROL if entry["special"] else TokenKind.USER_DEFINED
    unknown = model.get("unk_token")
    if isinstance(unknown, str) and unknown in tokens:
        kinds[tokens[unknown]] = TokenKind.UNKNOWN
    keys: dict[str, object] = {
        "model": "gpt2" if merged_bytes else "llama",
        "tokens": texts,
        "token_type": kinds,
    } | _begin_and_end(described, _object(config, name) if config else {}, texts)
    later = _without_first_space(described)
    encode = _encoder(described, name)
    words = SubwordModel(
        encode,
        encode if later == described else _encoder(later, name),  # reading it takes a second
        strips_space=_strips_space(described.get("decoder")),
        habits={entry["id"]: entry["habits"] for entry in added},
    )
    return {f"{_PREFIX}{key}": value for key, value in keys.items()}, words


# --- the library --------------------------------------------------------------------------------


def _encoder(described: dict[str, Any], name: str) -> Callable[[str], list[int]]:
    bare = described | {
        "added_tokens": [],
        "post_processor": None,
        "truncation": None,
        "padding": None,
    }
    return SubwordEncoder.from_json(json.dumps(bare), name).encode


def _without_first_space(part: Any) -> Any:
    """The same, but no space before words that follow a control token, where only a text gets one."""
    if isinstance(part, list):
        return [_without_first_space(each) for each in cast("list[Any]", part)]
    if not isinstance(part, dict):
        return part
    fields = cast("dict[str, Any]", part)
    if fields.get("type") == "Metaspace" and fields.get("prepend_scheme") == "first":
        return fields | {"prepend_scheme": "never"}
    if "vocab" in fields:  # the model: nothing in it, and it is large
        return fields
    return {key: _without_first_space(value) for key, value in fields.items()}


# --- reading the file ---------------------------------------------------------------------------


def _object(text: str, name: str) -> dict[str, Any]:
    if len(text) > _MOST_BYTES:
        raise _damaged(name, f"{len(text):,} characters are too many")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise _damaged(name, "it is not JSON") from fault
    if not isinstance(found, dict):
        raise _damaged(name, "it is not a JSON object")
    return cast("dict[str, Any]", found)


def _part(described: dict[str, Any], key: str, name: str) -> dict[str, Any]:
    part = described.get(key)
    if not isinstance(part, dict):
        raise _damaged(name, f"it has no {key!r}")
    return cast("dict[str, Any]", part)


def _model_tokens(model: dict[str, Any], name: str) -> dict[str, int]:
    """Token texts to ids, of merges or of scored pieces."""
    vocabulary: Any = model.get("vocab")
    kind = model.get("type", "BPE")
    try:
        if kind == "Unigram":
            return {str(piece): token for token, (piece, _) in enumerate(vocabulary)}
        if kind == "BPE":
            return {str(text): _id(token) for text, token in vocabulary.items()}
    except (AttributeError, TypeError, ValueError):
        raise _damaged(name, "its vocabulary is not one") from None
    raise UnsupportedModel(
        f"{name} describes a {str(kind)[:40]!r} vocabulary.",
        "Choose a model with a byte-level or SentencePiece vocabulary.",
    )


def _added_tokens(described: dict[str, Any], name: str) -> list[dict[str, Any]]:
    entries: Any = described.get("added_tokens") or []
    try:
        return [
            {
                "id": _id(entry["id"]),
                "content": str(entry["content"]),
                "special": bool(entry.get("special")),
                "habits": AddedTokenOptions(
                    takes_space_before=bool(entry.get("lstrip")),
                    takes_space_after=bool(entry.get("rstrip")),
                    whole_word=bool(entry.get("single_word")),
                    late=bool(entry.get("normalized")),
                ),
            }
            for entry in entries
        ]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise _damaged(name, "its added tokens are malformed") from None


def _id(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MOST_TOKENS:
        raise ValueError(value)
    return value


def _texts(tokens: dict[str, int], added: list[dict[str, Any]], name: str) -> list[str]:
    """Token texts by id; "" where there is no token."""
    by_id = {token: text for text, token in tokens.items()}
    by_id |= {entry["id"]: entry["content"] for entry in added}
    if not by_id:
        raise _damaged(name, "its vocabulary is empty")
    return [by_id.get(token, "") for token in range(max(by_id) + 1)]


def _begin_and_end(
    described: dict[str, Any], config: dict[str, Any], texts: list[str]
) -> dict[str, object]:
    """Which tokens begin and end a text, and whether they are put there."""
    before, after = _template(described.get("post_processor"))
    keys: dict[str, object] = {"add_bos_token": bool(before), "add_eos_token": bool(after)}
    for key, put in (("bos", before), ("eos", after)):
        named: Any = config.get(f"{key}_token")
        text = named.get("content") if isinstance(named, dict) else named
        for wanted in (put, text):
            if isinstance(wanted, str) and wanted in texts:
                keys[f"{key}_token_id"] = texts.index(wanted)
                break
    return keys


def _template(processor: Any) -> tuple[str, str]:
    """The control texts a post-processor puts before and after a single text."""
    for part in _parts(processor):
        if part.get("type") == "TemplateProcessing":
            pieces: Any = part.get("single") or []
            names = [
                piece["SpecialToken"]["id"] if "SpecialToken" in piece else ""
                for piece in pieces
                if isinstance(piece, dict)
            ]
            at = names.index("") if "" in names else len(names)
            before, after = names[:at], names[at + 1 :]
            return (before or [""])[0], (after or [""])[-1]
    return "", ""


def _strips_space(decoder: Any) -> bool:
    for part in _parts(decoder):
        if part.get("type") == "Strip" and part.get("start") and part.get("content") == " ":
            return True
        if part.get("type") == "Metaspace":
            return part.get("prepend_scheme", "always") != "never"
    return False


def _kinds(described: dict[str, Any]) -> set[str]:
    """What its normalizer, its pre-tokenizer and its decoder are made of."""
    parts = (described.get(key) for key in ("normalizer", "pre_tokenizer", "decoder"))
    return {str(step.get("type")) for part in parts for step in _parts(part)}


def _parts(part: Any) -> Iterator[dict[str, Any]]:
    """A step and, of a sequence, each of its steps."""
    if isinstance(part, dict):
        fields = cast("dict[str, Any]", part)
        yield fields
        for value in fields.values():
            yield from _parts(value)
    elif isinstance(part, list):
        for each in cast("list[Any]", part):
            yield from _parts(each)


def _damaged(name: str, why: str) -> ModelFileError:
    return ModelFileError(
        f"{name} cannot be read as a vocabulary: {why}.",
        "Get the tokenizer.json that belongs to the model.",
    )
