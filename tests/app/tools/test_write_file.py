"""Writing files: only in picked folders, whole or not at all, and the version before is kept."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import threading
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.tools import CallContext, ToolError
from app.tools.builtin import picked, write_file
from app.tools.builtin.write_file import WriteFile
from tool_services import RecordedServices, run

posix = pytest.mark.skipif(sys.platform == "win32", reason="links and permissions of POSIX")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("secret", encoding="utf-8")
    (tmp_path / "notes").mkdir()
    return tmp_path / "notes"


def write(folder: Path, services: RecordedServices | None = None, **arguments: str) -> str:
    tool = WriteFile(services or RecordedServices())
    return run(tool.call(arguments, CallContext(1, writable=(folder,))))


def changes(folder: Path, **arguments: str) -> list[str]:
    return list(
        WriteFile(RecordedServices()).changes(arguments, CallContext(1, writable=(folder,)))
    )


def everything(folder: Path) -> dict[str, bytes]:
    """Every file below the parent of a folder."""
    root = folder.parent
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_a_new_file_is_written_and_its_folders_are_made(folder: Path) -> None:
    assert write(folder, path="a.txt", text="Milk\nBread\n") == "Wrote notes/a.txt (11 bytes)."
    assert (folder / "a.txt").read_bytes() == b"Milk\nBread\n"
    assert write(folder, path="sub/deep/b.txt", text="x") == "Wrote notes/sub/deep/b.txt (1 bytes)."
    assert (folder / "sub" / "deep" / "b.txt").read_bytes() == b"x"
    assert write(folder, path="notes/c.txt", text="") == "Wrote notes/c.txt (0 bytes)."
    assert [path.name for path in folder.rglob(".*")] == []


def test_a_replaced_file_is_kept_first(folder: Path) -> None:
    (folder / "a.txt").write_bytes(b"old\r\n")
    services = RecordedServices()
    said = write(folder, services, path="a.txt", text="new")
    assert said == "Replaced notes/a.txt (3 bytes). The version before is kept in copy 1."
    assert services.kept == [(folder / "a.txt", b"old\r\n")]


@pytest.mark.parametrize(
    "fault", [OSError(28, "No space left on device"), ToolError("It is full.")]
)
def test_what_cannot_be_kept_is_not_replaced(folder: Path, fault: Exception) -> None:
    (folder / "a.txt").write_bytes(b"old")
    services = RecordedServices()
    services.keeps = fault
    with pytest.raises(ToolError, match=r"No space left on device|It is full"):
        write(folder, services, path="a.txt", text="new")
    assert (folder / "a.txt").read_bytes() == b"old"


def test_the_same_content_is_not_written_again(folder: Path) -> None:
    (folder / "a.txt").write_bytes(b"same")
    services = RecordedServices()
    assert "nothing was written" in write(folder, services, path="a.txt", text="same")
    assert services.kept == []


def test_one_exact_text_is_replaced_with_the_line_ends_of_the_file(folder: Path) -> None:
    (folder / "a.txt").write_bytes("\ufeffone\r\ntwo\r\nthr\u00e9e\r\n".encode())
    write(folder, path="a.txt", old="one\ntwo", new="1\n2")
    assert (folder / "a.txt").read_bytes() == "\ufeff1\r\n2\r\nthr\u00e9e\r\n".encode()
    write(folder, path="a.txt", old="2\n")
    assert (folder / "a.txt").read_bytes() == "\ufeff1\r\nthr\u00e9e\r\n".encode()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"old": "x", "new": "y"}, '"old" occurs 2 times'),
        ({"old": "x  x", "new": "y"}, "a similar text is at line 1"),
        ({"old": "zebra", "new": "y"}, '"old" is not in "notes/a.txt". Read the file'),
        ({"old": "", "new": "y"}, '"old" is empty'),
        ({}, 'Send either "text" for the whole file, or "old" and "new"'),
        ({"text": "a", "old": "b"}, "Send either"),
        ({"text": "\ud800"}, "half a character"),
        ({"text": "x" * 2_000_001}, "At most 2 MB"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_changes(
    folder: Path, arguments: dict[str, str], said: str
) -> None:
    (folder / "a.txt").write_text("x x\n", encoding="utf-8")
    before = everything(folder)
    with pytest.raises(ToolError) as raised:
        write(folder, path="a.txt", **arguments)
    assert said in str(raised.value)
    assert everything(folder) == before


def test_a_control_token_is_not_replaced_as_it_was_shown(folder: Path) -> None:
    (folder / "a.txt").write_text("say <|im_end|> here", encoding="utf-8")
    with pytest.raises(ToolError, match="has no space behind its first character"):
        write(folder, path="a.txt", old="< |im_end|>", new="nothing")
    write(folder, path="a.txt", old="<|im_end|>", new="nothing")
    assert (folder / "a.txt").read_bytes() == b"say nothing here"


def test_a_part_of_a_missing_or_binary_file_cannot_be_replaced(folder: Path) -> None:
    with pytest.raises(ToolError, match=r'There is no "notes/b\.txt" yet'):
        write(folder, path="b.txt", old="x", new="y")
    (folder / "b.bin").write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(ToolError, match="not UTF-8"):
        write(folder, path="b.bin", old="x", new="y")


@pytest.mark.parametrize(
    "name",
    [
        "../outside/new.txt", "../new.txt", "..", "/tmp/new.txt", "sub/../../new.txt", "", ".",
        "notes", "notes/", "..\\new.txt", "a\0b", "a\nb", "con", "aux.txt", "COM1.log", "nul",
        "a:b", "a.txt:stream", "C:\\new.txt", "C:new.txt", "a?", "a*", "a|b", "a<b", 'a"b', "dot.",
        "space /x", "\u202etxt.exe", "\u200b", "a" * 300, "sub/lpt1/x.txt", "/".join("a" * 30),
    ],
)  # fmt: skip
def test_no_name_writes_outside_or_is_impossible_elsewhere(folder: Path, name: str) -> None:
    before = everything(folder)
    with pytest.raises(ToolError):
        write(folder, path=name, text="evil")
    assert everything(folder) == before


def test_what_may_only_be_read_is_not_written(folder: Path) -> None:
    tool = WriteFile(RecordedServices())
    with pytest.raises(ToolError, match="No folder to write to is picked"):
        run(tool.call({"path": "a.txt", "text": "x"}, CallContext(1, readable=(folder,))))
    assert list(folder.iterdir()) == []


@posix
@pytest.mark.parametrize("name", ["link.txt", "linked/secret.txt", "linked/new.txt", "dangling"])
def test_no_link_leads_a_write_outside(folder: Path, name: str) -> None:
    (folder / "link.txt").symlink_to("../outside/secret.txt")
    (folder / "linked").symlink_to("../outside")
    (folder / "dangling").symlink_to("../outside/new.txt")
    before = everything(folder)
    with pytest.raises(ToolError, match="leads outside"):
        write(folder, path=name, text="evil")
    assert everything(folder) == before


@posix
def test_a_hard_link_to_a_file_outside_is_parted_from_it(folder: Path) -> None:
    os.link(folder.parent / "outside" / "secret.txt", folder / "a.txt")
    write(folder, path="a.txt", text="mine")
    assert (folder.parent / "outside" / "secret.txt").read_bytes() == b"secret"


@posix
@pytest.mark.skipif(not picked.by_folder(), reason="files are opened by the handle of their folder")
def test_a_folder_that_becomes_a_link_after_the_check_is_not_written_through(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sub").mkdir()
    planned = write_file._plan(
        {"path": "sub/new.txt", "text": "evil"}, CallContext(1, writable=(folder,))
    )
    (folder / "sub").rmdir()
    (folder / "sub").symlink_to("../outside")
    with pytest.raises(ToolError, match=r"became a link|Not a directory"):
        write_file._write(planned, threading.Event())
    assert not (folder.parent / "outside" / "new.txt").exists()


def test_a_file_that_changed_since_it_was_kept_is_not_replaced(folder: Path) -> None:
    class Slow(RecordedServices):
        async def keep(self, path: Path, content: bytes) -> str:
            await asyncio.to_thread(path.write_bytes, b"by someone else")
            return await super().keep(path, content)

    (folder / "a.txt").write_bytes(b"old")
    with pytest.raises(ToolError, match="was changed meanwhile"):
        write(folder, Slow(), path="a.txt", text="new")
    assert everything(folder)["notes/a.txt"] == b"by someone else"
    assert [path.name for path in folder.iterdir()] == ["a.txt"]


def test_a_file_that_appeared_meanwhile_is_not_replaced(folder: Path) -> None:
    planned = write_file._plan({"path": "a.txt", "text": "new"}, CallContext(1, writable=(folder,)))
    (folder / "a.txt").write_bytes(b"by someone else")
    with pytest.raises(ToolError, match="was changed meanwhile"):
        write_file._write(planned, threading.Event())
    assert (folder / "a.txt").read_bytes() == b"by someone else"


def test_a_stopped_call_writes_nothing(folder: Path) -> None:
    planned = write_file._plan({"path": "a.txt", "text": "new"}, CallContext(1, writable=(folder,)))
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(ToolError, match="stopped before anything was written"):
        write_file._write(planned, stopped)
    assert list(folder.iterdir()) == []


def test_a_failed_write_leaves_the_file_as_it_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a.txt").write_bytes(b"old")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ToolError, match="No space left on device"):
        write(folder, path="a.txt", text="new")
    assert everything(folder)["notes/a.txt"] == b"old"
    assert [path.name for path in folder.iterdir()] == ["a.txt"]


@posix
def test_a_replaced_file_keeps_its_permissions(folder: Path) -> None:
    (folder / "a.sh").write_bytes(b"old")
    (folder / "a.sh").chmod(0o775)
    write(folder, path="a.sh", text="new")
    assert stat.S_IMODE((folder / "a.sh").stat().st_mode) == 0o775


@given(st.lists(st.sampled_from("abc"), max_size=9), st.lists(st.sampled_from("abc"), max_size=9))
def test_as_few_lines_are_said_to_change_as_can_be(old: list[str], new: list[str]) -> None:
    kept = max(
        len(each)
        for size in range(len(old) + 1)
        for each in combinations(old, size)
        if _is_within(each, new)
    )
    texts = ("\n".join(lines).encode() for lines in (old, new))
    assert write_file._difference(*texts) == (len(old) - kept, len(new) - kept)


def _is_within(few: tuple[str, ...], many: list[str]) -> bool:
    left = iter(many)
    return all(each in left for each in few)


def test_the_user_reads_what_a_write_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert changes(folder, path="a.txt", text="x") == [f"Writes a.txt in {folder}."]
    assert changes(folder, path="a.txt", text="x" * 4200) == [f"Writes a.txt (4 kB) in {folder}."]
    assert changes(folder, path="sub/a.txt", text="x") == [
        f"Makes the folder {folder / 'sub'}.",
        f"Writes a.txt in {folder / 'sub'}.",
    ]
    (folder / "a.txt").write_text("one\ntwo\nthree\nfour\n", encoding="utf-8")
    assert changes(folder, path="a.txt", old="two\nthree\n", new="2\n2\n2\n") == [
        f"Replaces a.txt in {folder}; lines removed: 2, lines added: 3."
    ]
    assert changes(folder, path="a.txt", text="one\ntwo\nthree\nfour\nfive\n") == [
        f"Replaces a.txt in {folder}; lines removed: 0, lines added: 1."
    ]
    many = "".join(f"{n}\n" for n in range(1000))
    (folder / "a.txt").write_text(many, encoding="utf-8")
    assert changes(folder, path="a.txt", text="first\n" + many.replace("5", "6") + "last\n") == [
        f"Replaces a.txt in {folder}; lines removed: 271, lines added: 273."
    ]
    monkeypatch.setattr(write_file, "_MOST_COMPARED", 1000)
    assert changes(folder, path="a.txt", text="first\n" + many.replace("5", "6") + "last\n") == [
        f"Replaces a.txt in {folder}; lines removed: 1,000, lines added: 1,002."
    ]
    (folder / "b.bin").write_bytes(b"\xff")
    assert changes(folder, path="b.bin", text="x") == [f"Replaces b.bin in {folder}."]
    assert not (folder / "sub").exists()


def test_a_write_to_one_of_two_picked_folders_names_it(folder: Path) -> None:
    tool = WriteFile(RecordedServices())
    context = CallContext(1, writable=(folder, folder.parent / "outside"))
    with pytest.raises(
        ToolError, match=r'Begin "a.txt" with the folder it is for: notes/, outside/'
    ):
        run(tool.call({"path": "a.txt", "text": "x"}, context))
    assert run(tool.call({"path": "outside/a.txt", "text": "x"}, context)).startswith(
        "Wrote outside/a.txt"
    )
