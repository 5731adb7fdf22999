"""Page files: names, format, and that no damaged, swapped or foreign file is ever accepted."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import re
from array import array
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import Cancelled, SnapshotError
from engine.state.disk import page_file
from engine.state.disk.atomic import Damaged
from engine.state.disk.page_file import PAGE_TOKENS, Page, StateKey, pages_of

KEY = StateKey("a" * 64, "", "f16", (1000,))
PART = random.Random(1).randbytes(3000)
HEADER_BYTES = 64


def ids(*tokens: int) -> bytes:
    return array("i", tokens).tobytes()


PAGE = pages_of(KEY, ids(*range(7)))[0]


def written(folder: Path, page: Page = PAGE, group: int = 0, part: bytes = PART) -> Path:
    path = folder / page_file.file_name(page.name, group)
    size = page_file.write(folder, page, group, memoryview(part))
    assert size == path.stat().st_size == page_file.file_size(page, len(part))
    return path


def read(folder: Path, page: Page = PAGE, group: int = 0, size: int = len(PART)) -> bytes:
    target = bytearray(size)
    page_file.read(folder, page, group, memoryview(target))
    return bytes(target)


def test_page_size_is_that_of_the_kernels() -> None:
    source = Path(__file__).parents[4] / "kernels" / "states" / "layer_state.py"
    found = re.search(r"^PAGE_TOKENS = (\d+)$", source.read_text(encoding="utf-8"), re.MULTILINE)
    assert found
    assert int(found[1]) == PAGE_TOKENS


def test_names_depend_on_all_tokens_before_and_on_the_key() -> None:
    tokens = list(range(600))
    first = pages_of(KEY, ids(*tokens))
    assert [page.tokens for page in first] == [256, 256, 88]
    assert b"".join(page.token_bytes for page in first) == ids(*tokens)
    assert pages_of(KEY, ids(*tokens, 9))[:2] == first[:2]
    assert pages_of(KEY, ids(*tokens, 9))[2] != first[2]
    for at, same in ((0, 0), (255, 0), (256, 1), (599, 2)):
        changed = pages_of(KEY, ids(*tokens[:at], 1000, *tokens[at + 1 :]))
        assert [a.name == b.name for a, b in zip(first, changed, strict=True)].count(True) == same
    # The same 256 tokens after others are another page.
    twice = pages_of(KEY, ids(*range(256), *range(256)))
    assert twice[0].token_bytes == twice[1].token_bytes
    assert twice[0].name != twice[1].name
    keys = [
        KEY,
        replace(KEY, model_sha256="b" * 64),
        replace(KEY, stack="x"),
        replace(KEY, cache="f32"),
        replace(KEY, page_bytes=(1000, 1000)),
        replace(KEY, layout="other"),
        StateKey("a" * 64, "f16", "", (1000,)),
    ]
    names = [pages_of(key, ids(*tokens))[0].name for key in keys]
    assert len(set(names)) == len(keys)
    assert pages_of(KEY, b"") == ()


def test_file_names_are_parsed() -> None:
    for group in (0, 1, 12):
        assert page_file.parse_name(page_file.file_name(PAGE.name, group)) == (PAGE.name, group)
    name = PAGE.name
    for other in (
        "", ".lock", f"{name}.page", f"{name}.x.page", f"{name}.-1.page", f"{name}.0.tmp",
        f"{name[1:]}.0.page", f"{name.upper()}.0.page", f".{name}.0.page.00ff00ff.tmp",
        f"{name}.².page", f"{name}.0",
    ):  # fmt: skip
        assert page_file.parse_name(other) is None, other


def test_part_is_read_as_written(tmp_path: Path) -> None:
    for size in (0, 1, 3000, (1 << 20) - 1, 1 << 20, (2 << 20) + 5):
        part = random.Random(size).randbytes(size)
        written(tmp_path, part=part)
        assert read(tmp_path, size=size) == part
    written(tmp_path)
    written(tmp_path, group=1, part=PART[::-1])
    assert read(tmp_path) == PART
    assert read(tmp_path, group=1) == PART[::-1]
    assert len(list(tmp_path.iterdir())) == 2


def test_part_of_another_type_is_written_as_its_bytes(tmp_path: Path) -> None:
    values = array("f", [1.5, 2.5, -3.0])
    page_file.write(tmp_path, PAGE, 0, memoryview(values))
    target = array("f", [0.0] * 3)
    page_file.read(tmp_path, PAGE, 0, memoryview(target))
    assert target == values


def test_digest_ends_the_file(tmp_path: Path) -> None:
    whole = written(tmp_path).read_bytes()
    assert whole[-32:] == hashlib.sha256(whole[:-32]).digest()
    assert whole[HEADER_BYTES : HEADER_BYTES + 28] == PAGE.token_bytes


def assert_damaged(folder: Path, path: Path, contents: bytes, page: Page = PAGE) -> str:
    path.write_bytes(contents)
    with pytest.raises(Damaged) as refused:
        read(folder, page)
    assert not path.exists(), "a damaged file is deleted"
    assert refused.value.remedy
    return str(refused.value)


def test_every_flipped_byte_of_header_and_digest_is_detected(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole = path.read_bytes()
    places = [*range(HEADER_BYTES + 28), *range(len(whole) - 32, len(whole))]
    for at in places:
        spoiled = bytearray(whole)
        spoiled[at] ^= 1 << at % 8
        assert assert_damaged(tmp_path, path, spoiled) == "The saved session is damaged."


def test_flipped_bits_of_the_part_are_detected(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole, chance = path.read_bytes(), random.Random(2)
    for _ in range(300):
        spoiled = bytearray(whole)
        spoiled[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        assert_damaged(tmp_path, path, spoiled)


def test_truncated_and_extended_files_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 37), len(whole) - 1]:
        message = assert_damaged(tmp_path, path, whole[:length])
        assert message == f"The saved session is cut short: {length:,} bytes of {len(whole):,}."
        assert not page_file.exists(tmp_path, PAGE, 0, len(PART))
    assert assert_damaged(tmp_path, path, whole + b"\0") == "The saved session is damaged."
    assert_damaged(tmp_path, path, bytes(len(whole)))


def test_file_under_the_name_of_another_page_is_refused(tmp_path: Path) -> None:
    parent, same_tokens = pages_of(KEY, ids(*range(256), *range(256)))
    other_key = pages_of(replace(KEY, stack="x"), parent.token_bytes)[0]
    wanted = written(tmp_path, parent)
    for page, group in ((same_tokens, 0), (other_key, 0), (parent, 1)):
        path = written(tmp_path, page, group)
        path.replace(wanted)
        with pytest.raises(Damaged):
            read(tmp_path, parent)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents=st.binary(max_size=200))
def test_any_bytes_with_a_valid_digest_are_refused(contents: bytes, tmp_path: Path) -> None:
    path = tmp_path / page_file.file_name(PAGE.name, 0)
    assert_damaged(tmp_path, path, contents)
    padded = contents.ljust(page_file.file_size(PAGE, len(PART)) - 32, b"\1")
    assert_damaged(tmp_path, path, padded + hashlib.sha256(padded).digest())


def test_missing_file_is_refused_with_the_reason(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(SnapshotError, match=f"cannot be read: {os.strerror(errno.ENOENT)}"):
            read(folder)


def test_cancelled_write_leaves_nothing_and_keeps_the_old_file(tmp_path: Path) -> None:
    calls = 0

    def cancel() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Cancelled

    big = bytes(3 << 20)
    with pytest.raises(Cancelled):
        page_file.write(tmp_path, PAGE, 0, memoryview(big), cancel)
    assert list(tmp_path.iterdir()) == []
    path = written(tmp_path)
    calls = 0
    with pytest.raises(Cancelled):
        page_file.write(tmp_path, PAGE, 0, memoryview(big), cancel)
    assert list(tmp_path.iterdir()) == [path]
    assert read(tmp_path) == PART
    written(tmp_path, part=big)
    calls = 0
    with pytest.raises(Cancelled):
        page_file.read(tmp_path, PAGE, 0, memoryview(bytearray(len(big))), cancel)
    assert path.exists()
