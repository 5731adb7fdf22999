"""Makes character cards and PNG pictures with text chunks, whole and damaged."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunk(kind: bytes, data: bytes, crc: int | None = None) -> bytes:
    check = zlib.crc32(data, zlib.crc32(kind)) if crc is None else crc
    return struct.pack(">I4s", len(data), kind) + data + struct.pack(">I", check)


def picture(*chunks: bytes) -> bytes:
    """A picture of one grey pixel, with these chunks before its end."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    pixel = chunk(b"IDAT", zlib.compress(b"\0\x80"))
    return b"".join((SIGNATURE, head, pixel, *chunks, chunk(b"IEND", b"")))


def encoded(card: Any) -> bytes:
    return base64.b64encode(json.dumps(card).encode("utf-8"))


def text_chunk(card: Any, keyword: bytes = b"chara") -> bytes:
    return chunk(b"tEXt", keyword + b"\0" + encoded(card))


def card(version: int = 2, **fields: Any) -> dict[str, Any]:
    """A card of Ada; version 1 has its fields at the root."""
    data = {
        "name": "Ada",
        "description": "{{char}} is a <BOT> who likes {{user}}.",
        "personality": "curious",
        "scenario": "A library at night.",
        "first_mes": "*looks up* Hello, {{user}}!",
        "mes_example": "<START>\n{{user}}: Hi\n{{char}}: Good evening.\n<START>\n{{char}}: Books!",
        **fields,
    }
    if version == 1:
        return data
    return {"spec": f"chara_card_v{version}", "spec_version": f"{version}.0", "data": data}
