"""Places of a query in a text, in UTF-16 units, whatever its case, accents and composition."""

from __future__ import annotations

import random
import unicodedata

import pytest

from app.system.text_search import first_occurrence, normalize, normalize_query, occurrences


def found(text: str, query: str) -> list[str]:
    wide = text.encode("utf-16-le")
    places = occurrences(text, normalize_query(query))
    assert places == sorted(places)
    return [wide[2 * start : 2 * end].decode("utf-16-le") for start, end in places]


@pytest.mark.parametrize(
    ("text", "query", "expected"),
    [
        ("Tea, tea and TEA", "tea", ["Tea", "tea", "TEA"]),
        ("aaaa", "aa", ["aa", "aa"]),
        ("one\ntwo", "one two", ["one\ntwo"]),
        ("one", "  ", []),
        ("one", "two", []),
        ("Café, cafe\u0301, CAFE", "cafe", ["Café", "cafe\u0301", "CAFE"]),
        ("Straße und STRASSE", "strasse", ["Straße", "STRASSE"]),
        ("Straße", "s", ["S", "ß"]),
        ("\U0001f600 ok \U0001f600 ok", "ok", ["ok", "ok"]),
        ("か\u3099 が カ", "が", ["か\u3099", "が"]),
        ("\u1112\u1161\u11ab 한", "한", ["\u1112\u1161\u11ab", "한"]),
        ("ﾊﾞ バ", "バ", ["ﾊﾞ", "バ"]),
        ("كِتَاب كتاب", "كتاب", ["كِتَاب", "كتاب"]),
        ("10\u00a0km", "10 km", ["10\u00a0km"]),
    ],
)
def test_places_of_a_query(text: str, query: str, expected: list[str]) -> None:
    assert found(text, query) == expected


def test_random_text_contains_what_was_found() -> None:
    letters = "aAäßeE\u0301éかが\u3099 \n\U0001f600ıİøل\u0650"
    draw = random.Random(7)
    hits = 0
    for _ in range(3000):
        text = "".join(draw.choices(letters, k=draw.randrange(30)))
        query = "".join(draw.choices(letters, k=draw.randrange(1, 3)))
        wanted = normalize_query(query)
        for piece in found(text, query):
            hits += 1
            assert wanted in normalize(unicodedata.normalize("NFC", piece.replace("\n", " ")))
    assert hits > 1000


@pytest.mark.parametrize(
    ("text", "queries", "expected"),
    [
        ("one two", ["two", "one"], 0),
        ("one two", ["two"], 4),
        ("one", ["two"], 0),
        ("\U0001f600 é cafe\u0301 tea", ["tea"], 10),
        ("Straße tea", ["tea"], 7),
    ],
)
def test_first_place_of_several_queries(text: str, queries: list[str], expected: int) -> None:
    assert first_occurrence(text, queries) == expected
