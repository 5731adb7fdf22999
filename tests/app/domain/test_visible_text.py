"""Untrusted text: what is invisible or turns others is seen, and JSON stays the same value."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest

from app.domain.visible_text import escaped, escaped_sentence, on_one_line, written_out

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


@pytest.mark.parametrize(
    "hidden",
    ["\u202e", "\u2066", "\u200b", "\x1b", "\x00", "\x7f", "\ufeff", "\u3164", "\U000e0041"],
)
def test_a_hidden_character_is_seen_and_json_keeps_its_value(hidden: str) -> None:
    text = json.dumps({f"na{hidden}me": f"a{hidden}b\n\t"}, ensure_ascii=False, indent=2)
    shown = escaped(text)
    assert hidden not in shown
    assert json.loads(shown) == json.loads(text)
    assert escaped(shown) == shown


def test_text_of_any_language_stays_as_it_is() -> None:
    text = "Straße, 日本語, العربية, עברית, हिन्दी, 👍🏽\n\tnext"
    assert escaped(text) == text
    assert written_out("می\u200cخواهم 👩\u200d💻") == "می\u200cخواهم 👩\u200d💻"


def test_names_in_a_sentence_may_be_isolated_but_not_leave_it() -> None:
    own = "\u200fIt writes \u2068plan.md\u2069."
    assert escaped_sentence(own) == own
    for text in ("It writes a\u2069.", "\u2068a", "\u2069a\u2068", "\u2068a\u202eb\u2069"):
        assert escaped_sentence(text) != text
