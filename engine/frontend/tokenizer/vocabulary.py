"""Vocabulary lookup: finds the vocabulary of a model, in this order of precedence.

1. A `tokenizer.json` given explicitly.
2. The metadata keys `tokenizer.ggml.*` of the file.
3. A `tokenizer.json` embedded in the metadata key `tokenizer.huggingface.json`.
4. A `tokenizer.json` next to the file: first `<stem of the file>.tokenizer.json`, for folders with
   several models, then `tokenizer.json`.

Files may have 2, 3 or both; ggml uses its own keys, so these come first. BOS and EOS settings and
the suppressed tokens in the metadata apply to every source.

Files for research may have none, or one of a kind that is not supported. A model can be run on token
ids without it: `find_or_ids`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.errors import ModelFileError, RequestError, UnsupportedModel
from engine.frontend.tokenizer import json as tokenizer_json
from engine.frontend.tokenizer.special import TokenKind
from engine.frontend.tokenizer.tokenizer import (
    NO_VOCABULARY,
    SUPPRESSED,
    Metadata,
    Tokenizer,
    unreadable,
    vocabulary_rule,
)
from engine.gguf.reader import GGUFFile
from engine.models.config import Config

INSIDE = "tokenizer.huggingface.json"
_TOKENS, _MODEL = "tokenizer.ggml.tokens", "tokenizer.ggml.model"
_JSON, _CONFIG = "tokenizer.json", "tokenizer_config.json"
_REMEDY = "Put the model's tokenizer.json beside it, or download the file again."


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A vocabulary. `origin` describes its source; "" for the metadata keys of the file."""

    origin: str
    size: int  # tokens
    _metadata: Metadata
    _subwords: tokenizer_json.SubwordModel | None = None

    def check(self, config: Config) -> None:
        """Raise ModelFileError or UnsupportedModel if the model cannot use the vocabulary."""
        self.check_kind()
        if self.size > config.vocabulary:
            what = f"The vocabulary of {self.origin}" if self.origin else "The vocabulary"
            raise ModelFileError(
                f"{what} has {self.size:,} tokens, but the tensor 'token_embd.weight' only "
                f"{config.vocabulary:,} rows.",
                "It belongs to another model; choose the vocabulary of this one."
                if self.origin
                else "The file is damaged or made by a faulty converter; get another copy.",
            )

    def check_kind(self) -> None:
        """Raise UnsupportedModel if the kind of vocabulary or its pre-tokenizer is unknown."""
        if self._subwords is None:
            vocabulary_rule(self._metadata)

    def tokenizer(self) -> Tokenizer:
        """Build the tokenizer; takes half a second for a large vocabulary."""
        return Tokenizer(self._metadata, self._subwords)


def find(file: GGUFFile, named: Path | None = None) -> Vocabulary:
    """Find the vocabulary of a model; `named` is an explicit `tokenizer.json` or its folder.

    Raises UnsupportedModel for a missing vocabulary, ModelFileError for a damaged one, RequestError
    for a `named` file that cannot be read.
    """
    if named is not None:
        path = named / _JSON if named.is_dir() else named
        return _from_json(file, _text(path), str(path), _config(path))
    kind = file.metadata.get(_MODEL)
    if kind is not None and kind not in NO_VOCABULARY:
        return Vocabulary("", file.length(_TOKENS), file.metadata)
    inside = file.metadata.get(INSIDE)
    if isinstance(inside, str):
        return _from_json(file, inside, f"the key {INSIDE!r}", "")
    for path in (file.path.with_suffix(f".{_JSON}"), file.path.with_name(_JSON)):
        if path.is_file():
            return _from_json(file, _text(path), path.name, _config(path))
    raise unreadable(kind, _REMEDY)


def find_or_ids(file: GGUFFile, named: Path | None, size: int) -> Vocabulary:
    """The vocabulary, or `size` tokens without text if the file has none that can be read.

    Encoding a text with the latter raises the error of `find`. Raises as `find` does for a damaged
    vocabulary or a `named` file that cannot be read.
    """
    try:
        found = find(file, named)
        found.check_kind()
    except UnsupportedModel as error:
        reason = error
    else:
        return found

    def refuse(text: str) -> list[int]:
        raise UnsupportedModel(str(reason), reason.remedy, reason.fault)

    keys = {_TOKENS: [""] * size, "tokenizer.ggml.token_type": [TokenKind.UNUSED] * size}
    subwords = tokenizer_json.SubwordModel(refuse, refuse, refuse, strips_space=False)
    return Vocabulary("nowhere", size, keys, subwords)


def _from_json(file: GGUFFile, text: str, origin: str, config: str) -> Vocabulary:
    keys, subwords = tokenizer_json.read(text, origin, config)
    names = ("bos", "eos", "eot", "eom")
    kept = {f"tokenizer.ggml.{name}_token_id" for name in names}
    kept |= {f"tokenizer.ggml.add_{name}_token" for name in (*names, "sep")}
    kept |= {"tokenizer.ggml.seperator_token_id", SUPPRESSED}
    metadata = keys | {key: file.metadata[key] for key in kept if key in file.metadata}
    return Vocabulary(origin, len(keys[_TOKENS]), metadata, subwords)


def _config(path: Path) -> str:
    """The text of the `tokenizer_config.json` next to a `tokenizer.json`; "" if there is none."""
    config = path.with_name(_CONFIG)
    return _text(config) if config.is_file() else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise RequestError(
            f"The vocabulary {path} is not UTF-8 text.", "Choose another file."
        ) from None
    except OSError as error:
        raise RequestError(
            f"The vocabulary {path} cannot be read: {error.strerror}.",
            "Give the path of a tokenizer.json, or of its folder.",
        ) from error
