"""Files that tools return: kept with the message, judged by content, capped, and freed with the chat."""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image
from PySide6.QtWidgets import QWidget

from app.chat.documents.pictures import NOTICE
from app.chat.requests.prompts import turns_of
from app.chat.tools import kept_files
from app.documents.pictures import PictureLook, look_at
from app.documents.source import ExtractionFault
from app.domain.parts import KeptFile, ToolResultPart
from app.domain.tool_files import safe_file_name
from app.domain.tools import CallContext, ToolFile, ToolOutcome
from app.store.blobs import Blobs
from app.store.part_rows import from_row, to_row
from app.ui.chat import attaching
from engine import ImagePart as GivenImage
from engine import ToolResult
from picture_files import SameProcess
from plain_extractor import PlainExtractor
from stage import Stage, until
from tool_stage import ADD, FakeTools, asks_again, called, last, results, stages

pytestmark = pytest.mark.usefixtures("qapp")
Start = Callable[[], Stage]


def picture(width: int = 30, height: int = 20, format: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), (200, 30, 30)).save(file, format)
    return file.getvalue()


class Looks(PlainExtractor):
    """Decodes pictures in this process."""

    def look(self, path: Path, cancelled: Callable[[], bool] | None = None) -> PictureLook:
        return look_at(path, SameProcess(), cancelled)


class Returning(FakeTools):
    """`add` returns files beside the sum."""

    files: tuple[ToolFile, ...] = ()
    left_out = 0

    async def call(self, id: str, arguments: object, context: CallContext) -> ToolOutcome:
        return ToolOutcome("5", files=self.files, files_left_out=self.left_out)


@pytest.fixture
def source() -> Returning:
    return Returning()


@pytest.fixture
def start(tmp_path: Path, source: Returning) -> Iterator[Start]:
    yield from stages(tmp_path / "data", source, tools=(ADD,), extractor=Looks())


@pytest.fixture
def start_seeing(tmp_path: Path, source: Returning) -> Iterator[Start]:
    """The model sees pictures."""
    folder, encoder = tmp_path / "seeing", Path("/models/mmproj.gguf")
    yield from stages(folder, source, tools=(ADD,), extractor=Looks(), encoder=encoder)


def _answered(stage: Stage, source: Returning, *files: ToolFile) -> ToolResultPart:
    """The result of a call that returns these files, when the answer has ended."""
    source.files = files
    stage.controller.send("Add")
    stage.drain()
    called(stage, ("add", {"a": 2, "b": 3}))
    asks_again(stage)
    stage.engine.write("It is 5.")
    stage.engine.finish()
    stage.wait_until_idle()
    return results(last(stage))[-1]


def test_files_are_kept_with_the_message_over_a_start_and_freed_with_the_chat(
    start: Start, source: Returning
) -> None:
    stage = start()
    chart, table = picture(), b"a;b\n1;2\n"
    result = _answered(
        stage, source,
        ToolFile("chart.png", "image/png", chart), ToolFile("table.csv", "text/csv", table),
    )  # fmt: skip
    blobs = Blobs(stage.store_queue.path)
    assert [(f.name, f.size_bytes, f.width, f.height) for f in result.files] == [
        ("chart.png", len(chart), 30, 20),
        ("table.csv", len(table), 0, 0),
    ]
    assert [blobs.read(file.sha256) for file in result.files] == [chart, table]
    message = last(stage).id
    again = start()  # after a restart
    found: list[object] = []
    again.store_queue.read(lambda store: store.message(message).parts, found.append)
    until(lambda: bool(found))
    assert result in found[0]
    chat = again.state.conversations[0].id
    names: list[object] = []
    again.store_queue.read(lambda store: list(store.attached([chat])), names.append)
    until(lambda: bool(names))
    assert names == [[file.sha256 for file in result.files]]  # in the export
    for file in result.files:
        path = blobs.find(file.sha256)
        assert path is not None
        os.utime(path, (1.0, 1.0))  # old enough to be removed if nothing named it
    again.store_queue.write(lambda store: store.remove_unnamed_blobs())
    again.wait_until_idle()
    assert all(blobs.find(file.sha256) for file in result.files)
    again.store_queue.write(lambda store: store.delete([chat]))
    again.store_queue.write(lambda store: store.purge_deleted(-1.0))
    again.wait_until_idle()
    assert not any(blobs.find(file.sha256) for file in result.files)


def test_a_picture_is_one_by_its_content_and_its_name_says_so(
    start: Start, source: Returning
) -> None:
    result = _answered(
        start(), source,
        ToolFile("page.html", "text/html", picture(format="JPEG")),
        ToolFile("drawing.png", "image/png", b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
        ToolFile("photo.jpeg", "", picture(format="JPEG")),
    )  # fmt: skip
    assert [(file.name, file.image is not None) for file in result.files] == [
        ("page.html.jpg", True),
        ("drawing.png", False),
        ("photo.jpeg", True),
    ]


def test_broken_and_huge_pictures_are_files_with_a_reason(start: Start, source: Returning) -> None:
    def chunk(kind: bytes, content: bytes) -> bytes:
        size, sum = len(content), zlib.crc32(kind + content)
        return struct.pack(">I", size) + kind + content + struct.pack(">I", sum)

    header = struct.pack(">IIBBBBB", 20_000, 20_000, 8, 0, 0, 0, 0)
    huge = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0"))
    result = _answered(
        start(), source,
        ToolFile("broken.png", "image/png", picture()[:60]),
        ToolFile("huge.png", "image/png", huge + chunk(b"IEND", b"")),
    )  # fmt: skip
    assert [(file.fault, file.image) for file in result.files] == [
        (ExtractionFault.DAMAGED.value, None),
        (ExtractionFault.TOO_LARGE.value, None),
    ]


def test_files_beyond_the_caps_are_counted_and_the_model_is_told(
    start: Start, source: Returning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_files, "MOST_FILES", 2)
    monkeypatch.setattr(kept_files, "MOST_BYTES", 100)
    source.left_out = 3  # by the tool itself, which says so
    files = [ToolFile(f"{size}", "", bytes(size)) for size in (50, 60, 10, 10)]
    stage = start()
    result = _answered(stage, source, *files)
    assert [file.name for file in result.files] == ["50", "10"]
    assert result.files_left_out == 5
    assert result.text == "(2 files were not kept.)\n5"
    monkeypatch.setattr(kept_files, "MOST_FILES", 20)
    monkeypatch.setattr(kept_files, "MOST_BYTES", 1000)
    room = kept_files.AnswerRoom.behind((result,))
    assert room.left == kept_files.MOST_ANSWER_BYTES - 60
    room.left = 65
    assert room.take(files) == files[:1] + files[2:3]  # 50 and 10 bytes
    assert room.left == 5
    assert room.take(files) == []


def test_a_file_that_the_disk_does_not_take_is_left_out(
    start: Start, source: Returning, caplog: pytest.LogCaptureFixture
) -> None:
    stage = start()
    Blobs(stage.store_queue.path).folder.write_text("no folder", encoding="utf-8")
    result = _answered(stage, source, ToolFile("a.txt", "", b"a"))
    assert (result.files, result.files_left_out) == ((), 1)
    assert result.text == "(1 file was not kept.)\n5"
    assert "cannot be kept" in caplog.text


def test_a_file_is_saved_as_it_was_and_a_notice_says_if_it_is_gone(
    start: Start, source: Returning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, starts = tmp_path / "saved.bin", list[Path]()

    def choose(parent: QWidget, start: Path, chosen: Callable[[Path], object]) -> None:
        starts.append(start)
        chosen(target)

    monkeypatch.setattr(attaching, "choose_file_place", choose)
    stage = start()
    files = ToolFile("../a.bin", "", b"\0\xff"), ToolFile("b.png", "", picture())
    file, shown = _answered(stage, source, *files).files
    view = stage.window.transcript
    view.image_opened.emit(shown.image)
    [card] = stage.window.attaching.pictures.popovers
    assert card.isVisible()
    view.kept_file_requested.emit(file)
    stage.wait_until_idle()
    assert starts == [Path.home() / "a.bin"]
    assert target.read_bytes() == b"\0\xff"
    Blobs(stage.store_queue.path).remove([file.sha256])
    view.kept_file_requested.emit(file)
    stage.wait_until_idle()
    assert starts[1:] == [tmp_path / "a.bin"]  # in the folder of the last one
    notice = stage.state.notices[NOTICE]
    assert (notice.sentence, notice.remedy) == (
        "a.bin is not there any more.",
        "Let the tool make it again.",
    )
    assert target.read_bytes() == b"\0\xff"


def test_a_model_that_sees_is_given_the_pictures_behind_their_result(
    start_seeing: Start, source: Returning
) -> None:
    stage, chart = start_seeing(), picture()
    result = _answered(
        stage, source,
        ToolFile("chart.png", "", chart), ToolFile("a.txt", "", b"a"),
        ToolFile("broken.png", "", chart[:60]), *[ToolFile("more.png", "", chart)] * 4,
    )  # fmt: skip
    assert len(result.files) == 7
    first, *given = stage.engine.last_generate.turns[-1].content
    assert first == ToolResult(result.call, "add", "5")
    assert len(given) == 4  # and no more: each is many tokens
    for one, name in zip(given, ("chart.png", "more.png", "more 2.png", "more 3.png"), strict=True):
        assert isinstance(one, GivenImage)
        assert isinstance(one.source, Path)
        assert (one.description, one.source.read_bytes()) == (name, chart)
    gone = turns_of(stage.state.messages, "", lambda image: None)
    assert [turn.content for turn in gone if turn.results] == [(first,)]


def test_a_model_that_sees_nothing_reads_only_the_text(start: Start, source: Returning) -> None:
    stage = start()
    result = _answered(stage, source, ToolFile("chart.png", "", picture()))
    turn = stage.engine.last_generate.turns[-1]
    assert turn.content == (ToolResult(result.call, "add", "5"),)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Windows\\system.ini", "system.ini"),
        ("invoice\u202egnp.exe", "invoice_u202egnp.exe"),
        ("a\u200bb\nc.txt", "a_u200bb c.txt"),
        ("con.txt", "_con.txt"),
        ('a<b>:"|?*.csv', "a_b_.csv"),
        (" .hidden. ", "hidden"),
        ("\ud800.txt", "_ud800.txt"),
        ("...", "file"),
        ("", "file"),
        ("données 東京.csv", "données 東京.csv"),
    ],
)
def test_names_are_safe_on_every_system(text: str, name: str) -> None:
    assert safe_file_name(text) == name


def test_a_long_name_keeps_its_ending_and_two_names_differ() -> None:
    made = safe_file_name("名" * 300 + ".parquet")
    assert made.endswith(".parquet")
    assert len(made.encode()) <= 120
    assert safe_file_name("x." + "y" * 300).startswith("x.y")
    assert safe_file_name("A.txt", {"a.txt", "a 2.txt"}) == "A 3.txt"
    assert safe_file_name("con.txt", {"_con.txt"}) == "con 2.txt"


def test_a_stored_file_with_a_bad_name_or_no_hash_harms_nothing() -> None:
    good = KeptFile("../a.png", "a" * 64, 5, 3, 2)
    kind, data, text = to_row(ToolResultPart("f", "x", files=(good,)))
    part = from_row(kind, data, text)
    assert isinstance(part, ToolResultPart)
    assert part.files == (KeptFile("a.png", "a" * 64, 5, 3, 2),)
    for wrong in ('"sha256": "../../secret"', '"sha256": 5'):
        bad = from_row(kind, data.replace(f'"sha256": "{"a" * 64}"', wrong), text)
        assert bad == ToolResultPart("f", "x")
