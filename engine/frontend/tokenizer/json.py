"""Reader of `tokenizer.json`, the vocabulary format of the `tokenizers` library.

The library does pre-tokenization and merging; control tokens, BOS and EOS, and token bytes are
handled by `engine.frontend.tokenizer.tokenizer` as for GGUF vocabularies, so that control text typed by the
user is not parsed as control tokens. For that, added tokens are removed from the configuration
passed to the library and classified by ggml's token types.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from engine.errors import ModelFileError, UnsupportedModel
from engine.frontend.tokenizer.added import AddedTokenOptions
from engine.frontend.tokenizer.library import SubwordEncoder
from engine.frontend.tokenizer.special import TokenKind

_MOST_BYTES = 1 << 27
_MOST_TOKENS = 1 << 22
_PREFIX = "tokenizer.ggml."


@dataclass(frozen=True, slots=True)
class SubwordModel:
    """Subword encoding of the text between control tokens.

    first, later, within: encode the start of a text, text after a control token, and text that
    continues other text. strips_space: decoding removes the space that encoding prepends.
    added_options: options of added tokens by id; None: added tokens are matched in ggml's order.
    """

    first: Callable[[str], list[int]]
    later: Callable[[str], list[int]]
    within: Callable[[str], list[int]]
    strips_space: bool
    added_options: Mapping[int, AddedTokenOptions] | None = None


def read(text: str, name: str, config: str = "") -> tuple[dict[str, Any], SubwordModel]:
    """Convert a `tokenizer.json` to equivalent `tokenizer.ggml.*` keys and a subword model.

    `name` identifies the file in errors; `config` is the text of its `tokenizer_config.json`, if
    any. Raises ModelFileError for a damaged file, UnsupportedModel for a vocabulary that is neither
    byte-level nor SentencePiece.
    """
    described = _object(text, name)
    model = _part(described, "model", name)
    tokens, byte_fallback = _model_tokens(model, name), bool(model.get("byte_fallback"))
    added = _added_tokens(described, name)
    texts = _texts(tokens, added, name)
    byte_level = "ByteLevel" in _kinds(described)
    if not byte_level and not {"Metaspace", "Prepend", "Replace"} & _kinds(described):
        raise UnsupportedModel(
            f"{name} holds a vocabulary that is neither byte-level nor SentencePiece.",
            "Choose a model with one of these.",
        )
    kinds = [int(TokenKind.NORMAL) if text else int(TokenKind.UNUSED) for text in texts]
    for token, text in enumerate(texts):
        if byte_fallback and len(text) == 6 and text.startswith("<0x"):
            kinds[token] = TokenKind.BYTE
    for entry in added:
        kinds[entry["id"]] = TokenKind.CONTROL if entry["special"] else TokenKind.USER_DEFINED
    unknown = model.get("unk_token")
    if isinstance(unknown, str) and unknown in tokens:
        kinds[tokens[unknown]] = TokenKind.UNKNOWN
    keys: dict[str, object] = {
        "model": "gpt2" if byte_level else "llama",
        "tokens": texts,
        "token_type": kinds,
    } | _begin_and_end(described, _object(config, name) if config else {}, texts)
    later = _without_first_space(described)
    encode = _encoder(described, name)
    encode_later = encode if later == described else _encoder(later, name)  # parsing takes a second
    subwords = SubwordModel(
        encode,
        encode_later,
        encode_later,
        strips_space=_strips_space(described.get("decoder")),
        added_options={entry["id"]: entry["options"] for entry in added},
    )
    return {f"{_PREFIX}{key}": value for key, value in keys.items()}, subwords


# --- encoders of the library --------------------------------------------------------------------


def _encoder(described: dict[str, Any], name: str) -> Callable[[str], list[int]]:
    bare = described | {
        "added_tokens": [],
        "post_processor": None,
        "truncation": None,
        "padding": None,
    }
    return SubwordEncoder.from_json(json.dumps(bare), name).encode


def _without_first_space(part: Any) -> Any:
    """A copy without Metaspace's prepended space if that applies only to the start of a text."""
    if isinstance(part, list):
        return [_without_first_space(each) for each in cast("list[Any]", part)]
    if not isinstance(part, dict):
        return part
    fields = cast("dict[str, Any]", part)
    if fields.get("type") == "Metaspace" and fields.get("prepend_scheme") == "first":
        return fields | {"prepend_scheme": "never"}
    if "vocab" in fields:  # the model: large, and without such steps
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
    """Token texts to ids, of a BPE or Unigram model."""
    vocabulary: Any = model.get("vocab")
    kind = model.get("type", "BPE")
    try:
        if kind == "Unigram":
            return {str(piece): token for token, (piece, _) in enumerate(vocabulary)}
        if kind == "BPE":
            return {str(text): _id(token) for text, token in vocabulary.items()}
    except (AttributeError, TypeError, ValueError):
        raise _damaged(name, "its vocabulary is malformed") from None
    raise UnsupportedModel(
        f"{name} holds a {str(kind)[:40]!r} vocabulary, which is not supported.",
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
                "options": AddedTokenOptions(
                    lstrip=bool(entry.get("lstrip")),
                    rstrip=bool(entry.get("rstrip")),
                    single_word=bool(entry.get("single_word")),
                    normalized=bool(entry.get("normalized")),
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
    """Token texts by id; "" for unused ids."""
    by_id = {token: text for text, token in tokens.items()}
    by_id |= {entry["id"]: entry["content"] for entry in added}
    if not by_id:
        raise _damaged(name, "its vocabulary is empty")
    return [by_id.get(token, "") for token in range(max(by_id) + 1)]


def _begin_and_end(
    described: dict[str, Any], config: dict[str, Any], texts: list[str]
) -> dict[str, object]:
    """The keys for the BOS and EOS tokens, and whether `encode` adds them."""
    before, after = _template(described.get("post_processor"))
    keys: dict[str, object] = {"add_bos_token": bool(before), "add_eos_token": bool(after)}
    for key, added in (("bos", before), ("eos", after)):
        named: Any = config.get(f"{key}_token")
        text = named.get("content") if isinstance(named, dict) else named
        for wanted in (added, text):
            if isinstance(wanted, str) and wanted in texts:
                keys[f"{key}_token_id"] = texts.index(wanted)
                break
    return keys


def _template(processor: Any) -> tuple[str, str]:
    """The control tokens that the post-processor adds before and after a single text."""
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
    """The step types of its normalizer, pre-tokenizer and decoder."""
    parts = (described.get(key) for key in ("normalizer", "pre_tokenizer", "decoder"))
    return {str(step.get("type")) for part in parts for step in _parts(part)}


def _parts(part: Any) -> Iterator[dict[str, Any]]:
    """Yield a step and all steps nested in it."""
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
