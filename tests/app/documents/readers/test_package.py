"""Zip packages and XML: limits, names, entities, namespaces."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

import pytest

from app.documents.readers import package
from app.documents.readers.package import Package, resolved, xml_elements, xml_tree
from app.documents.source import ExtractionError, ExtractionFault, Source

F = ExtractionFault


def zipped(path: Path, **entries: bytes) -> Source:
    with zipfile.ZipFile(path / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in entries.items():
            file.writestr(name, content)
    return Source(path / "a.zip")


def fault_of(source: Source, name: str) -> tuple[ExtractionFault, str]:
    with pytest.raises(ExtractionError) as raised, Package(source) as opened:
        opened.read(name)
    return raised.value.fault, raised.value.detail


def test_entries_are_found_by_name_in_any_case_and_with_any_slash(tmp_path: Path) -> None:
    source = zipped(tmp_path, **{"Word\\Document.xml": b"<a/>", "../../x": b"far", "/y": b"near"})
    with Package(source) as opened:
        assert opened.read("word/document.XML") == b"<a/>"
        assert opened.read("../../x") == b"far"
        assert opened.read("y") == b"near"
        assert "z" not in opened
        assert opened.tree("z") is None
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


@pytest.mark.parametrize(
    ("base", "target", "found"),
    [
        ("word/document.xml", "media/a%20b.png", "word/media/a b.png"),
        ("ppt/slides/slide1.xml", "../media/a.png#x", "ppt/media/a.png"),
        ("a/b.xml", "/c/d.xml", "c/d.xml"),
        ("a/b.xml", "../../../../etc/passwd", "etc/passwd"),
        ("", "word\\document.xml", "word/document.xml"),
    ],
)
def test_targets_stay_inside(base: str, target: str, found: str) -> None:
    assert resolved(base, target) == found


def test_an_entry_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package, "RATIO_FROM_BYTES", 1_000_000)
    source = zipped(tmp_path, bomb=bytes(3_000_000), small=bytes(900_000))
    assert fault_of(source, "bomb")[0] is F.TOO_LARGE
    with Package(source) as opened:
        assert len(opened.read("small")) == 900_000
    monkeypatch.setattr(package, "MOST_UNPACKED_BYTES", 1_000_000)
    with Package(source) as opened:
        opened.read("small")
        with pytest.raises(ExtractionError, match="more than 100000 bytes"):
            opened.read("small")
    monkeypatch.setattr(package, "MOST_ENTRIES", 1)
    assert fault_of(source, "small") == (F.TOO_LARGE, "2 entries in the archive")


def test_an_entry_that_says_how_large_it_is_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = zipped(tmp_path, bomb=b"<a>" + bytes(3_000_000))
    monkeypatch.setattr(package, "MOST_ENTRY_BYTES", 2_000_000)
    with Package(source) as opened, pytest.raises(ExtractionError) as raised:
        next(iter(opened.chunks("bomb")))
    assert raised.value.fault is F.TOO_LARGE


def test_a_name_that_is_no_text_is_damage(tmp_path: Path) -> None:
    source = zipped(tmp_path, aä=b"1" * 50)
    data = source.path.read_bytes().replace("ä".encode(), b"\xc3\x28", 1)  # not in the list
    source.path.write_bytes(data)
    assert fault_of(source, "aä")[0] is F.DAMAGED


def test_overlapping_entries_are_refused(tmp_path: Path) -> None:
    source = zipped(tmp_path, a=b"1" * 50, b=b"2" * 50)
    data = bytearray(source.path.read_bytes())
    second = data.rindex(b"PK\x01\x02")
    data[second + 42 : second + 46] = struct.pack("<I", 0)
    source.path.write_bytes(data)
    fault, detail = fault_of(source, "a")
    assert fault is F.DAMAGED
    assert "overlap" in detail


def test_an_encrypted_entry_is_protected(tmp_path: Path) -> None:
    source = zipped(tmp_path, a=b"1" * 50)
    data = bytearray(source.path.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    source.path.write_bytes(data)
    assert fault_of(source, "a") == (F.PROTECTED, "a is encrypted")


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", F.DAMAGED),
        (b"PK\x03\x04 and no more", F.DAMAGED),
        (b"PK\x03\x04" + bytes(10), F.DAMAGED),
    ],
)
def test_what_is_no_package_says_so(tmp_path: Path, content: bytes, fault: F) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(ExtractionError) as raised:
        Package(Source(tmp_path / "a"))
    assert raised.value.fault is fault


def test_a_wrong_checksum_and_a_cut_entry_are_damaged(tmp_path: Path) -> None:
    source = zipped(tmp_path, a=b"text" * 500)
    data = bytearray(source.path.read_bytes())
    data[33] ^= 0xFF
    source.path.write_bytes(data)
    assert fault_of(source, "a")[0] is F.DAMAGED


def test_entries_are_found_without_their_list(tmp_path: Path) -> None:
    text = b"".join(b"<p>%d %d</p>" % (i, i * i * 7919 % 10007) for i in range(20_000))
    source = zipped(tmp_path, first=b"<a>whole</a>", last=b"<a>" + text + b"</a>")
    data = source.path.read_bytes()
    source.path.write_bytes(data[: len(data) // 2])
    with Package(source) as opened:
        assert opened.read("first") == b"<a>whole</a>"
        assert 100 < sum(1 for _ in opened.elements("last", "p")) < 20_000
        assert [each.warning for each in opened.warnings] == ["damaged"]
    assert fault_of(source, "last")[0] is F.DAMAGED


def test_stored_entries_are_found_without_their_list(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("a", b"<a/>")
    data = (tmp_path / "a.zip").read_bytes()
    (tmp_path / "a.zip").write_bytes(data[: data.index(b"PK\x01\x02")])
    with Package(Source(tmp_path / "a.zip")) as opened:
        assert opened.read("a") == b"<a/>"


def test_names_have_one_prefix_in_the_transitional_and_the_strict_format() -> None:
    for uri in (
        b"http://schemas.openxmlformats.org/wordprocessingml/2006/main",
        b"http://purl.oclc.org/ooxml/wordprocessingml/main",
    ):
        root = xml_tree([b'<x:p xmlns:x="' + uri + b'" x:val="1" plain="2"><x:t>a</x:t></x:p>'])
        assert (root.tag, root.attrib) == ("w:p", {"w:val": "1", "plain": "2"})
        assert root.findtext("w:t") == "a"
    assert xml_tree([b'<a xmlns="urn:else"><b/></a>']).find("b") is not None


@pytest.mark.parametrize(
    "text",
    [
        b'<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>',
        b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
        b'<!DOCTYPE a [<!ENTITY % x SYSTEM "http://127.0.0.1/">%x;]><a/>',
        '<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>'.encode("utf-16"),
        b"<a>" * 2000,
        b"<a>" * 2000 + b"</a>" * 2000,
        b"<a><b></a>",
        b"",
        b'<?xml version="1.0" encoding="none-such"?><a/>',
        b"<a b='" + b"x" * (package.LONGEST_TOKEN + 10),
    ],
)
def test_hostile_xml_is_damaged(text: bytes) -> None:
    with pytest.raises(ExtractionError) as raised:
        xml_tree([text], "a.xml")
    assert raised.value.fault is F.DAMAGED
    assert "a.xml" in raised.value.detail


def test_a_doctype_is_ignored_and_named_characters_are_read() -> None:
    text = b'<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" "http://x/"><a>1&nbsp;2&auml;</a>'
    assert xml_tree([text]).text == "1\xa02ä"
    assert xml_tree([b"<a>1&nbsp;2&none;&amp;</a>"]).text == "1\xa02&"


def test_outermost_elements_are_read_one_by_one_from_any_pieces() -> None:
    text = b"<a>" + b"<b><p>1<b>2</b></p></b><c><b>3</b></c>" * 50 + b"</a>"
    for size in (1, 7, 10_000):
        pieces = [text[i : i + size] for i in range(0, len(text), size)]
        found = ["".join(each.itertext()) for each in xml_elements(pieces, "b")]
        assert found == ["12", "3"] * 50


def test_an_element_around_others_comes_when_it_begins() -> None:
    text = b"<a><t n='1'><b>1</b><b>2</b></t><t n='2'><b>3</b></t></a>"
    found = [
        (each.tag, each.get("n") or each.text) for each in xml_elements([text], "b", opened="t")
    ]
    assert found == [("t", "1"), ("b", "1"), ("b", "2"), ("t", "2"), ("b", "3")]


def test_an_entry_is_not_held_in_memory_as_a_whole(tmp_path: Path) -> None:
    source = zipped(tmp_path, a=b"<a>" + b"<b>x</b>" * 300_000 + b"</a>")
    with Package(source) as opened:
        pieces = iter(opened.chunks("a"))
        assert len(next(pieces)) <= package.CHUNK
        assert sum(1 for _ in opened.elements("a", "b")) == 300_000


def test_the_file_is_closed_also_after_an_error(tmp_path: Path) -> None:
    source = zipped(tmp_path, a=b"1")
    with Package(source) as opened:
        inner = opened._file
    assert inner.closed
    assert isinstance(inner, io.IOBase)
