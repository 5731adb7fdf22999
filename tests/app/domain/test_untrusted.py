"""Untrusted text: nothing hidden stays hidden, and nothing else is changed."""

from __future__ import annotations

import sys
import unicodedata

from app.domain.untrusted import on_one_line, written_out

KEPT = {"\n", "\t", "\u200c", "\u200d"}
# Format characters that are seen: signs before Arabic, Syriac, Kaithi and Egyptian writing.
SEEN = {*map(chr, range(0x600, 0x606)), "\u06dd", "\u070f", "\u0890", "\u0891", "\u08e2"}
SEEN |= {"\U000110bd", "\U000110cd", *map(chr, range(0x13430, 0x13440))}


def test_every_control_and_format_character_is_written_out() -> None:
    hidden = {
        letter
        for letter in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    }
    kept = {letter for letter in hidden - {"\r"} if written_out(letter) == letter}
    assert kept == (KEPT | SEEN) & hidden


def test_a_text_without_them_is_as_it_was() -> None:
    text = 'مرحبا\tשלום\n日本語 — naïve 👩\u200d🚀 می\u200cخواهم {"a": 1}'
    assert written_out(text) == text


def test_line_ends_are_line_breaks_and_others_are_escapes() -> None:
    assert written_out("a\r\nb\rc\x1b[31m\u202egnp.exe\U000e0041") == (
        "a\nb\nc\\u001b[31m\\u202egnp.exe\\U000e0041"
    )


def test_a_line_has_no_breaks() -> None:
    assert on_one_line(" a\n\n b\t\u2029c ") == "a b \\u2029c"
