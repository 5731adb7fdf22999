"""A small unigram vocabulary as XLM-RoBERTa has it, with a table of replacements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import tiny

SPACE = "\u2581"
# Among them sequences, one of which begins another, and a replacement by nothing.
REPLACEMENTS = {
    "\t": " ",
    "\n": " ",
    "\u3000": " ",
    "\u200b": "",
    "A": "a",
    "\u00bd": "1/2",
    "\ufb01": "fi",
    "e\u0301": "\u00e9",
    "e\u0301\u0323": "\u1eb9",
    "\u1100\u1161": "\uac00",
}
_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
_PIECES = {
    SPACE: -3.0,
    f"{SPACE}the": -4.0,
    f"{SPACE}he": -5.0,
    "llo": -5.5,
    f"{SPACE}hello": -6.0,
    "the": -6.5,
    "ing": -6.25,
    "\u00e9": -7.0,
    "\u1eb9": -7.5,
    "\uac00": -8.0,
    "\u4e2d\u6587": -9.0,
    "ab": -6.0,
    "abc": -9.5,
    "bc": -6.1,
}


def words(**changes: Any) -> dict[str, Any]:
    """The keys of the vocabulary, as llama.cpp's converter writes them."""
    letters = {chr(code): -8.0 - code / 100 for code in range(33, 127)}
    scores = _PIECES | {one: score for one, score in letters.items() if one not in "~^"}
    tokens = [*_SPECIAL, *scores, "<mask>", "[PAD]"]
    own = {
        "model": "t5",
        "pre": "default",
        "tokens": tokens,
        "scores": [0.0] * len(_SPECIAL) + list(scores.values()) + [0.0, -10_000.0],
        "token_type": [tiny.CONTROL] * 3
        + [tiny.UNKNOWN]
        + [tiny.NORMAL] * len(scores)
        + [tiny.USER_DEFINED, tiny.UNUSED],
        "token_type_count": 1,
        "add_space_prefix": True,
        "remove_extra_whitespaces": True,
        "precompiled_charsmap": list(compiled(REPLACEMENTS)),
        "bos_token_id": 0,
        "eos_token_id": 2,
        "unknown_token_id": 3,
        "seperator_token_id": 2,
        "padding_token_id": 1,
        "mask_token_id": tokens.index("<mask>"),
        "add_bos_token": True,
        "add_eos_token": True,
        "add_sep_token": True,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in (own | changes).items()}


def compiled(replacements: Mapping[str, str]) -> bytes:
    """The table of `precompiled_charsmap`: the trie as a double array, then the replacements."""
    texts = bytearray()
    children: dict[bytes, list[int]] = {}
    ends: dict[bytes, int] = {}
    for key, text in replacements.items():
        stored = key.encode()
        ends[stored] = len(texts)
        texts += text.encode() + b"\0"
        for at, byte in enumerate(stored):
            known = children.setdefault(stored[:at], [])
            if byte not in known:
                known.append(byte)
    units = np.zeros(1 << 14, np.uint32)
    used, places = {0}, {b"": 0}
    for node in sorted(children.keys() | ends.keys(), key=len):
        codes = [*([0] if node in ends else []), *children.get(node, [])]
        at = places[node]
        base = next(
            base for base in range(1, len(units)) if not used & {at ^ base ^ code for code in codes}
        )
        used |= {at ^ base ^ code for code in codes}
        units[at] |= base << 10 | (node in ends) << 8
        for code in codes:
            place = at ^ base ^ code
            if code:
                units[place] = code
                places[node + bytes([code])] = place
            else:
                units[place] = 1 << 31 | ends[node]
    kept = units[: max(used) + 256]
    return len(kept.tobytes()).to_bytes(4, "little") + kept.astype("<u4").tobytes() + bytes(texts)
