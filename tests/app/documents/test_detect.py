"""Formats found by content: what each file is read by, and why others are not read."""

from __future__ import annotations

import io
import json
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest

from app.documents.detect import detect
from app.documents.source import ExtractionError, ExtractionFault, Look, Source

MAIL = b"From: a@example.org\r\nTo: b@example.org\r\nSubject: Hi\r\nDate: today\r\n\r\nText\r\n"
HTML = b"<!-- saved from a page -->\n<!DOCTYPE html>\n<html><body>Text</body></html>"
SRT = b"1\r\n00:00:01,000 --> 00:00:02,500\r\nHello\r\n"
NOTEBOOK = json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


def package(*files: tuple[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as target:
        for name, content in files:
            target.writestr(name, content)
    return made.getvalue()


def office(content_type: str) -> bytes:
    override = f'<Override PartName="/x" ContentType="application/vnd.{content_type}"/>'
    return package(("[Content_Types].xml", override.encode()), ("x", b""))


def odf(mime_type: str) -> bytes:
    return package(("mimetype", mime_type.encode()), ("content.xml", b"<x/>"))


def flat_odf(kind: str) -> bytes:
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<!-- x -->\n<office:document xmlns:office="x" '
        f'office:version="1.3" office:mimetype="application/vnd.oasis.opendocument.{kind}"/>'
    ).encode()


def ole(*streams: str) -> bytes:
    """An OLE file of a header, a table of sectors and a directory in one sector each."""
    header = bytearray(512)
    header[:8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
    header[30:32] = struct.pack("<H", 9)
    header[48:52] = struct.pack("<I", 1)  # the directory
    header[76:512] = struct.pack("<109I", 0, *[0xFFFFFFFF] * 108)
    table = struct.pack("<128I", 0xFFFFFFFD, 0xFFFFFFFE, *[0xFFFFFFFF] * 126)
    directory = b""
    for name in ("Root Entry", *streams):
        entry = name.encode("utf-16-le").ljust(64, b"\0") + struct.pack("<H", 2 * len(name) + 2)
        directory += entry.ljust(128, b"\0")
    return bytes(header) + table + directory.ljust(512, b"\0")


def tar() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as target:
        target.addfile(tarfile.TarInfo("a"))
    return made.getvalue()


READ = {  # by a case: the reader, the content and the name
    "pdf": ("pdf", b"%PDF-1.7\n%\xe2\xe3", "x"),
    "pdf after a printer's commands": ("pdf", b"\x1b%-12345X@PJL\n\n%PDF-1.4\n\0\0", "x"),
    "pdf with another ending": ("pdf", b"%PDF-1.4\n", "letter.docx"),
    "text that speaks of pdf": ("text", b"A file begins with %PDF-1.4\n", "x.txt"),
    "docx": ("docx", office("openxmlformats-officedocument.wordprocessingml.document.main+xml"), "x"),
    "docm": ("docx", office("ms-word.document.macroEnabled.main+xml"), "x.docm"),
    "dotx": ("docx", office("openxmlformats-officedocument.wordprocessingml.template.main+xml"), "x"),
    "xlsx": ("xlsx", office("openxmlformats-officedocument.spreadsheetml.sheet.main+xml"), "x.zip"),
    "xlsm": ("xlsx", office("ms-excel.sheet.macroEnabled.main+xml"), "x"),
    "pptx": ("pptx", office("openxmlformats-officedocument.presentationml.presentation.main+xml"), "x"),
    "ppsx": ("pptx", office("openxmlformats-officedocument.presentationml.slideshow.main+xml"), "x"),
    "odt": ("odt", odf("application/vnd.oasis.opendocument.text"), "x"),
    "ott": ("odt", odf("application/vnd.oasis.opendocument.text-template"), "x"),
    "ods": ("ods", odf("application/vnd.oasis.opendocument.spreadsheet"), "x.xlsx"),
    "odp": ("odp", odf("application/vnd.oasis.opendocument.presentation"), "x"),
    "fodt": ("odt", flat_odf("text"), "x.fodt"),
    "fods": ("ods", flat_odf("spreadsheet"), "x.xml"),
    "fodp": ("odp", flat_odf("presentation"), "x"),
    "epub": ("epub", odf("application/epub+zip"), "x"),
    "zip": ("archive", package(("a.txt", b"a")), "x.docx"),
    "zip of nothing": ("archive", package(), "x"),
    "zip cut": ("docx", package(("word/document.xml", b"a" * 5000))[:3000], "x"),
    "tar": ("archive", tar(), "x"),
    "gz": ("archive", b"\x1f\x8b\x08\0\0\0\0\0", "x.txt"),
    "7z": ("archive", b"7z\xbc\xaf\x27\x1c\0\4", "x"),
    "rar": ("archive", b"Rar!\x1a\x07\x01\0", "x"),
    "rtf": ("rtf", b"{\\rtf1\\ansi hello}", "x.doc"),
    "html": ("html", HTML, "page.html"),
    "html without an ending": ("html", HTML, "page"),
    "html called doc": ("html", b"\xef\xbb\xbf <html xmlns:o='x'><head>", "x.doc"),
    "html in utf-16": ("html", "<html>täxt".encode("utf-16"), "x"),
    "code that begins as html": ("text", HTML, "page.vue"),
    "mhtml": ("html",
        b"From: <Saved>\r\nSubject: Page\r\nMIME-Version: 1.0\r\n"
        b'Content-Type: multipart/related; boundary="x"\r\n\r\n--x',
        "page.mhtml",
    ),
    "mail": ("email", MAIL, "message.eml"),
    "mail without an ending": ("email", MAIL, "x"),
    "mbox": ("email", b"From a@example.org Thu Jan  1 00:00:00 1970\n" + MAIL, "inbox"),
    "yaml is no mail": ("text", b"from: a\nto: b\nsubject: c\ndate: d\n", "x.yaml"),
    "srt": ("subtitles", SRT, "x.srt"),
    "srt without an ending": ("subtitles", b"\xef\xbb\xbf" + SRT, "x"),
    "vtt": ("subtitles", b"WEBVTT\n\n00:01.000 --> 00:02.000\nHi", "x"),
    "ass": ("subtitles", b"[Script Info]\nTitle: x", "x"),
    "notebook": ("notebook", NOTEBOOK, "x.ipynb"),
    "notebook called json": ("notebook", NOTEBOOK, "x.json"),
    "json called notebook": ("json", b'{"a": 1}', "x.ipynb"),
    "json": ("json", b'{"a": [1, 2]}', "x.json"),
    "markdown": ("markdown", b"# Title\n", "README.md"),
    "csv": ("table", b"a,b\n1,2\n", "x.CSV"),
    "text": ("text", b"Just words.\n", "x.txt"),
    "text in latin-1": ("text", b"Stra\xdfe und \xc4rger\n", "x"),
    "text in utf-16 without a mark": ("text", "Some words of text".encode("utf-16-be"), "x"),
    "text in utf-32": ("text", "Some words".encode("utf-32"), "x"),
    "text with a lost zero": ("text", b"A long line of a log.\n" * 20 + b"\0", "x.log"),
    "text about models": ("text", b"GGUF is a format of files.\nID3 is another one.\n", "x.txt"),
    "text about sound": ("text", b"ID3 tags are old.", "notes"),
    "code": ("text", b"int main(void) { return 0; }\n", "x.c"),
    "nothing": ("text", b"", "x.txt"),
    "nothing of a table": ("table", b"", "x.csv"),
}  # fmt: skip
NOT_READ = {
    "old word": (ole("WordDocument"), ExtractionFault.UNKNOWN, Look.OLD_WORD),
    "old sheets": (ole("Workbook"), ExtractionFault.UNKNOWN, Look.OLD_SHEETS),
    "old slides": (ole("PowerPoint Document"), ExtractionFault.UNKNOWN, Look.OLD_SLIDES),
    "outlook": (ole("__properties_version1.0"), ExtractionFault.UNKNOWN, Look.OUTLOOK),
    "encrypted": (ole("EncryptionInfo", "EncryptedPackage"), ExtractionFault.PROTECTED, None),
    "ole cut": (ole("WordDocument")[:600], ExtractionFault.UNKNOWN, Look.BINARY),
    "binary sheets": (
        office("ms-excel.sheet.binary.macroEnabled.main"),
        ExtractionFault.UNKNOWN,
        Look.OLD_SHEETS,
    ),
    "pages": (package(("Index/Document.iwa", b"")), ExtractionFault.UNKNOWN, Look.PAGES),
    "drawing": (
        odf("application/vnd.oasis.opendocument.graphics"),
        ExtractionFault.UNKNOWN,
        Look.DRAWING,
    ),
    "png": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", ExtractionFault.UNKNOWN, Look.PICTURE),
    "jpeg": (b"\xff\xd8\xff\xe0\0\x10JFIF", ExtractionFault.UNKNOWN, Look.PICTURE),
    "webp": (b"RIFF\x10\0\0\0WEBPVP8 \0\0", ExtractionFault.UNKNOWN, Look.PICTURE),
    "bmp": (b"BM\x36\0\x0c\0\0\0\0\0\x36\0\0\0", ExtractionFault.UNKNOWN, Look.PICTURE),
    "wav": (b"RIFF\x10\0\0\0WAVEfmt \0\0", ExtractionFault.UNKNOWN, Look.AUDIO),
    "mp3": (b"ID3\x03\0\0\0\0\0\0", ExtractionFault.UNKNOWN, Look.AUDIO),
    "mp4": (b"\0\0\0\x18ftypisom\0\0", ExtractionFault.UNKNOWN, Look.VIDEO),
    "m4a": (b"\0\0\0\x18ftypM4A \0\0", ExtractionFault.UNKNOWN, Look.AUDIO),
    "gguf": (b"GGUF\x03\0\0\0\0\0", ExtractionFault.UNKNOWN, Look.MODEL),
    "safetensors": (b'\x08\0\0\0\0\0\0\0{"a":{}}', ExtractionFault.UNKNOWN, Look.MODEL),
    "program": (b"\x7fELF\x02\x01\x01\0", ExtractionFault.UNKNOWN, Look.PROGRAM),
    "windows program": (
        b"MZ\x90\0".ljust(60, b"\0") + b"\x40\0\0\0" + b"\0" * 64,
        ExtractionFault.UNKNOWN,
        Look.PROGRAM,
    ),
    "font": (b"OTTO\0\x0b\0\x80", ExtractionFault.UNKNOWN, Look.FONT),
    "database": (b"SQLite format 3\0\x10\0", ExtractionFault.UNKNOWN, Look.DATABASE),
    "zstd": (b"\x28\xb5\x2f\xfd\0\0\0", ExtractionFault.UNKNOWN, Look.COMPRESSED),
    "random": (bytes(range(256)) * 8, ExtractionFault.UNKNOWN, Look.BINARY),
    "zeros": (bytes(4096), ExtractionFault.UNKNOWN, Look.BINARY),
}


@pytest.mark.parametrize("case", READ)
def test_the_reader_is_found_by_the_content(tmp_path: Path, case: str) -> None:
    reader, content, name = READ[case]
    path = tmp_path / "file"
    path.write_bytes(content)
    assert detect(Source(path, name)) == reader


@pytest.mark.parametrize("case", NOT_READ)
def test_what_has_no_text_is_named(tmp_path: Path, case: str) -> None:
    content, fault, look = NOT_READ[case]
    path = tmp_path / "file.pdf"
    path.write_bytes(content)
    with pytest.raises(ExtractionError) as caught:
        detect(Source(path))
    assert caught.value.fault is fault
    assert look is None or caught.value.detail == look


def test_a_package_is_found_however_it_was_written(tmp_path: Path) -> None:
    """Its list of content types at the end, and streamed with sizes of 64 bits."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    types = office("openxmlformats-officedocument.spreadsheetml.sheet.main+xml")
    with zipfile.ZipFile(io.BytesIO(types)) as package:
        listed = package.read("[Content_Types].xml")
    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in (("xl/media/a.bin", bytes(200_000)), ("[Content_Types].xml", listed)):
            with target.open(name, "w", force_zip64=True) as entry:
                entry.write(content)
    (tmp_path / "file").write_bytes(pipe.getvalue())
    assert detect(Source(tmp_path / "file")) == "xlsx"


def test_a_disk_image_is_named(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    path.write_bytes(bytes(32769) + b"CD001" + bytes(100))
    with pytest.raises(ExtractionError) as caught:
        detect(Source(path))
    assert caught.value.detail == Look.DISK


def test_an_empty_file_of_a_format_that_is_no_text_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "empty.pdf"
    path.touch()
    with pytest.raises(ExtractionError) as caught:
        detect(Source(path))
    assert caught.value.fault is ExtractionFault.DAMAGED


def test_a_directory_of_an_old_file_that_never_ends_is_left(tmp_path: Path) -> None:
    path = tmp_path / "loop.doc"
    content = bytearray(ole("Other"))
    content[512 + 4 : 512 + 8] = struct.pack("<I", 1)  # the directory goes on where it is
    path.write_bytes(content)
    with pytest.raises(ExtractionError) as caught:
        detect(Source(path))
    assert caught.value.detail == Look.BINARY
