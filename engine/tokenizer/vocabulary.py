"""Which vocabulary a model is read with: the first there is of these.

1. The `tokenizer.json` somebody names.
2. The file's own keys, `tokenizer.ggml.*`.
3. A `tokenizer.json` inside the file, under `tokenizer.huggingface.json`.
4. A `tokenizer.json` beside the file: first `<the file's stem>.tokenizer.json`, for folders that
   hold several models, then `tokenizer.json`.

A file made for others may lack the second, and may hold both: ggml's keys are what it was checked
with. Begin and end tokens the file names hold whatever its words come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.errors import ModelFileError, RequestError
from engine.gguf.reader import GGUFFile
from engine.models.config import Config
from engine.tokenizer import json as tokenizer_json
from engine.tokenizer.tokenizer import Metadata, Tokenizer, vocabulary_rule

INSIDE = "tokenizer.huggingface.json"
_TOKENS, _MODEL = "tokenizer.ggml.tokens", "tokenizer.ggml.model"
_JSON, _CONFIG = "tokenizer.json", "tokenizer_config.json"
_REMEDY = "Put the model's tokenizer.json beside it, or download the file again."


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A vocabulary that was found. `origin` says where, in words; "" for the file's own keys."""

    origin: str
    size: int  # tokens
    _metadata: Metadata
    _words: tokenizer_json.SubwordModel | None = None

    def check(self, config: Config) -> None:
        """Raise ModelFileError or UnsupportedModel for one the model cannot be read with."""
        if self._words is None:
            vocabulary_rule(self._metadata)
        if self.size > config.vocabulary:
            what = f"The vocabulary of {self.origin}" if self.origin else "The vocabulary"
            raise ModelFileError(
                f"{what} has {self.size:,} tokens, but the tensor 'token_embd.weight' only "
                f"{config.vocabulary:,} rows.",
                "It belongs to another model; give the right one."
                if self.origin
                else "The file is damaged or made by a faulty converter; get another copy.",
            )

    def tokenizer(self) -> Tokenizer:
        """The tokenizer; half a second of work for a large vocabulary."""
        return Tokenizer(self._metadata, self._words)


def find(file: GGUFFile, named: Path | None = None) -> Vocabulary:
    """The vocabulary of a model; `named` is the `tokenizer.json` somebody chose, or its folder.

    Raises ModelFileError where there is none, or a damaged one; RequestError for a named file that
    cannot be read.
    """
    if named is not None:
        path = named / _JSON if named.is_dir() else named
        return _from_json(file, _text(path), str(path), _config(path))
    if _MODEL in file.metadata:
        return Vocabulary("", file.length(_TOKENS), file.metadata)
    inside = file.metadata.get(INSIDE)
    if isinstance(inside, str):
        return _from_json(file, inside, f"the key {INSIDE!r}", "")
    for path in (file.path.with_suffix(f".{_JSON}"), file.path.with_name(_JSON)):
        if path.is_file():
            return _from_json(file, _text(path), path.name, _config(path))
    raise ModelFileError(f"The file has no {_MODEL}, so no vocabulary.", _REMEDY)


def _from_json(file: GGUFFile, text: str, origin: str, config: str) -> Vocabulary:
    keys, words = tokenizer_json.read(text, origin, config)
    own = ("bos", "eos", "eot", "eom")
    kept = {f"tokenizer.ggml.{name}_token_id" for name in own}
    kept |= {f"tokenizer.ggml.add_{name}_token" for name in own}
    metadata = keys | {key: file.metadata[key] for key in kept if key in file.metadata}
    return Vocabulary(origin, len(keys[_TOKENS]), metadata, words)


def _config(path: Path) -> str:
    """The text of the `tokenizer_config.json` beside a `tokenizer.json`, "" where there is none."""
    beside = path.with_name(_CONFIG)
    return _text(beside) if beside.is_file() else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise RequestError(f"The vocabulary {path} is not UTF-8 text.", "Give another.") from None
    except OSError as error:
        raise RequestError(
            f"The vocabulary {path} cannot be read: {error.strerror}.",
            "Give the path of a tokenizer.json, or of its folder.",
        ) from error
