"""Adds real byte-level and WordPiece vocabularies, cut down, to golden/tokenizer_vectors.json.

    python tests/recorders/golden_vocabularies.py SOURCE NAME...

SOURCE is llama.cpp's source tree, NAME the middle of models/ggml-vocab-NAME.gguf, beside which lie
the strings (.inp) and the ids llama.cpp gives them (.out). Of a vocabulary only what these strings
can reach is kept: tokens whose text occurs in one, merges between them, and all single bytes.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import tiny
from engine.gguf.reader import GGUFFile

GOLDEN = Path(__file__).parents[1] / "golden" / "tokenizer_vectors.json"
_SEPARATOR = "\n__ggml_vocab_test__\n"
_NAMED = tuple(
    f"tokenizer.ggml.{name}_token_id" for name in ("bos", "eos", "unknown", "cls", "seperator")
)
_COPIED = (
    "general.name",
    *(f"tokenizer.ggml.{name}" for name in ("model", "pre", "add_bos_token", "add_eos_token")),
)


def strings(source: Path, name: str) -> tuple[list[str], list[list[int]]]:
    """What llama.cpp tokenizes in its own tests, and the ids it gets."""
    place = source / "models" / f"ggml-vocab-{name}.gguf"
    texts = Path(f"{place}.inp").read_bytes().decode("utf-8").split(_SEPARATOR)
    rows = Path(f"{place}.out").read_text(encoding="utf-8").split("\n")
    return texts, [[int(token) for token in row.split()] for row in rows[: len(texts)]]


def cut(metadata: dict[str, Any], texts: Iterable[str]) -> dict[str, Any]:
    """The part of a byte-level vocabulary that `texts` can reach, numbered anew."""
    letters = tiny.byte_letters()
    spelled = "\n".join("".join(letters[byte] for byte in text.encode()) for text in texts)
    tokens: list[str] = list(metadata["tokenizer.ggml.tokens"])
    named = {metadata[key] for key in _NAMED if key in metadata}
    kept = [
        number
        for number, token in enumerate(tokens)
        if token in spelled or token in letters or number in named
    ]
    names = {tokens[number] for number in kept}
    merges = [
        merge
        for merge in metadata["tokenizer.ggml.merges"]
        if {*merge.split(" ", 1), merge.replace(" ", "", 1)} <= names
    ]
    keys: dict[str, Any] = {key: metadata[key] for key in _COPIED if key in metadata}
    keys |= {key: kept.index(metadata[key]) for key in _NAMED if key in metadata}
    keys["tokenizer.ggml.tokens"] = [tokens[number] for number in kept]
    kinds = metadata["tokenizer.ggml.token_type"]
    keys["tokenizer.ggml.token_type"] = [int(kinds[number]) for number in kept]
    keys["tokenizer.ggml.merges"] = merges
    return {"metadata": keys, "original": kept}


def cut_pieces(metadata: dict[str, Any], texts: Iterable[str]) -> dict[str, Any]:
    """The part of a WordPiece vocabulary that `texts` can reach, numbered anew."""
    decomposed = unicodedata.normalize("NFD", "\n".join(texts)).lower()
    spelled = "".join(one for one in decomposed if unicodedata.category(one) != "Mn")
    tokens: list[str] = list(metadata["tokenizer.ggml.tokens"])
    kinds = metadata["tokenizer.ggml.token_type"]
    kept = [
        number
        for number, token in enumerate(tokens)
        if kinds[number] != tiny.NORMAL or token.removeprefix("\u2581") in spelled
    ]
    keys: dict[str, Any] = {key: metadata[key] for key in _COPIED if key in metadata}
    keys |= {key: kept.index(metadata[key]) for key in _NAMED if key in metadata}
    keys["tokenizer.ggml.tokens"] = [tokens[number] for number in kept]
    keys["tokenizer.ggml.token_type"] = [int(kinds[number]) for number in kept]
    return {"metadata": keys, "original": kept}


def main(source: Path, names: list[str]) -> None:
    """Add or replace the vocabularies named."""
    found = json.loads(GOLDEN.read_text(encoding="utf-8"))
    for name in names:
        texts, ids = strings(source, name)
        assert texts == found["strings"], "llama.cpp has other strings now: record all anew"
        with GGUFFile.open(source / "models" / f"ggml-vocab-{name}.gguf") as file:
            metadata = {key: file.metadata[key] for key in file.metadata}
            is_wordpiece = metadata["tokenizer.ggml.model"] == "bert"
            made = (cut_pieces if is_wordpiece else cut)(metadata, texts)
        found["vocabularies"][name] = made | {"ids": ids, "random": [], "random_ids": []}
        print(name, len(made["original"]), "tokens")
    GOLDEN.write_text(json.dumps(found, separators=(",", ":")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
