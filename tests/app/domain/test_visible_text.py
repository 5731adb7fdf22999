"""Untrusted text: what is invisible or turns others is seen, and JSON stays the same value."""

from __future__ import annotations

import json

import pytest

from app.domain.visible_text import escaped, escaped_result, escaped_sentence, one_line


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
    assert escaped_result("می\u200cخواهم 👩\u200d💻") == "می\u200cخواهم 👩\u200d💻"


def test_a_result_shows_what_forces_a_direction() -> None:
    assert escaped_result("exe.\u202etxt\r\n\x1b[31m") == "exe.\\u202etxt\n\\u001b[31m"


def test_names_in_a_sentence_may_be_isolated_but_not_leave_it() -> None:
    own = "\u200fIt writes \u2068plan.md\u2069."
    assert escaped_sentence(own) == own
    for text in ("It writes a\u2069.", "\u2068a", "\u2069a\u2068", "\u2068a\u202eb\u2069"):
        assert escaped_sentence(text) != text


def test_a_name_is_one_line() -> None:
    assert one_line(" Write\n a\u202e\tfile ") == "Write a\\u202e file"
