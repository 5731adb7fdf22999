"""Words for calls of tools: short arguments, lists, ends and the order of parts."""

from __future__ import annotations

import tracemalloc

import pytest

from app.domain.parts import CallEnd, TextPart, ToolCallPart, ToolResultPart
from app.domain.tool_activity import Allowed
from app.domain.tool_words import (
    allowed_sentence,
    argument_list,
    call_text,
    cut_sentence,
    end_sentence,
    end_word,
    pretty_json,
    read_arguments,
    result_and_language,
    seconds_words,
    short_arguments,
    with_results_at_calls,
)


@pytest.mark.parametrize(
    ("arguments", "short"),
    [
        ('{"expression": "17.5 % of 2,384"}', "17.5 % of 2,384"),
        ('{"days": 90}', "days: 90"),
        ('{"city": "Kyoto", "days": 1, "rain": true}', "city: Kyoto, days: 1, rain: true"),
        ('{"code": "a\\n  b"}', "a b"),
        ('{"name": "a\\u202eb"}', "a\\u202eb"),
        ("{}", ""),
        ('{"text": "not en', '{"text": "not en'),
    ],
)
def test_short_arguments_say_what_a_call_was_given(arguments: str, short: str) -> None:
    assert short_arguments(arguments) == short


def test_short_arguments_of_a_call_being_written_are_its_end() -> None:
    assert short_arguments('{"text": "' + "x" * 5000 + "END").endswith("END")
    assert len(short_arguments('{"text": "' + "x" * 5000)) <= 120


def test_of_long_arguments_being_written_few_are_kept() -> None:
    tracemalloc.start()
    try:
        for length in range(100_000, 100_200):
            text = '{"text": "' + "x" * length
            assert read_arguments(text) is None
            assert short_arguments(text).endswith("xxx")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 3_000_000  # bytes; each has 100,000


def test_flat_arguments_are_a_list_and_others_are_not() -> None:
    assert argument_list('{"a": "x", "n": 1.5, "z": null}') == (
        ("a", "x"), ("n", "1.5"), ("z", "null")
    )  # fmt: skip
    assert argument_list('{"a": ["x"]}') is None
    assert argument_list("[1]") is None
    assert argument_list('{"a": ') is None


def test_a_result_in_json_is_seen_as_such() -> None:
    assert result_and_language('{"a":1}') == ('{\n  "a": 1\n}', "json")
    assert result_and_language("{a}") == ("{a}", "")
    assert result_and_language("[" * 100_000)[1] == ""
    assert pretty_json("9" * 5000) == "9" * 5000


def test_a_result_that_indents_would_make_a_thousand_times_longer_stays_on_its_line() -> None:
    deep = "[" * 900 + "1, " * 7_000 + "1" + "]" * 900
    for shown, _ in (result_and_language(deep), (pretty_json(deep), "")):
        assert shown == deep
    assert "\n" in pretty_json('{"a": {"b": [1, 2, 3]}}')


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0, ""), (0.01, "0.1 s"), (0.3, "0.3 s"), (12.4, "12 s"), (125, "2 min 5 s")],
)
def test_times_are_as_exact_as_they_are_read(seconds: float, words: str) -> None:
    assert seconds_words(seconds) == words


def test_each_end_has_a_word_and_a_sentence_of_its_own() -> None:
    ends = [ToolResultPart("t", end=end) for end in ("", *CallEnd)]
    ends.append(ToolResultPart("t", failed=True))
    assert len({end_word(each) for each in ends}) == len(ends)
    assert len({end_sentence(each) for each in ends}) == len(ends)
    assert end_sentence(ToolResultPart("t", seconds=1.5)) == "It was done in 1.5 s."


def test_a_cut_result_says_where_the_whole_is() -> None:
    assert cut_sentence(ToolResultPart("t", "abc")) == ""
    cut = ToolResultPart("t", "abc", sha256="0" * 64, characters=2_000_000)
    words = (
        "The model reads the first 3 of 2,000,000 characters. The whole result is kept in a file."
    )
    assert cut_sentence(cut) == words


def test_it_is_said_who_allowed_a_call() -> None:
    assert allowed_sentence(Allowed.CHAT) == "You allowed it in this chat."
    assert allowed_sentence(None) == allowed_sentence(Allowed.NOBODY) == ""


def test_results_follow_their_calls() -> None:
    one, two = ToolCallPart("a", "{}", "1"), ToolCallPart("a", "{}", "2")
    second, first = ToolResultPart("a", "2", "2"), ToolResultPart("a", "1", "1")
    lone, text = ToolResultPart("b", "x", "9"), TextPart("Well.")
    ordered = with_results_at_calls((one, two, second, lone, first, text))
    assert list(ordered) == [one, first, two, second, lone, text]
    nameless = ToolResultPart("", "1", "1")  # of an imported chat
    assert list(with_results_at_calls((one, two, nameless))) == [one, nameless, two]


def test_a_call_is_copied_with_name_arguments_and_result() -> None:
    call, result = ToolCallPart("a", '{"n": 1}', "1"), ToolResultPart("a", "one", "1")
    assert call_text(call, result) == 'a\n\n{\n  "n": 1\n}\n\none'
    assert call_text(None, result) == "a\n\none"
