"""Texts in many encodings are read as they were written, or with a warning."""

from __future__ import annotations

import codecs
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from app.documents import decoding
from app.documents.decoding import clean, declared, decode, known, load
from app.documents.source import Source

ROOT = Path(__file__).parents[3]

TEXTS = {
    "german": "Die Grüße kommen aus Köln, wo über schöne Straßen und Brücken viele Züge fahren.",
    "french": "L’été dernier, nous avons déjeuné à côté de l’hôtel où le garçon était très poli.",
    "spanish": "El niño pequeño corrió mañana por la montaña; ¿cuándo volverá a su habitación?",
    "portuguese": "A situação não é fácil, mas as ações de amanhã são necessárias à população.",
    "swedish": "Hon går över ån på våren när fåglarna sjunger och björkarna får sina blad.",
    "danish": "Børnene løber ud på gaden, og æblerne på træet er røde og søde om efteråret.",
    "polish": "Wczoraj wieczorem poszliśmy nad rzekę, gdzie łódka płynęła wzdłuż brzegów.",
    "czech": "Příliš žluťoučký kůň úpěl ďábelské ódy, když se večer vracel k řece domů.",
    "hungarian": "Az őszi erdőben sűrű köd ült, és a tűz mellett énekeltünk hosszú történeteket.",
    "turkish": "Çocuklar bahçede oynarken güneş ışığı ağaçların arasından yavaşça süzülüyordu.",
    "russian": "Вчера вечером мы гуляли по берегу реки и смотрели, как садится солнце за лесом.",
    "ukrainian": "Учора ввечері ми гуляли біля річки і дивилися, як їхні човни пливуть до лісу.",
    "bulgarian": "Вчера вечерта се разхождахме край реката и гледахме как слънцето залязва там.",
    "greek": "Χθες το βράδυ περπατήσαμε δίπλα στο ποτάμι και είδαμε τον ήλιο να δύει αργά.",
    "hebrew": "אתמול בערב הלכנו לאורך הנהר וראינו את השמש שוקעת מאחורי העצים הגבוהים.",
    "arabic": "مساء أمس مشينا على ضفة النهر وشاهدنا الشمس وهي تغرب ببطء خلف الأشجار العالية.",
    "lithuanian": "Vakar vakare vaikščiojome palei upę ir žiūrėjome, kaip saulė leidžiasi už miško.",
    "thai": "เมื่อวานตอนเย็นเราเดินเล่นริมแม่น้ำและดูพระอาทิตย์ตกหลังต้นไม้สูง",
    "japanese": "昨日の夕方、私たちは川のほとりを歩いて、太陽が森の向こうに沈むのを見ました。",
    "chinese": "昨天傍晚我们沿着河边散步，看着太阳慢慢地落到树林后面，心里非常高兴。",
    "taiwanese": "昨天傍晚我們沿著河邊散步，看著太陽慢慢地落到樹林後面，心裡非常高興。",
    "korean": "어제 저녁 우리는 강가를 걸으며 해가 숲 뒤로 천천히 지는 것을 보았습니다.",
    "english": "“It’s late,” she said – and the café’s bill was £5… or €6; a 20 °C evening.",
}
ENCODINGS = {
    "german": ["cp1252", "mac-roman", "cp850", "iso8859-15"],
    "french": ["cp1252", "mac-roman"],
    "spanish": ["cp1252", "mac-roman", "cp850"],
    "portuguese": ["cp1252"],
    "swedish": ["cp1252", "mac-roman"],
    "danish": ["cp1252", "cp865"],
    "polish": ["cp1250", "iso8859-2"],
    "czech": ["cp1250", "iso8859-2"],
    "hungarian": ["cp1250", "iso8859-2"],
    "turkish": ["cp1254", "iso8859-9"],
    "russian": ["cp1251", "koi8-r", "iso8859-5", "cp866", "mac-cyrillic"],
    "ukrainian": ["cp1251", "koi8-u"],
    "bulgarian": ["cp1251", "iso8859-5"],
    "greek": ["cp1253", "iso8859-7"],
    "hebrew": ["cp1255", "iso8859-8"],
    "arabic": ["cp1256", "iso8859-6"],
    "lithuanian": ["cp1257"],
    "thai": ["cp874"],
    "japanese": ["cp932", "euc_jp", "iso2022_jp"],
    "chinese": ["gb18030", "gb2312"],
    "taiwanese": ["big5", "cp950"],
    "korean": ["cp949", "euc_kr"],
    "english": ["cp1252", "mac-roman"],
}
UNICODE = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"]


@pytest.mark.parametrize(
    ("language", "encoding"), [(key, each) for key, names in ENCODINGS.items() for each in names]
)
def test_legacy_encodings_are_found_by_their_letters(language: str, encoding: str) -> None:
    text = f"{TEXTS[language]}\n{TEXTS[language]}\n"
    data = text.encode(encoding)
    assert decode(data).text == data.decode(encoding)


@pytest.mark.parametrize("encoding", UNICODE)
@pytest.mark.parametrize("language", ["english", "russian", "greek", "japanese", "chinese"])
def test_unicode_is_found_with_and_without_its_mark(language: str, encoding: str) -> None:
    text = f"{TEXTS[language]}\r\n{TEXTS[language]}\r\n"
    decoded = decode(text.encode(encoding))
    assert decoded.text == text.replace("\r\n", "\n")
    assert decoded.sure


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_a_few_plain_letters_are_found_by_the_zeros_between_them(encoding: str) -> None:
    assert decode("A short note".encode(encoding)).text == "A short note"


def test_letters_after_megabytes_of_ascii_are_read() -> None:
    text = "x" * 4096 + "\n" + "line of a log\n" * 100_000 + "Grüße aus dem Süden\n"
    assert decode(text.encode()).text == text
    assert decode(text.encode("cp1252")).text == text


def test_a_text_of_two_encodings_is_read_line_by_line_and_unsure() -> None:
    lines = ["größer – schöner", "naïve café"] * 3
    data = b"".join(
        (line + "\n").encode("cp1252" if at % 3 == 2 else "utf-8") for at, line in enumerate(lines)
    )
    decoded = decode(data)
    assert decoded.text.splitlines() == lines
    assert not decoded.sure


def test_utf_8_cut_within_a_character_stays_utf_8() -> None:
    decoded = decode("Schöne Grüße aus Österreich — ü".encode()[:-1])
    assert decoded.text.startswith("Schöne Grüße aus Österreich — ")
    assert not decoded.sure


def test_a_declared_encoding_counts_where_it_fits() -> None:
    data = "çéà".encode("cp1254")
    assert decode(data, "iso-8859-9").text == "çéà"
    assert decode("Привет".encode("koi8-r"), "windows-1251").text != ""
    assert decode("Grüße".encode(), "iso-8859-1").text == "Grüße"  # it is plainly UTF-8
    assert decode("größer“".encode("cp1252"), "iso-8859-1").text == "größer“"
    assert decode("日本語".encode("cp932"), "no such encoding").text == "日本語"


@pytest.mark.parametrize("encoding", ["utf-16", "UTF-32", "utf-16-le"])
def test_a_declared_wide_encoding_that_the_bytes_do_not_have_is_ignored(encoding: str) -> None:
    assert (
        decode("Wörter, die man liest".encode("cp1252"), encoding).text == "Wörter, die man liest"
    )


def test_few_marks_are_unsure() -> None:
    assert not decode("naïve".encode("cp1252")).sure
    assert not decode(b"\xd7\xa2\x81 ab").sure
    assert decode("“Yes” – it’s".encode("cp1252")).sure


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b'<?xml version="1.0" encoding="koi8-r"?>', "koi8-r"),
        (b'<html><head><meta charset="windows-1251">', "windows-1251"),
        (
            b'<meta http-equiv="Content-Type" content="text/html; charset=shift_jis">',
            "shift_jis",
        ),
        (b"#!/usr/bin/python\n# -*- coding: latin-1 -*-\n", "latin-1"),
        (b"# vim: set fileencoding=cp1251 :\n", "cp1251"),
        (b"print('coding: no')\n", ""),
    ],
)
def test_declared_encodings_are_found(head: bytes, name: str) -> None:
    assert declared(head) == name


def test_names_that_are_no_encoding_of_text_are_unknown() -> None:
    assert [known(each) for each in ("rot13", "hex", "idna", "", "x" * 99, "utf\0")] == [""] * 6
    assert known("ISO-8859-1") == "cp1252"
    assert known("GB2312") == "gb18030"


def test_control_characters_and_terminal_escapes_are_left_out() -> None:
    assert clean("a\x00b\x1b[31;1mred\x1b[0m\x1b]0;title\x07\ufeff\x7fz\tx\fy") == "abredz\tx\fy"
    assert clean("bad \ud800 half") == "bad \ufffd half"
    assert (
        unicodedata.normalize("NFC", clean("👩\u200d👩 نمی\u200cخواهم"))
        == "👩\u200d👩 نمی\u200cخواهم"
    )


def test_marks_of_order_name_the_encoding() -> None:
    for mark, name in ((codecs.BOM_UTF16_BE, "utf-16-be"), (codecs.BOM_UTF32_LE, "utf-32-le")):
        assert decode(mark + "ab".encode(name)).text == "ab"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a" * 3_000_000, 2_000_000),
        ("\u00e9" * 3_000_000, 2_000_000),  # one byte of memory each
        ("\u6f22" * 3_000_000, 1_500_000),  # two
        ("\U0001f600" + "a" * 3_000_000, 750_000),  # four, as all characters of the text
        ("a" * (1 << 20) + "\U0001f600" * 10, 1 << 20),  # the wide ones would not fit any more
    ],
)
def test_a_text_is_cut_before_it_takes_more_memory_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, kept: int
) -> None:
    monkeypatch.setattr(decoding, "MOST_TEXT_BYTES", 3_000_000)
    path = tmp_path / "long.txt"
    path.write_text(text, encoding="utf-8")
    made = load(Source(path), most=2_000_000)
    assert (made.text, made.cut) == (text[:kept], True)


def test_a_text_that_just_fits_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "MOST_TEXT_BYTES", 3_000_000)
    path = tmp_path / "long.txt"
    path.write_text(text := "\u6f22" * 1_500_000, encoding="utf-8")
    assert (load(Source(path)).text, load(Source(path)).cut) == (text, False)


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a child is read from /proc")
@pytest.mark.parametrize("name", ["long.txt", "long.csv", "long.html"])
@pytest.mark.sweep
def test_extraction_of_the_longest_text_takes_at_most_300_mb(tmp_path: Path, name: str) -> None:
    line = {".csv": "a,b,", ".html": "<p>"}.get(Path(name).suffix, "")
    path = tmp_path / name
    with path.open("w", encoding="utf-8") as file:
        for _ in range(500_000):
            file.write(line + "\u6f22\u5b57\u306e\u6587\u7ae0\u3067\u3059\u3002" * 10 + "\n")
    code = (
        "import sys; from pathlib import Path; from app.documents.extraction import extraction\n"
        "request = {'path': sys.argv[1], 'name': sys.argv[2], 'most_characters': 40_000_000}\n"
        "size = sum(map(len, extraction(request, lambda _: None)))\n"
        "peak = next(l for l in open('/proc/self/status') if l.startswith('VmHWM'))\n"
        "print(size, int(peak.split()[1]) // 1000)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path, name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    size, megabytes = map(int, done.stdout.split())
    assert size > 90_000_000
    assert megabytes <= 300
