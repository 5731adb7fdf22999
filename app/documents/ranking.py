"""Ranking of passages: BM25 of a question's words, and its fusion with the nearness of vectors."""

from __future__ import annotations

import json
import math
import sqlite3
from dataclasses import replace
from difflib import get_close_matches

from app.documents.passages import SIZE
from app.documents.terms import Question, question
from app.domain.documents import FoundPassage

_MOST_POSTINGS = 40_000  # passages that one question's terms may be in together, a matter of time
_MOST_RANKED = 20_000  # of passages that have a term that is in more, the newest
_MOST_UNKNOWN = 3  # terms in no passage for which similar ones are looked for
_SIMILAR = 0.8
_AGAIN = 0.97  # what each further passage of the same document counts
_MERGED = 2 * SIZE  # most characters of a passage that overlapping ones are merged to
_K1 = 1.2  # of FTS5's BM25
_LEAST_WEIGHT = 1e-6  # of a term, there


def by_words(
    base: sqlite3.Connection,
    asked: Question,
    ranges: list[tuple[int, int]] | None,
    limit: int,
) -> dict[int, float]:
    """The best passages by BM25, with the part of the highest possible value (0 to 1)."""
    total = base.execute("SELECT ifnull(sum(last - first + 1), 0) FROM document").fetchone()[0]
    phrases = sorted((_count(base, each), each) for each in asked.phrases)
    if phrases and not phrases[0][0]:  # nobody wrote it so
        loose = question(" ".join(each.strip('"') for each in asked.phrases))
        return by_words(base, Question(terms=asked.terms + loose.terms), ranges, limit)
    used: list[str] = []
    counts, unknown = [count for count, _ in phrases], 0
    for count, term in sorted((_count(base, each), each) for each in asked.terms):
        if count and used and sum(counts) + count > _MOST_POSTINGS:
            break  # the terms that say the least
        if not count and unknown < _MOST_UNKNOWN:
            unknown += 1
            if similar := _similar(base, term):
                term = " OR ".join(similar)
                count = _count(base, term)
        counts.append(count)
        if count:
            used.append(term)
    match = " OR ".join((*asked.phrases, *used))
    if phrases:
        match = f"({' AND '.join(asked.phrases)}) AND ({match})"
    if not match:
        return {}
    # The highest value that a passage with all terms could have.
    weights = (math.log((total - count + 0.5) / (count + 0.5)) for count in counts)
    most = (_K1 + 1) * sum(max(_LEAST_WEIGHT, each) for each in weights)
    ranked = _MOST_RANKED if sum(counts) > _MOST_POSTINGS else 0
    found = _match(base, match, ranges, limit, ranked)
    return {number: min(1.0, max(0.0, -value / most)) for number, value in found}


def _match(
    base: sqlite3.Connection,
    match: str,
    ranges: list[tuple[int, int]] | None,
    limit: int,
    ranked: int,
) -> list[tuple[int, float]]:
    """Ids and BM25 (less is better) of the best passages, of the newest `ranked`; 0: of all."""
    among, bound = "", []
    if ranges is not None:
        among = "AND words.rowid BETWEEN ? AND ?"
        bound = [ranges[0][0], ranges[-1][1]]
        if len(ranges) > 1:
            base.execute("DELETE FROM temp.wanted")
            base.executemany("INSERT INTO temp.wanted VALUES (?, ?)", ranges)
            among += (
                " AND (SELECT last FROM temp.wanted WHERE first <= words.rowid"
                " ORDER BY first DESC LIMIT 1) >= words.rowid"
            )
    found = (
        "SELECT words.rowid AS id, words.rank AS value FROM words"
        " CROSS JOIN passage AS p ON p.id = words.rowid"
        " CROSS JOIN document AS d ON d.id = p.document"
        f" WHERE words MATCH ? {among} AND d.key IS NOT NULL"
    )
    if ranked:
        found = f"SELECT id, value FROM ({found} ORDER BY id DESC LIMIT {ranked})"
    return base.execute(f"{found} ORDER BY value LIMIT ?", (match, *bound, limit)).fetchall()


def _similar(base: sqlite3.Connection, term: str) -> list[str]:
    """Terms of the index that a term in no passage may be meant for, or begin with it."""
    word = term[1:-1]
    if len(word) < 4 or not word.isalpha():  # a number is meant as it is
        return []
    prefix = word[: max(3, len(word) // 2)]
    rows = base.execute(
        "SELECT term FROM temp.vocabulary WHERE term >= ? AND term < ? LIMIT 500",
        (prefix, prefix + "\U0010ffff"),
    ).fetchall()
    terms = [each for (each,) in rows]
    longer = [each for each in terms if each.startswith(word)]
    close = get_close_matches(word, terms, 3, _SIMILAR)
    return [f'"{each}"' for each in dict.fromkeys((*longer[:5], *close)) if each.isalnum()]


def fused(
    base: sqlite3.Connection,
    by_words: dict[int, float],
    by_meaning: dict[int, float],
    limit: int,
) -> list[FoundPassage]:
    """The best of both, by the sum of their values; overlapping ones merged, copies left out.

    Ranks alone would let the best of words that say little outweigh a clear meaning.
    """
    scores = _sums(by_words, by_meaning)
    rows = {
        row[0]: row[1:]
        for row in base.execute(
            "SELECT p.id, d.key, p.start, p.end, p.text, p.page_index, p.page, p.headings,"
            " p.table_head FROM passage AS p JOIN document AS d ON d.id = p.document"
            " WHERE p.id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(scores)),),
        )
    }
    made: list[FoundPassage] = []
    texts: set[str] = set()
    of_document: dict[str, int] = {}
    while scores:
        number = max(
            scores,
            key=lambda each: (
                scores[each] * _AGAIN ** of_document.get(rows[each][0], 0),
                -each,
            ),
        )
        del scores[number]
        key, start, end, text, *place = rows[number]
        if text in texts:
            continue
        texts.add(text)
        values = [by_words.get(number, 0.0)]
        if by_meaning:
            values.append(max(0.0, by_meaning.get(number, 0.0)))
        found = FoundPassage(key, start, end, sum(values) / len(values), text, *place)
        if _merge(made, found):
            continue
        if len(made) == limit:
            break
        made.append(found)
        of_document[key] = of_document.get(key, 0) + 1
    return made


def _sums(by_words: dict[int, float], by_meaning: dict[int, float]) -> dict[int, float]:
    """Of each passage its part of the highest BM25 and where its cosine lies among those found.

    The cosines of models differ in range, so they are stretched to 0 to 1.
    """
    least, most = min(by_meaning.values(), default=0.0), max(by_meaning.values(), default=0.0)
    spread = (most - least) or 1.0
    return {
        each: by_words.get(each, 0.0) + (by_meaning.get(each, least) - least) / spread
        for each in (*by_words, *by_meaning)
    }


def _count(base: sqlite3.Connection, match: str) -> int:
    """How many passages have a term."""
    found = base.execute("SELECT count(*) FROM words WHERE words MATCH ?", (match,))
    return int(found.fetchone()[0])


def passage_ranges(base: sqlite3.Connection, keys: list[str]) -> list[tuple[int, int]]:
    """The ids of the passages of documents, in ranges that are apart."""
    rows = base.execute(
        "SELECT first, last FROM document WHERE key IN (SELECT value FROM json_each(?))"
        " AND last >= first ORDER BY first",
        (json.dumps(keys),),
    )
    made: list[tuple[int, int]] = []
    for first, last in rows:
        if made and made[-1][1] + 1 == first:
            made[-1] = (made[-1][0], last)
        else:
            made.append((first, last))
    return made


def _merge(made: list[FoundPassage], found: FoundPassage) -> bool:
    """Merge a passage with one that it overlaps; False: there is none."""
    for at, other in enumerate(made):
        first, second = sorted((other, found), key=lambda each: each.start)
        overlaps = other.key == found.key and second.start < first.end
        if overlaps and second.end - first.start <= _MERGED:
            text = first.text[: second.start - first.start] + second.text
            score = max(first.score, second.score)
            made[at] = replace(first, end=second.end, text=text, score=score)
            return True
    return False
