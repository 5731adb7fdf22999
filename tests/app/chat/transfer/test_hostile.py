"""Damaged and hostile files: one sentence, or what can be read of them; never another error."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.chat.transfer import (
    chatgpt,
    claude,
    jan,
    lm_studio,
    native_json,
    open_webui,
    silly_tavern,
    sources,
)
from app.chat.transfer.faults import TransferError
from app.chat.transfer.json_stream import JsonStream
from app.chat.transfer.markdown_export import chat_markdown
from app.chat.transfer.sources import opened
from app.chat.transfer.values import a_list, a_time, an_object
from app.domain.chat_tree import ChatTree, FolderRecord
from chat_makers import chatgpt_chat, claude_chat, lm_studio_chat, write_ollama, zipped

ROWS = json.loads((Path(__file__).parent / "open_webui_0.12.4.json").read_bytes())


def refusal(*paths: Path) -> str:
    """The sentence with which files are refused."""
    with pytest.raises(TransferError) as caught, opened(paths) as source:
        list(source.chats(lambda _: None))
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def file(folder: Path, content: bytes, name: str = "x.json") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "no chats"),
        (b"[]", "no chats"),
        (b"{}", "no chats"),
        (b'"text"', "no chats"),
        (b"\xff\xfe\x00", "no chats"),
        (b"[1, 2, 3]", "no chats"),
        (b"[{", "damaged"),
        (b'[{"mapping": }', "damaged"),
        (b"[" * 200_000, "more levels"),
        (b'{"a":' * 200_000, "more levels"),
        (b"PK\x03\x04 not an archive", "damaged"),
        (b"SQLite format 3\x00 not a database", "database"),
        (b'{"format": "tokonoma-chats", "version": 99, "chats": []}', "newer version"),
        (b'{"format": "tokonoma-chats", "version": 1}', "damaged"),
    ],
)
def test_what_is_no_export_is_refused(content: bytes, sentence: str, tmp_path: Path) -> None:
    assert sentence in refusal(file(tmp_path, content))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert "cannot be read" in refusal(tmp_path / "missing")


def test_an_archive_that_unpacks_to_far_more_is_refused(tmp_path: Path) -> None:
    path = zipped(tmp_path / "x.zip", {"conversations.json": b"[" + b" " * (80 << 20)})
    assert "far more" in refusal(path)


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    content = json.dumps([chatgpt_chat(f"g{n}") for n in range(50)]).encode()
    whole = zipped(tmp_path / "x.zip", {"conversations.json": content}).read_bytes()
    middle = len(whole) // 2
    cut = file(tmp_path, whole[:middle], "cut.zip")
    assert "damaged" in refusal(cut)
    changed = file(tmp_path, whole[:middle] + b"\0" * 64 + whole[middle + 64 :], "changed.zip")
    assert "damaged" in refusal(changed)


def test_a_locked_archive_is_refused(tmp_path: Path) -> None:
    path = zipped(tmp_path / "x.zip", {"conversations.json": b"[]"})
    content = bytearray(path.read_bytes())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + place] |= 1  # the flag of an encrypted file
    assert "password" in refusal(file(tmp_path, bytes(content), "locked.zip"))


def test_names_that_lead_elsewhere_write_nothing(tmp_path: Path) -> None:
    inner = json.dumps(lm_studio_chat()).encode()
    names = ("../../out.conversation.json", "/abs.conversation.json", "c:\\x.conversation.json")
    path = zipped(tmp_path / "x.zip", dict.fromkeys(names, inner))
    before = sorted(tmp_path.rglob("*"))
    with opened([path]) as source:
        assert len(list(source.chats(lambda _: None))) == 3
    assert sorted(tmp_path.rglob("*")) == before


def test_a_chat_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.chat.transfer.json_stream.LARGEST_VALUE", 1 << 20)
    content = b'[{"mapping": {}, "title": "' + b"x" * (4 << 20)
    assert "larger than" in refusal(file(tmp_path, content))


def test_huge_numbers_are_no_numbers(tmp_path: Path) -> None:
    chat = json.dumps(chatgpt_chat()).replace("1700000000.25", "1" * 5000)
    chat = chat.replace("1700000100.0", "-1e400")
    path = file(tmp_path, f"[{chat}]".encode())
    with opened([path]) as source:
        [(_, found)] = source.chats(lambda _: None)
    assert found.tree is not None
    assert found.tree.created == 1_700_000_000.5  # of its first message


def test_a_database_whose_tables_are_views_is_refused(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "db.sqlite"
    database = sqlite3.connect(path)
    database.executescript(
        "CREATE VIEW chats AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
        " SELECT x AS id FROM n; CREATE TABLE messages (id INTEGER);"
    )
    database.close()
    assert "not the database of the Ollama app" in refusal(path)


def test_a_database_is_not_changed_by_reading(tmp_path: Path) -> None:
    path = write_ollama(tmp_path / "db.sqlite")
    before = path.read_bytes()
    with opened([path]) as source:
        assert list(source.chats(lambda _: None))
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["db.sqlite"]


@pytest.mark.parametrize("chunk", [1, 2, 7, 64])
def test_pieces_of_any_size_give_the_same_values(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.chat.transfer.json_stream.CHUNK", chunk)
    values: list[Any] = [
        {"a": 'é"\\\ud83d\ude00', "b": [1.5e3, -2, True, None, {}]},
        [],
        "x",
        12,
        1e5,
    ]
    text = json.dumps(values, ensure_ascii=True).replace("12", "12345678901234567890")
    stream = JsonStream(io.BytesIO(f" {text} ".encode()))
    assert list(stream.elements()) == json.loads(text)
    stream = JsonStream(io.BytesIO('\ufeff{"u": 1}\n 2 [3]'.encode()))
    assert list(stream.values()) == [{"u": 1}, 2, [3]]
    stream = JsonStream(io.BytesIO('[{"z": "ü"}]'.encode("utf-16")))
    assert list(stream.elements()) == [{"z": "ü"}]


json_values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
        st.sampled_from(["user", "assistant", "text", "system", "a", "b", "2024-99-99", "@", ""]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)  # fmt: skip
SAMPLES: list[tuple[Any, Any]] = [
    (chatgpt.to_chat, chatgpt_chat()),
    (claude.to_chat, claude_chat()),
    (open_webui.to_chat, ROWS[1]),
    (lm_studio.to_chat, lm_studio_chat()),
    (native_json.to_chat, native_json.values_of(chatgpt.to_chat(chatgpt_chat()).tree or ChatTree("", 0, 0))),
    (lambda value: jan.to_chat(an_object(value).get("thread"), a_list(an_object(value).get("lines"))), {
        "thread": {"object": "thread", "id": "t", "assistants": [{"model": {"id": "m"}}], "created": 5},
        "lines": [{"role": "assistant", "content": [{"type": "text", "text": {"value": "v"}}],
                   "created_at": 3}],
    }),
    (lambda value: silly_tavern.to_chat(iter(a_list(value))), [
        {"user_name": "u", "character_name": "c", "chat_metadata": {}},
        {"is_user": False, "mes": "m", "swipes": ["m", "n"], "swipe_id": 1, "swipe_info": [{}],
         "extra": {"reasoning": "r"}, "send_date": "2024-1-1@1h1m1s"},
    ]),
]  # fmt: skip


def changed(value: Any, chance: random.Random, junk: list[Any]) -> Any:
    """The value with one of its inner values replaced or removed."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(list(value))
        if chance.random() < 0.1:
            return {name: each for name, each in value.items() if name != key}
        return {**value, key: changed(value[key], chance, junk)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        at = chance.randrange(len(value))
        return [*value[:at], changed(value[at], chance, junk), *value[at + 1 :]]
    return chance.choice(junk)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(SAMPLES) - 1), st.randoms(use_true_random=False),
       st.lists(json_values, min_size=1, max_size=4))  # fmt: skip
def test_wrong_types_anywhere_raise_nothing(
    sample: int, chance: random.Random, junk: list[Any]
) -> None:
    to_chat, value = SAMPLES[sample]
    for _ in range(chance.randint(1, 4)):
        value = changed(value, chance, junk)
    tree = to_chat(value).tree
    if tree is not None:
        chat_markdown(tree)
        assert len({message.id for message in tree.messages}) == len(tree.messages)
        json.dumps(native_json.values_of(tree), allow_nan=False)


@settings(max_examples=100, deadline=None)
@given(st.one_of(json_values, st.text(max_size=40)))
def test_times_of_any_kind(value: object) -> None:
    assert 0 <= a_time(value) < 1e12


def test_a_program_with_a_reader_has_a_name() -> None:
    from app.domain.transfer import PROGRAM_NAMES, Program

    assert set(PROGRAM_NAMES) == set(Program)
    assert sources.has_chats(Path("/dev/null")) is False


def test_odd_folders_and_files_of_our_format_change_nothing(tmp_path: Path) -> None:
    name = "a" * 64
    values = {
        "format": native_json.FORMAT,
        "version": 2,
        "folders": [
            5, {}, {"path": "x"}, {"path": [1]}, {"path": [], "preset": 7},
            {"path": ["deep"] * 100_000},
            {"path": ["odd", "\0\ud800"], "instructions": 5, "preset": {"built_in": 1 << 70},
             "position": "first"},
            {"path": ["odd"], "preset": {"name": 5, "settings": []}},
        ],
        "files": [
            5, {}, {"sha256": 5}, {"sha256": "../../x", "base64": "QQ=="},
            {"sha256": name}, {"sha256": name, "base64": 5}, {"sha256": name, "base64": "\u00e4"},
            {"sha256": name, "base64": "QUI="},
        ],
        "chats": [{"messages": [], "folder": ["deep"] * 100_000}],
    }  # fmt: skip
    folders: list[FolderRecord] = []
    files: dict[str, bytes] = {}

    def keep(sha256: str, pieces: Iterator[bytes]) -> None:
        files[sha256] = b"".join(pieces)

    path = file(tmp_path, json.dumps(values).encode())
    with opened([path]) as source:
        extras = native_json.Extras(folders.extend, keep)
        [(_, chat)] = source.chats(lambda _: None, extras)
    assert chat.tree is not None
    assert len(chat.tree.folder) == len(folders[0].path) == 100
    assert folders[1:] == [FolderRecord(("odd", "\0\ud800")), FolderRecord(("odd",))]
    assert files == {name: b"AB"}
