"""Character cards (versions 1 to 3 of the format of SillyTavern), in JSON or inside a PNG picture.

The picture is not decoded: only its text chunks are read, and their sizes are bounded. A card
becomes instructions of the chat, which are in English as the prompts are that such cards are
written for. Its greeting is the first message, and other greetings are versions of that message.
Of a lorebook, the entries that always apply are taken; the others, assets and scripts are left out.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import struct
import zlib
from typing import Any, BinaryIO, cast

from app.domain.chat import Preset
from app.domain.chat_settings import ChatSettings
from app.domain.presets import MOST_CHARACTERS
from app.system.translation import tr, trn

MOST_TEXT = 16 << 20  # bytes of a text chunk, also when unpacked
_MOST_CHUNKS = 100_000  # of a picture
_KEYWORDS = (b"ccv3", b"chara_card_v3", b"chara")  # the first one that a picture has counts
_USER = "User"  # how cards name the user unless a name is chosen
_MAIN = "You are {{char}}. Stay in character, and write only what {{char}} says and does."
_COMMENT = re.compile(r"\{\{ *//[^{}]*\}\}\n?")
_NAMES = re.compile(r"\{\{ *(char|user|bot) *\}\}|<(char|user|bot)>", re.IGNORECASE)
_START = re.compile(r"^ *<START> *$\n?", re.IGNORECASE | re.MULTILINE)
_MOST_DESCRIPTION = 200


class CardError(Exception):
    """A picture has a card that cannot be used: `str(error)` is one sentence."""


def read_card(file: BinaryIO) -> dict[str, Any] | None:
    """The card inside a PNG picture whose signature was read; None if it has none.

    Raises CardError and OSError.
    """
    found: dict[bytes, dict[str, Any]] = {}
    error: CardError | None = None
    for _ in range(_MOST_CHUNKS):
        head = file.read(8)
        if len(head) < 8:
            break
        length, kind = struct.unpack(">I4s", head)
        if kind == b"IEND":
            break
        if kind not in (b"tEXt", b"iTXt", b"zTXt"):
            file.seek(length + 4, 1)
            continue
        start = file.read(min(length, 80))  # less where the file is cut off
        file.seek(-len(start), 1)
        keyword = start.partition(b"\0")[0]
        if keyword not in _KEYWORDS or keyword in found:
            file.seek(length + 4, 1)
            continue
        try:
            found[keyword] = _card_of(kind, length, file)
        except CardError as fault:
            error = fault
            break  # what follows a damaged chunk cannot be told from it
    for keyword in _KEYWORDS:
        if keyword in found:
            return found[keyword]
    if error is not None:
        raise error
    return None


def _card_of(kind: bytes, length: int, file: BinaryIO) -> dict[str, Any]:
    """The card in the text chunk that begins here."""
    if length > MOST_TEXT:
        raise CardError(tr("The character card in this picture is too large."))
    data, check = file.read(length), file.read(4)
    damaged = CardError(tr("The character card in this picture is damaged."))
    if len(check) < 4 or zlib.crc32(data, zlib.crc32(kind)) != int.from_bytes(check, "big"):
        raise damaged
    try:
        text = base64.b64decode(_text_of(kind, data))
        card: object = json.loads(text.decode("utf-8"))
    except (binascii.Error, ValueError, RecursionError, zlib.error) as error:
        raise damaged from error
    if not isinstance(card, dict) or not is_card(cast("dict[str, Any]", card)):
        raise damaged
    return cast("dict[str, Any]", card)


def _text_of(kind: bytes, data: bytes) -> bytes:
    """The text of a chunk, unpacked. Raises ValueError, zlib.error and CardError."""
    _, _, rest = data.partition(b"\0")
    if kind == b"tEXt":
        return rest
    if kind == b"zTXt":
        return _unpacked(rest[1:])
    packed, _, rest = rest[:1], rest[1:2], rest[2:]
    _, _, rest = rest.partition(b"\0")  # the language
    _, _, rest = rest.partition(b"\0")  # the keyword in that language
    return _unpacked(rest) if packed == b"\1" else rest


def _unpacked(data: bytes) -> bytes:
    stream = zlib.decompressobj()
    text = stream.decompress(data, MOST_TEXT)
    if not stream.eof:
        raise CardError(tr("The character card in this picture is too large."))
    return text


def is_card(found: dict[str, Any]) -> bool:
    """Whether a JSON object is a character card of any version."""
    spec = found.get("spec")
    if isinstance(spec, str) and spec.startswith("chara_card_v"):
        return isinstance(found.get("data"), dict)
    texts = ("name", "description", "first_mes")
    return all(isinstance(found.get(name), str) for name in texts)  # version 1


def card_preset(card: dict[str, Any], usual_name: str) -> tuple[Preset, str]:
    """The preset of a card, and one sentence that names the parts not imported.

    `usual_name` is for a card without a name, which some programs write.
    """
    inner = card.get("data")
    data = cast("dict[str, object]", inner) if isinstance(inner, dict) else card
    names = (_text(data, "nickname"), _text(data, "name"), usual_name)
    name = next((one for each in names if (one := " ".join(each.split()))), "")

    def filled(text: str) -> str:
        return _filled(text, name)

    main = _text(data, "system_prompt").strip()
    main = main.replace("{{original}}", _MAIN) if main else _MAIN
    examples = _START.sub("\n", _text(data, "mes_example")).strip()
    constant, keyed = _lorebook(data.get("character_book"))
    sections = (
        main,
        _text(data, "description"),
        _headed("Personality: ", _text(data, "personality")),
        _headed("Scenario: ", _text(data, "scenario")),
        *constant,
        _headed("How {{char}} writes:\n", examples),
        _text(data, "post_history_instructions").replace("{{original}}", ""),
    )
    instructions = "\n\n".join(filter(None, (filled(text).strip() for text in sections)))
    greetings = data.get("alternate_greetings")
    others = cast("list[object]", greetings) if isinstance(greetings, list) else []
    texts = [filled(text) for text in (_text(data, "first_mes"), *others) if isinstance(text, str)]
    first, *more = [text.strip() for text in texts if text.strip()] or [""]
    left_out = trn(
        "{count} entry of its lorebook is left out: it appears only after keywords.",
        "{count} entries of its lorebook are left out: they appear only after keywords.",
        keyed,
    )
    note = left_out if keyed else ""
    preset = Preset(
        0,
        name,
        ChatSettings(instructions=instructions[:MOST_CHARACTERS]),
        frozenset(("instructions",)),
        _first_line(_text(data, "creator_notes")),
        first,
        tuple(more),
    )
    return preset, note


def _filled(text: str, name: str) -> str:
    """A text of a card with the names in it, and without its comments."""

    def named(found: re.Match[str]) -> str:
        return _USER if (found[1] or found[2]).lower() == "user" else name

    return _NAMES.sub(named, _COMMENT.sub("", text))


def _text(data: dict[str, object], name: str) -> str:
    value = data.get(name)
    return value[:MOST_CHARACTERS].replace("\r\n", "\n") if isinstance(value, str) else ""


def _headed(heading: str, text: str) -> str:
    return f"{heading}{text.strip()}" if text.strip() else ""


def _first_line(text: str) -> str:
    line = next((each.strip() for each in text.splitlines() if each.strip()), "")
    cut = len(line) > _MOST_DESCRIPTION
    return f"{line[:_MOST_DESCRIPTION].rstrip()}…" if cut else line


def _lorebook(book: object) -> tuple[list[str], int]:
    """The entries of a lorebook that always apply, in their order; how many wait for keywords."""
    stored = cast("dict[str, object]", book).get("entries") if isinstance(book, dict) else None
    if isinstance(stored, dict):  # by number, as in files of lorebooks
        stored = list(cast("dict[str, object]", stored).values())
    found = cast("list[object]", stored) if isinstance(stored, list) else []
    rows = [cast("dict[str, object]", each) for each in found if isinstance(each, dict)]
    used = [
        row
        for row in rows
        if row.get("enabled") is not False
        and row.get("disable") is not True
        and _text(row, "content").strip()
    ]
    constant = sorted((row for row in used if row.get("constant") is True), key=_order)
    return [_text(row, "content") for row in constant], len(used) - len(constant)


def _order(row: dict[str, object]) -> float:
    place = row.get("insertion_order", row.get("order"))
    return float(place) if isinstance(place, int | float) and abs(place) < 1e9 else 0.0
