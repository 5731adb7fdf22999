"""Files of presets: ours, of LM Studio, and character cards; judged by content, never trusted."""

from __future__ import annotations

import base64
import json
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.chat.settings.preset_files import (
    LARGEST_JSON,
    FoundPreset,
    PresetFileError,
    may_be_preset,
    read_preset,
    write_preset,
)
from app.domain.character_cards import MOST_TEXT
from app.domain.chat import Preset
from app.domain.chat_settings import AnswerFormat, ChatSettings
from app.domain.presets import made
from cards import card, chunk, encoded, picture, text_chunk
from engine import ContextPolicy

FIELDS = {
    "llm.prediction.systemPrompt": "Be brief.",
    "llm.prediction.temperature": 0.3,
    "llm.prediction.topKSampling": 40,
    "llm.prediction.topPSampling": {"checked": True, "value": 0.9},
    "llm.prediction.minPSampling": {"checked": False, "value": 0.05},
    "llm.prediction.repeatPenalty": {"checked": True, "value": 99},
    "llm.prediction.stopStrings": ["###", 5],
    "llm.prediction.contextOverflowPolicy": "stopAtLimit",
    "llm.prediction.structured": {"type": "json", "jsonSchema": {"type": "object"}},
    "llm.prediction.unknown": [],
}


def lm_studio(fields: dict[str, Any] = FIELDS, name: str = "Brief") -> dict[str, Any]:
    listed = [{"key": key, "value": value} for key, value in fields.items()]
    return {
        "identifier": "@local:brief",
        "name": name,
        "changed": False,
        "operation": {"fields": listed},
        "load": {"fields": [{"key": "llm.load.contextLength", "value": 8192}]},
    }


def read(path: Path, content: bytes | dict[str, Any]) -> FoundPreset | None:
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return read_preset(path)


def preset(path: Path, content: bytes | dict[str, Any]) -> Preset:
    found = read(path, content)
    assert found is not None
    return found.preset


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file.bin"


# --- ours and LM Studio -------------------------------------------------------------------------


def test_a_preset_is_written_and_read(file: Path) -> None:
    given = Preset(
        5,
        "Ä",
        ChatSettings(instructions="B\n\ud800"),
        frozenset(["instructions"]),
        "C",
        "D",
        ("E",),
    )
    write_preset(given, file)
    found = read_preset(file)
    assert found is not None
    expected = made(given).settings.instructions
    assert expected is not None
    assert found.preset.settings.instructions == expected.replace("\ud800", "?")
    assert (found.preset.name, found.preset.greetings, found.note) == ("Ä", ("E",), "")
    with pytest.raises(PresetFileError, match="could not be written"):
        write_preset(given, file / "below")


def test_a_preset_of_lm_studio(file: Path) -> None:
    found = preset(file, lm_studio())
    assert found.name == "Brief"
    assert found.settings.instructions == "Be brief."
    assert found.settings.sampling == {
        "temperature": 0.3,
        "top_k": 40,
        "top_p": 0.9,
        "min_p": 0.0,
    }  # a penalty of 99 is out of range
    assert found.settings.stop == ("###",)
    assert found.settings.policy is ContextPolicy.STOP
    assert found.settings.format is AnswerFormat.SCHEMA
    assert json.loads(found.settings.text) == {"type": "object"}
    assert found.parts == {"instructions", "sampling", "stop", "policy", "format"}


def test_an_old_preset_of_lm_studio(tmp_path: Path) -> None:
    old = {
        "load_params": {"n_ctx": 2048},
        "inference_params": {"temp": 0.8, "top_k": 40.0, "pre_prompt": "Hi", "antiprompt": ["##"]},
    }
    found = preset(tmp_path / "My own.preset.json", old)
    assert found.name == "My own"
    assert found.settings.sampling == {"temperature": 0.8, "top_k": 40}
    assert (found.settings.instructions, found.settings.stop) == ("Hi", ("##",))


# --- character cards ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_card_becomes_instructions_and_a_greeting(file: Path, version: int) -> None:
    found = preset(file, card(version))
    assert found.name == "Ada"
    assert found.greeting == "*looks up* Hello, User!"
    text = found.settings.instructions
    assert text is not None
    assert text.split("\n\n") == [
        "You are Ada. Stay in character, and write only what Ada says and does.",
        "Ada is a Ada who likes User.",
        "Personality: curious",
        "Scenario: A library at night.",
        "How Ada writes:\nUser: Hi\nAda: Good evening.",
        "Ada: Books!",
    ]
    assert found.parts == {"instructions"}


def test_the_rest_of_a_card(file: Path) -> None:
    more = card(
        3,
        nickname="Countess",
        system_prompt="Be poetic. {{original}}",
        post_history_instructions="Write {{// a note }}two sentences.",
        alternate_greetings=["Oh, {{user}}.", 5, " "],
        creator_notes="\nA countess.\nBy me",
        character_book={
            "entries": [
                {"keys": ["x"], "content": "y"},
                {
                    "keys": [],
                    "content": "Second of {{char}}.",
                    "constant": True,
                    "insertion_order": 9,
                },
                {"keys": [], "content": "First.", "constant": True, "insertion_order": 1},
                {"keys": [], "content": "off", "constant": True, "enabled": False},
                {"keys": ["z"], "content": "", "insertion_order": "x"},
                5,
            ]
        },
        extensions={"deep": {"er": []}},
    )
    found = read(file, more)
    assert found is not None
    text = found.preset.settings.instructions
    assert text is not None
    assert text.startswith("Be poetic. You are Countess. Stay in character")
    assert text.endswith("Write two sentences.")
    assert found.preset.greetings == ("Oh, User.",)
    assert found.preset.description == "A countess."
    assert "\n\nFirst.\n\nSecond of Countess.\n\n" in text
    expected = "1 entry of its lorebook is left out: it appears only after keywords."
    assert found.note == expected


def test_cards_as_other_programs_write_them(file: Path) -> None:
    odd = card(2, name="", alternate_greetings="1687194031049", character_book=None, tags=None)
    odd["data"]["extensions"] = {"depth_prompt": {"depth": ""}}
    found = read(file, odd)
    assert found is not None
    assert (found.preset.name, found.preset.greetings, found.note) == ("file", (), "")
    assert found.preset.settings.instructions is not None
    assert found.preset.settings.instructions.startswith("You are file.")


def test_a_card_in_a_picture(file: Path) -> None:
    newer = text_chunk(card(3, name="New"), b"ccv3")
    assert preset(file, picture(text_chunk(card()))).name == "Ada"
    assert preset(file, picture(text_chunk(card()), newer)).name == "New"
    packed = zlib.compress(encoded(card()))
    assert preset(file, picture(chunk(b"zTXt", b"chara\0\0" + packed))).name == "Ada"
    international = b"chara\0\1\0en\0\0" + packed
    assert preset(file, picture(chunk(b"iTXt", international))).name == "Ada"
    assert preset(file, picture(text_chunk(card(), b"chara_card_v3"))).name == "Ada"
    plain = b"chara\0\0\0\0\0" + encoded(card())
    assert preset(file, picture(chunk(b"iTXt", plain))).name == "Ada"
    broken = chunk(b"tEXt", b"ccv3\0nothing")
    assert preset(file, picture(text_chunk(card()), broken)).name == "Ada"


def test_a_picture_without_a_card_is_none(file: Path) -> None:
    assert read(file, picture()) is None
    assert read(file, picture(chunk(b"tEXt", b"Comment\0chara"))) is None
    assert read(file, picture()[:40]) is None
    assert may_be_preset(file)


@pytest.mark.parametrize(
    "hostile",
    [
        chunk(b"tEXt", b"chara\0" + encoded(card()), crc=1),
        chunk(b"tEXt", b"chara\0!!!"),
        chunk(b"tEXt", b"chara"),
        text_chunk("text"),
        text_chunk([1]),
        text_chunk({"spec": "chara_card_v2", "data": 5}),
        text_chunk({"name": "only"}),
        chunk(b"tEXt", b"chara\0" + encoded("x").replace(b"=", b"") * 3),
        chunk(b"zTXt", b"chara\0\0" + zlib.compress(b"A" * (MOST_TEXT + 1))),
        chunk(b"zTXt", b"chara\0\0" + b"no zlib"),
        chunk(b"iTXt", b"chara\0\1"),
        b"\xff\xff\xff\xfftEXtchara\0" + encoded(card()),
        b"\x7f\xff\xff\xfftEXtchara\0",
    ],
)
def test_a_hostile_picture_gets_one_sentence(file: Path, hostile: bytes) -> None:
    with pytest.raises(PresetFileError) as caught:
        read(file, picture(hostile))
    assert str(caught.value).startswith("file.bin: The character card in this picture is ")


def test_deep_json_in_a_picture(file: Path) -> None:
    deep = base64.b64encode(b'{"a":' * 100_000)
    with pytest.raises(PresetFileError, match="is damaged"):
        read(file, picture(chunk(b"tEXt", b"chara\0" + deep)))


@pytest.mark.parametrize(
    "content", [b"{", b'{"a": ' * 50_000, b'{"n": 1' + b"0" * 5000 + b"}", b"\xef\xbb\xbf{\xff}"]
)
def test_damaged_json_gets_one_sentence(file: Path, content: bytes) -> None:
    with pytest.raises(PresetFileError, match=r"file.bin is damaged: its content cannot be read\."):
        read(file, content)


def test_other_files_are_none(file: Path) -> None:
    for content in (b"", b"Hello", b"[1]", b"{}", b'{"a": 1}', b'{"operation": {"fields": 3}}'):
        assert read(file, content) is None
    assert not may_be_preset(file / "missing")
    with file.open("wb") as sparse:
        sparse.write(b"{")
        sparse.truncate(LARGEST_JSON + 10)
    with pytest.raises(PresetFileError, match="too large"):
        read_preset(file)
    with pytest.raises(PresetFileError, match="cannot be read"):
        read_preset(file.parent)


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4), st.integers())
@settings(max_examples=150, deadline=None)
def test_damaged_pictures_get_a_sentence_or_are_none(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], end: int
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.png"
    newer = chunk(b"zTXt", b"ccv3\0\0" + zlib.compress(encoded(card(3))))
    content = bytearray(picture(newer, text_chunk(card())))
    for place, value in changes:
        content[place % len(content)] = value
    del content[len(content) - end % 200 :]
    found: FoundPreset | None = None
    with suppress(PresetFileError):
        found = read(file, bytes(content))
    assert found is None or found.preset.name == "Ada"


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
FLAT = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.text(max_size=3), SCALARS)
JSON = FLAT | st.lists(FLAT, max_size=2) | st.dictionaries(st.text(max_size=3), FLAT, max_size=2)


@given(st.sampled_from([*FIELDS, *card(1)]), JSON)
@settings(max_examples=80, deadline=None)
def test_values_of_any_type_are_read_or_left_out(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: Any
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.json"
    found = preset(file, lm_studio({**FIELDS, key: value}))
    assert found.name == "Brief"
    for version in (2, 3):
        read_any = read(file, card(version, **{key: value}))
        assert read_any is not None
        assert read_any.preset.name
    read(file, {**lm_studio(), key: value, "operation": value})
