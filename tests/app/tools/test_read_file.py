"""Reading files and folders: only what was picked, whatever name, link or race leads elsewhere."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.tools import CallContext, ToolError
from app.tools.builtin import picked, read_file
from app.tools.builtin.read_file import MOST_SHOWN, ListFolder, ReadFile
from tool_services import RecordedServices, run

posix = pytest.mark.skipif(sys.platform == "win32", reason="links and pipes of POSIX")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a picked one and files beside it that were not picked."""
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key.txt").write_text("secret", encoding="utf-8")
    (tmp_path / "notes" / "deep").mkdir(parents=True)
    (tmp_path / "notes" / "a.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
    (tmp_path / "notes" / "deep" / "b.py").write_text("print()\n", encoding="utf-8")
    return tmp_path


def read(path: str, *picks: Path, services: RecordedServices | None = None, **more: int) -> str:
    tool = ReadFile(services or RecordedServices())
    return run(tool.call({"path": path, **more}, CallContext(1, readable=picks)))


def listed(picks: tuple[Path, ...], **arguments: str) -> str:
    return run(ListFolder().call(arguments, CallContext(1, readable=picks)))


@pytest.mark.parametrize(
    "name", ["a.txt", "notes/a.txt", "./a.txt", "deep\\b.py", "notes/deep/b.py"]
)
def test_a_file_in_a_picked_folder_is_read_by_its_name(place: Path, name: str) -> None:
    assert "lines 1 to" in read(name, place / "notes")


def test_a_file_is_read_by_its_absolute_path_or_its_own_name(place: Path) -> None:
    file = place / "notes" / "a.txt"
    assert (
        read(str(file), place / "notes")
        == "notes/a.txt, lines 1 to 3 of 3 (14 bytes):\none\ntwo\nthree"
    )
    assert read("a.txt", file) == "a.txt, lines 1 to 3 of 3 (14 bytes):\none\ntwo\nthree"


def test_what_may_be_written_may_be_read(place: Path) -> None:
    call = ReadFile(RecordedServices()).call(
        {"path": "a.txt"}, CallContext(1, writable=(place / "notes",))
    )
    assert "two" in run(call)


ESCAPES = [
    "../secret.txt", "notes/../secret.txt", "notes/../../secret.txt", "deep/../../secret.txt",
    "..", "/etc/passwd", "~/.ssh/id_rsa", "\\..\\secret.txt", "..\\secret.txt", "secret.txt",
    "notes/./../secret.txt", "notes//../secret.txt", "", "   ", "a" * 2000, "a.txt\0.png", "a\n.txt",
    "\ud800", "notes/secret.txt", "/", ".", "file:///etc/passwd", "\uff0e\uff0e/secret.txt",
]  # fmt: skip


@pytest.mark.parametrize("name", ESCAPES)
def test_no_name_leads_out_of_a_picked_folder(place: Path, name: str) -> None:
    with pytest.raises(ToolError) as raised:
        read(name, place / "notes")
    assert "secret\n" not in str(raised.value)


def test_the_absolute_path_of_another_file_is_refused(place: Path) -> None:
    for path in (place / "secret.txt", place / "notes" / ".." / "secret.txt", place / "notes2"):
        with pytest.raises(ToolError, match=r"There is no|has no \"\.\.\""):
            read(str(path), place / "notes")


def test_a_picked_file_does_not_open_its_folder(place: Path) -> None:
    for name in ("deep/b.py", "b.py", str(place / "notes" / "deep" / "b.py"), "a.txt/../deep/b.py"):
        with pytest.raises(ToolError):
            read(name, place / "notes" / "a.txt")


@posix
@pytest.mark.parametrize("target", ["../secret.txt", "../secrets", "/etc", "loop"])
def test_a_link_that_leads_outside_is_refused(place: Path, target: str) -> None:
    (place / "notes" / "loop").symlink_to(target)
    for name in ("loop", "loop/key.txt", "loop/passwd"):
        with pytest.raises(ToolError):
            read(name, place / "notes")
        with pytest.raises(ToolError):
            listed((place / "notes",), path=name)


@posix
def test_a_link_within_what_is_picked_is_followed(place: Path) -> None:
    (place / "notes" / "link.txt").symlink_to("deep/b.py")
    assert "print()" in read("link.txt", place / "notes")


@posix
def test_a_picked_link_is_what_it_leads_to(place: Path) -> None:
    (place / "picked").symlink_to("notes")
    assert "two" in read("a.txt", place / "picked")
    assert "two" in read("picked/a.txt", place / "picked")


@posix
@pytest.mark.skipif(not picked.by_folder(), reason="files are opened by the handle of their folder")
@pytest.mark.parametrize("name", ["a.txt", "deep/b.py"])
def test_a_link_put_there_after_the_check_is_not_followed(
    place: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = picked.locate

    def swapped(*given: object, **more: bool) -> picked.Place:
        found = checked(*given, **more)  # type: ignore[arg-type]
        swap = place / "notes" / name.split("/", maxsplit=1)[0]
        swap.rename(swap.with_name("moved"))
        swap.symlink_to(place / ("secrets" if "/" in name else "secret.txt"))
        (place / "secrets" / "b.py").write_text("secret", encoding="utf-8")
        return found

    monkeypatch.setattr(picked, "locate", swapped)
    with pytest.raises(ToolError, match=r"became a link|Not a directory"):
        read(name, place / "notes")


@posix
def test_pipes_and_devices_are_refused_without_waiting(place: Path) -> None:
    os.mkfifo(place / "notes" / "pipe")
    with pytest.raises(ToolError, match="is no plain file"):
        read("pipe", place / "notes")
    with pytest.raises(ToolError, match="is no plain file"):
        read("/dev/zero", Path("/dev/zero"))


@pytest.mark.skipif(sys.platform != "linux", reason="a socket is bound in a folder by its handle")
def test_sockets_are_refused(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        folder = os.open(place / "notes", os.O_RDONLY)
        try:
            listening.bind(f"/proc/self/fd/{folder}/s")
        finally:
            os.close(folder)
        with pytest.raises(ToolError, match="is no plain file"):
            read("s", place / "notes")


def test_lines_are_numbered_and_a_long_file_comes_in_parts(place: Path) -> None:
    lines = [f"line {n} " + "x" * 90 for n in range(1, 1001)]
    (place / "notes" / "long.txt").write_bytes("\r\n".join(lines).encode())
    seen: list[str] = []
    first = 1
    while first:
        text = read("long.txt", place / "notes", first_line=first)
        assert len(text) < MOST_SHOWN + 300
        head, *body = text.split("\n")
        assert head.startswith(f"notes/long.txt, lines {first:,} to ")
        first = int(body.pop().removesuffix(".]").rpartition(" ")[2]) if body[-1][0] == "[" else 0
        seen += body
    assert seen == lines


def test_some_lines_of_a_file(place: Path) -> None:
    text = read("a.txt", place / "notes", first_line=2, lines=1)
    assert (
        text == 'notes/a.txt, lines 2 to 2 of 3 (14 bytes):\ntwo\n[To go on, send "first_line": 3.]'
    )
    with pytest.raises(ToolError, match="has 3 lines"):
        read("a.txt", place / "notes", first_line=4)
    with pytest.raises(ToolError, match="1 or more"):
        read("a.txt", place / "notes", first_line=-1)


@given(
    st.lists(st.text(alphabet="ab ", max_size=4), min_size=1),
    st.integers(1, 12),
    st.integers(0, 12),
)
def test_parts_are_those_of_the_lines(lines: list[str], first: int, count: int) -> None:
    text = "\n".join(lines)
    wanted = text.removesuffix("\n").split("\n")
    if not text.strip() or first > len(wanted):
        return
    part = read_file.numbered_part("f", text, len(text), first, count)
    shown = part.split("\n")[1:]
    shown = shown[:-1] if shown[-1].startswith("[To go on") else shown
    assert shown == wanted[first - 1 : first - 1 + count if count else None]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
def test_texts_of_other_encodings_are_read(place: Path, encoding: str) -> None:
    text = "Größe und Maße für die Änderung, über Straße\n" * 5
    (place / "notes" / "old.txt").write_bytes(text.encode(encoding))
    assert text.splitlines()[0] in read("old.txt", place / "notes")


def test_a_document_is_read_by_the_service_from_a_copy_of_what_was_opened(place: Path) -> None:
    services = RecordedServices()
    for name, content in (
        ("a.pdf", b"%PDF-1.7 text"),
        ("b.docx", b"PK\x03\x04..."),
        ("c.rtf", b"{\\rtf1 x}"),
    ):
        (place / "notes" / name).write_bytes(content)
        services.texts[content] = "page one\npage two"
        assert "page two" in read(name, place / "notes", services=services)
        assert services.asked[-1] == ("text_of", Path(name).suffix, name)


def test_a_file_without_text_is_described(place: Path) -> None:
    (place / "notes" / "p.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0" * 200)
    with pytest.raises(ToolError) as raised:
        read("p.png", place / "notes")
    assert str(raised.value) == '"notes/p.png" (2 KB) is no text file. It is a picture.'


def test_an_empty_file_is_said_to_be_empty(place: Path) -> None:
    (place / "notes" / "empty.txt").write_bytes(b"")
    assert read("empty.txt", place / "notes") == "notes/empty.txt (0 bytes) is empty."


def test_a_file_beyond_the_limit_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_file, "_MOST_DOCUMENT", 10)
    with pytest.raises(ToolError, match="larger than 10 bytes"):
        read("a.txt", place / "notes")


def test_one_long_line_is_cut_and_that_is_said(place: Path) -> None:
    (place / "notes" / "min.js").write_text("x" * 100_000 + "\nend\n", encoding="utf-8")
    text = read("min.js", place / "notes")
    assert len(text) < 3000
    assert text.endswith("end\n[Longer lines were cut.]")


def test_without_a_pick_the_model_is_told_what_to_ask() -> None:
    with pytest.raises(ToolError, match="Ask the user to pick one"):
        read("a.txt")


def test_a_name_in_two_picked_folders_is_asked_for_again(place: Path) -> None:
    (place / "secrets" / "a.txt").write_text("x", encoding="utf-8")
    with pytest.raises(ToolError, match=r"may be notes/a\.txt or secrets/a\.txt"):
        read("a.txt", place / "notes", place / "secrets")
    assert "two" in read("notes/a.txt", place / "notes", place / "secrets")


def test_two_picked_folders_of_one_name_are_told_apart_by_their_paths(place: Path) -> None:
    (place / "secrets" / "notes").mkdir()
    (place / "secrets" / "notes" / "a.txt").write_text("other", encoding="utf-8")
    picks = (place / "notes", place / "secrets" / "notes")
    with pytest.raises(ToolError) as raised:
        read("a.txt", *picks)
    assert all(str(pick / "a.txt") in str(raised.value) for pick in picks)
    assert "other" in read(str(picks[1] / "a.txt"), *picks)


def test_the_name_of_a_picked_folder_comes_before_one_within_it(place: Path) -> None:
    (place / "notes" / "notes").mkdir()
    (place / "notes" / "notes" / "a.txt").write_text("inner", encoding="utf-8")
    assert "two" in read("notes/a.txt", place / "notes")
    assert "inner" in read("notes/notes/a.txt", place / "notes")


def test_a_missing_file_is_answered_with_what_is_picked(place: Path) -> None:
    with pytest.raises(ToolError, match=r'There is no "b\.txt" .*: notes/\.'):
        read("b.txt", place / "notes")
    with pytest.raises(ToolError, match="is a folder: use list_folder"):
        read("deep", place / "notes")


def test_a_folder_is_listed_with_its_folders_first(place: Path) -> None:
    text = listed((place / "notes",))
    assert text.splitlines()[:2] == ["notes/ (2 entries):", "deep/"]
    assert text.splitlines()[2].startswith("a.txt  14 bytes  20")
    assert listed((place / "notes",), path="deep").splitlines()[1].startswith("b.py  8 bytes")


def test_several_picks_are_listed_by_name(place: Path) -> None:
    picks = (place / "notes", place / "secret.txt")
    assert listed(picks) == "Picked for this chat:\nnotes/\nsecret.txt"


def test_a_pattern_is_searched_in_all_picked_folders(place: Path) -> None:
    picks = (place / "notes", place / "secrets", place / "secret.txt")
    assert [line.split("  ")[0] for line in listed(picks, pattern="*.txt").splitlines()] == [
        "notes/ (1 entries):",
        "a.txt",
        "secrets/ (1 entries):",
        "key.txt",
    ]


def test_a_pattern_is_searched_in_subfolders(place: Path) -> None:
    assert listed((place / "notes",), pattern="*.PY").splitlines()[1].startswith("deep/b.py")
    assert (
        listed((place / "notes",), pattern="*.c") == 'notes/ has no files with a name like "*.c".'
    )


@pytest.mark.parametrize("pattern", ["**/*.py", "deep/*.py", "**/deep/**/*.py", "d*/B.py"])
def test_a_pattern_may_name_folders(place: Path, pattern: str) -> None:
    (place / "notes" / "b.py").touch()
    text = listed((place / "notes",), pattern=pattern)
    assert "deep/b.py" in text
    assert ("\nb.py" in text) is (pattern == "**/*.py")


def test_a_folder_that_cannot_be_read_is_passed_over(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned = read_file._scanned

    def refused(found: picked.Place, inner: tuple[str, ...], *more: int) -> object:
        if "deep" in (*found.parts, *inner):
            raise PermissionError(13, "Permission denied")
        return scanned(found, inner, *more)

    monkeypatch.setattr(read_file, "_scanned", refused)
    assert listed((place / "notes",), pattern="*.txt").splitlines()[1].startswith("a.txt")
    with pytest.raises(ToolError, match="cannot be used: Permission denied"):
        listed((place / "notes",), path="deep")


def test_a_search_that_is_not_complete_says_so(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_file, "_MOST_VISITED", 2)
    with pytest.raises(ToolError, match='"notes" has more than 2 entries: list a folder in it'):
        listed((place / "notes",), pattern="*.c")


def test_a_date_that_no_calendar_has_is_no_fault() -> None:
    assert read_file._line(read_file._Entry("a", 0o100644, 5, 1e18)).startswith("a  5 bytes  9987-")


@posix
def test_a_listing_follows_no_link(place: Path) -> None:
    (place / "notes" / "out").symlink_to(place / "secrets")
    text = listed((place / "notes",), pattern="*")
    assert "out (link)" in text
    assert "key.txt" not in text


def test_a_long_listing_is_cut_and_asks_for_a_pattern(place: Path) -> None:
    for n in range(320):
        (place / "secrets" / f"f{n}").touch()
    text = listed((place / "secrets",))
    assert text.startswith("secrets/ (321 entries):")
    assert text.endswith("[21 more are not shown: send a pattern.]")


def test_stop_ends_a_search_at_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began, go_on = threading.Event(), threading.Event()
    visited: list[object] = []

    def scanned(*given: object) -> list[object]:
        visited.append(given)
        began.set()
        go_on.wait(10)
        return [read_file._Entry(f"d{len(visited)}", 0o040755, 0, 0.0)]

    monkeypatch.setattr(read_file, "_scanned", scanned)

    async def stop() -> None:
        call = ListFolder().call({"pattern": "*"}, CallContext(1, readable=(place / "notes",)))
        running = asyncio.ensure_future(call)
        await asyncio.to_thread(began.wait, 10)
        running.cancel()
        await asyncio.wait([running], timeout=0.05)
        assert not running.done()  # the thread still goes on
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(stop())
    assert len(visited) == 1
