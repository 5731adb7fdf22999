"""Sequence files: format, names, versions, and refusal of damaged or crafted files."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import FaultKind
from engine.state.disk import sequence_file
from engine.state.disk.page_file import StateKey, file_size, pages_of
from engine.state.disk.sequence_file import SavedSequence, encoded_ids

KEY = StateKey("a" * 64, "stack", "f16", (1000, 50), "tiles")
TOKENS = encoded_ids(range(600))
METADATA = {"model": "Tiny", "adapters": "[]", "created": "2031"}
RESUME = {"sampling": "{}", "random": "00ff"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / sequence_file.file_name("one", pages_of(KEY, TOKENS))
    size = sequence_file.write(path, KEY, METADATA, TOKENS, [1, 3, 3], RESUME)
    assert size == path.stat().st_size
    return path


def read(path: Path) -> SavedSequence:
    (found,) = sequence_file.read_all(path.parent)
    assert found.path == path
    return found


def test_sequence_is_read_as_written(path: Path) -> None:
    saved = read(path)
    assert saved.fault is None
    assert (saved.key, saved.metadata, saved.resume) == (KEY, METADATA, RESUME)
    assert saved.tokens == list(range(600))
    assert saved.pages == pages_of(KEY, TOKENS)
    assert saved.held == (1, 3, 3)
    pages = sum(file_size(page, 1000) for page in saved.pages)
    pages += sum(file_size(page, 50) for page in saved.pages[1:])
    assert saved.size_bytes == path.stat().st_size + pages
    assert saved.used_ns == path.stat().st_mtime_ns


def test_file_of_a_long_conversation_is_small(tmp_path: Path) -> None:
    path = tmp_path / "long.sequence"
    size = sequence_file.write(path, KEY, METADATA, encoded_ids(range(8192)), [3] * 32, RESUME)
    assert size < 40_000


def test_name_is_that_of_the_conversation_the_key_and_the_tokens() -> None:
    def name(conversation: str, tokens: int, key: StateKey = KEY) -> str:
        return sequence_file.file_name(conversation, pages_of(key, encoded_ids(range(tokens))))

    names = {
        name("one", 300), name("two", 300), name("one", 301),
        name("one", 300, StateKey("a" * 64, "", "f16", (1000, 50), "tiles")),
    }  # fmt: skip
    assert len(names) == 4
    assert name("one", 300).startswith(sequence_file.conversation_prefix("one") + "-")
    secret = "../secret plans \ud800"
    assert "secret" not in name(secret, 3)
    assert "/" not in name(secret, 3)


def test_belongs_to_its_conversation(path: Path) -> None:
    assert read(path).belongs_to("one")
    assert not read(path).belongs_to("")


def test_unchanged_files_are_not_read_again(path: Path) -> None:
    first = read(path)
    (again,) = sequence_file.read_all(path.parent, {path.name: first})
    assert again is first
    sequence_file.touch(path)
    (touched,) = sequence_file.read_all(path.parent, {path.name: first})
    assert touched.used_ns > first.used_ns


def test_every_flipped_byte_of_header_and_digest_is_detected(path: Path) -> None:
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    end = len(whole) - 32
    for at in [*range(header), *range(header, end, 13), *range(end, len(whole))]:
        spoiled = bytearray(whole)
        spoiled[at] ^= 1 << at % 8
        path.write_bytes(spoiled)
        fault = read(path).fault
        assert str(fault) == "The saved session is damaged."
        assert fault is not None
        assert fault.fault.kind is FaultKind.SAVED_DAMAGED


def test_truncated_and_extended_files_are_refused(path: Path) -> None:
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 7), len(whole) - 1]:
        path.write_bytes(whole[:length])
        assert read(path).fault is not None
    path.write_bytes(whole + b"\0")
    assert read(path).fault is not None


# --- crafted files: valid digests, invalid contents ---------------------------------------------


def rewrite(path: Path, change: Callable[[dict[str, object]], object], more: bytes = b"") -> None:
    """Change the header and recompute the digest."""
    whole = path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    body = len(text).to_bytes(8, "little") + text + whole[8 + length : -32] + more
    path.write_bytes(body + hashlib.sha256(body).digest())


@pytest.mark.parametrize(
    ("version", "age"), [(6, "a newer"), (999, "a newer"), (3, "an older"), ("x", "an older")]
)
def test_other_versions_are_refused(version: object, age: str, path: Path) -> None:
    rewrite(path, lambda header: header.update(version=version))
    saved = read(path)
    assert str(saved.fault) == f"The session was saved by {age} version of the app."
    assert saved.fault is not None
    assert saved.fault.fault.kind is FaultKind.SAVED_VERSION
    assert (saved.pages, saved.token_bytes, saved.size_bytes) == ((), b"", path.stat().st_size)


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.update(format="x"),
        lambda header: header.update(tokens=599),
        lambda header: header.update(tokens=601),
        lambda header: header.update(tokens=0),
        lambda header: header.update(tokens=-600),
        lambda header: header.update(tokens=1 << 70),
        lambda header: header.update(tokens=600.0),
        lambda header: header.update(tokens=True),
        lambda header: header.pop("tokens"),
        lambda header: header.update(metadata={"model": 1}),
        lambda header: header.update(metadata=None),
        lambda header: header.update(resume=[]),
        lambda header: header.pop("resume"),
        lambda header: header.update(key=None),
        lambda header: header["key"].pop("stack"),
        lambda header: header["key"].update(stack=1),
        lambda header: header["key"].update(more="x"),
        lambda header: header["key"].update(page_bytes=1000),
        lambda header: header["key"].update(page_bytes=[1000]),  # group 1 was held
        lambda header: header["key"].update(page_bytes=[0, 50]),
        lambda header: header["key"].update(page_bytes=[-1, 50]),
        lambda header: header["key"].update(page_bytes=[True, 50]),
        lambda header: header["key"].update(page_bytes=[1 << 60, 50]),
        lambda header: header["key"].update(page_bytes=[1] * 40),
    ],
)
def test_invalid_header_with_a_valid_digest_is_refused(
    change: Callable[[dict[str, object]], object], path: Path
) -> None:
    rewrite(path, lambda header: None)
    assert read(path).fault is None
    rewrite(path, change)
    assert str(read(path).fault) == "The saved session is damaged."


def test_more_data_with_a_valid_digest_is_refused(path: Path) -> None:
    rewrite(path, lambda header: None, bytes(4))
    assert read(path).fault is not None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents=st.binary(max_size=300))
def test_any_bytes_with_a_valid_digest_are_refused(contents: bytes, path: Path) -> None:
    for body in (contents, len(contents).to_bytes(8, "little") + contents):
        path.write_bytes(body + hashlib.sha256(body).digest())
        assert read(path).fault is not None


def test_deeply_nested_header_is_refused(path: Path) -> None:
    text = b"[" * 100_000
    body = len(text).to_bytes(8, "little") + text
    path.write_bytes(body + hashlib.sha256(body).digest())
    assert read(path).fault is not None


def test_files_that_cannot_be_read_have_a_fault(tmp_path: Path) -> None:
    (tmp_path / "folder.sequence").mkdir()
    (saved,) = sequence_file.read_all(tmp_path)
    assert "cannot be read" in str(saved.fault)
    assert sequence_file.read_all(tmp_path / "nowhere") == []


def test_most_recently_used_come_first(tmp_path: Path) -> None:
    for name in "abcd":
        sequence_file.write(tmp_path / f"{name}.sequence", KEY, {}, encoded_ids([1]), [1], {})
    assert [saved.path.stem for saved in sequence_file.read_all(tmp_path)] == list("dcba")
    order = random.Random(3).sample("abcd", 4)
    for name in order:
        sequence_file.touch(tmp_path / f"{name}.sequence")
    assert [saved.path.stem for saved in sequence_file.read_all(tmp_path)] == order[::-1]
