"""Subtitles of several formats as paragraphs with times."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.domain.documents import DocumentKind
from text_files import Read, reader, warned

SAID = "[00:00:01] The tide is rising. Come up!\n\n[00:01:10] Too late."

FILES = {
    "srt": (
        "1\n00:00:01,000 --> 00:00:02,500\nThe tide\n<i>is rising.</i>\n\n"
        "2\n00:00:03,000 --> 00:00:04,000\n{\\an8}Come up!\n\n"
        "3\n00:01:10,000 --> 00:01:12,000\nToo late.\n",
        SAID,
    ),
    "srt without blank lines": (
        "1\n00:00:01,000 --> 00:00:02,500\nThe tide is rising.\n2\n00:00:03,000 --> 00:00:04,000\n"
        "Come up!\n3\n00:01:10,000 --> 00:01:12,000\nToo late.",
        SAID,
    ),
    "vtt": (
        "WEBVTT - Title\n\nNOTE a note\nof two lines\n\nSTYLE\n::cue { color: red }\n\n"
        "intro\n00:01.000 --> 00:02.500 align:start\nThe tide is <c.red>rising</c>.\n\n"
        "00:03.000 --> 00:04.000\nCome&nbsp;up!\n\n01:10.000 --> 01:12.000\nToo late.\n",
        SAID,
    ),
    "vtt with speakers": (
        "WEBVTT\n\n00:01.000 --> 00:02.000\n<v Ann>Is it high?</v>\n\n"
        "00:02.000 --> 00:03.000\n<v.loud Bob>It is.\n",
        "[00:00:01] Ann: Is it high?\n\n[00:00:02] Bob: It is.",
    ),
    "vtt that rolls": (
        "WEBVTT\n\n00:01.000 --> 00:02.000\nthe tide\n\n00:02.000 --> 00:03.000\nthe tide\nis high\n\n"
        "00:03.000 --> 00:04.000\nis high\ntoday\n",
        "[00:00:01] the tide is high today",
    ),
    "ass": (
        "[Script Info]\nTitle: x\n\n[V4+ Styles]\nFormat: Name, Fontname\n\n[Events]\n"
        "Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text\n"
        "Dialogue: 0,0:01:10.00,0:01:12.00,Default,,0,0,0,,Too late.\n"
        "Dialogue: 0,0:00:01.00,0:00:02.50,Default,,0,0,0,,{\\i1}The tide\\Nis rising.\n"
        "Comment: 0,0:00:02.00,0:00:02.50,Default,,0,0,0,,no\n"
        "Dialogue: 0,0:00:01.00,0:00:05.00,Default,,0,0,0,,{\\p1}m 0 0 l 10 10{\\p0}\n"
        "Dialogue: 0,0:00:03.00,0:00:04.00,Default,,0,0,0,,Come\\hup!\n",
        SAID,
    ),
    "microdvd": (
        "{1}{1}25.000\n{25}{60}The tide|is rising.\n{75}{100}{Y:i}Come up!\n{1750}{1800}Too late.\n",
        SAID,
    ),
    "mpl2": ("[10][25]/The tide|is rising.\n[30][40]Come up!\n[700][720]Too late.\n", SAID),
    "subviewer": (
        "[INFORMATION]\n[TITLE]x\n[END INFORMATION]\n\n00:00:01.00,00:00:02.50\nThe tide[br]is rising.\n\n"
        "00:00:03.00,00:00:04.00\nCome up!\n\n00:01:10.00,00:01:12.00\nToo late.\n",
        SAID,
    ),
    "two people": (
        "1\n00:00:01,000 --> 00:00:02,000\n- High?\n- Very.\n",
        "[00:00:01] - High?\n- Very.",
    ),
    "no cues": ("only words\n", "only words\n"),
}  # fmt: skip


@pytest.fixture
def subtitles(tmp_path: Path) -> Read:
    return reader(tmp_path, "subtitles")


@pytest.mark.parametrize("name", FILES)
def test_subtitles_are_paragraphs(subtitles: Read, name: str) -> None:
    content, expected = FILES[name]
    document = subtitles(content, "film.srt")
    assert document.kind is DocumentKind.SUBTITLES
    assert document.text == expected


def test_long_speech_is_divided_at_sentences(subtitles: Read) -> None:
    cues = "".join(
        f"{at}\n00:00:{at:02},000 --> 00:00:{at + 1:02},000\nSentence {at} of some forty characters is here.\n\n"
        for at in range(50)
    )
    paragraphs = subtitles(cues).text.split("\n\n")
    assert len(paragraphs) > 2
    assert all(len(each) < 700 for each in paragraphs)


def test_encodings_and_nothing(subtitles: Read) -> None:
    srt = "1\n00:00:01,000 --> 00:00:02,000\nПрилив начинается, поднимайтесь скорее!\n"
    assert (
        subtitles(srt.encode("cp1251")).text == "[00:00:01] Прилив начинается, поднимайтесь скорее!"
    )
    assert warned(subtitles("")) == ["empty"]
