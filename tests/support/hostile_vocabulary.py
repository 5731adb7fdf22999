"""Malformed tokenizer files that make the `tokenizers` library panic."""

from __future__ import annotations

import base64
import json
from typing import Any

METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}


def hostile(charsmap: bytes) -> str:
    """A `tokenizer.json` with this Precompiled normalizer, which the library does not validate."""
    described: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {
            "type": "Precompiled",
            "precompiled_charsmap": base64.b64encode(charsmap).decode(),
        },
        "pre_tokenizer": METASPACE,
        "decoder": METASPACE,
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]]},
    }
    return json.dumps(described)
