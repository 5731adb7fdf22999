"""Index of documents: their passages with full-text search (FTS5, BM25) and vectors, in SQLite.

All in it is derived from documents, so that no fault of its file is one for the user: a damaged
file, or one of another version, is made anew, and where none can be written the index is in memory.
A document is written in batches and stays marked as incomplete until the last one. What is removed
is not found from then on, and `tidy` erases it from the file in small steps.
"""

from __future__ import annotations

import json
import logging
import math
import sqlite3
import unicodedata
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from app.documents.passages import SIZE, Span, spans
from app.documents.terms import TOKENIZER, Question, folded, name_words, question
from app.domain.documents import DocumentKind, PageStart, page_spans

if TYPE_CHECKING:
    from app.documents.vectors import VectorTable

T = TypeVar("T")
_Row = tuple[int, int, int, int, str, str, str, str]  # columns of a passage, without its id
_log = logging.getLogger(__name__)

APPLICATION = 0x546F6B64  # "Tokd" in the file's header
VERSION = 1  # of the schema, the cutting and the folding: another one is indexed anew
BATCH = 32  # passages of a transaction
_SLICE = 1 << 18  # characters
_POOL = 60  # best passages of each kind of search that are fused
_RANK = 60  # how little the first ranks differ, in reciprocal rank fusion
_MOST_POSTINGS = 60_000  # passages that one question's terms may be in together, a matter of time
_MOST_UNKNOWN = 3  # terms in no passage for which similar ones are looked for
_SIMILAR = 0.8
_AGAIN = 0.95  # what each further passage of the same document counts
_MERGED = 2 * SIZE  # most characters of a passage that overlapping ones are merged to
_K1 = 1.2  # of FTS5's BM25
_LEAST_WEIGHT = 1e-6  # of a term, there
_MERGE_PAGES = 200  # of the full-text index that one step of `tidy` rewrites
_VACUUM_PAGES = 500

_SCHEMA = f"""
CREATE TABLE document (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT,  -- NULL: it is removed, and not erased yet
    digest BLOB NOT NULL,  -- of its text and pages
    version TEXT NOT NULL,  -- of what extracted them
    complete INTEGER NOT NULL DEFAULT 0,
    first INTEGER NOT NULL DEFAULT 0,  -- ids of its passages, which are without a gap
    last INTEGER NOT NULL DEFAULT -1
);
CREATE UNIQUE INDEX document_key ON document(key) WHERE key IS NOT NULL;
CREATE INDEX document_removed ON document(id) WHERE key IS NULL;
CREATE TABLE passage (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    document INTEGER NOT NULL,
    start INTEGER NOT NULL,
    end INTEGER NOT NULL,
    page_index INTEGER NOT NULL,
    page TEXT NOT NULL,
    headings TEXT NOT NULL,
    table_head TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE TABLE model (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE vector (
    model INTEGER NOT NULL,
    passage INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (model, passage)
) WITHOUT ROWID;
CREATE INDEX vector_passage ON vector(passage);
CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5(above, body, content='', tokenize="{TOKENIZER}");
"""


@dataclass(frozen=True, slots=True)
class Found:
    """A passage that was found, its place in the text of the document with this key."""

    key: str
    start: int
    end: int
    score: float  # 0 to 1, how well it fits
    text: str
    page_index: int = 0
    page: str = ""  # the page's label
    headings: str = ""  # above the passage
    table_head: str = ""  # of the table that it continues


@dataclass(frozen=True, slots=True)
class Unembedded:
    """A passage without a vector, and the text that the vector is of."""

    id: int
    text: str


@dataclass(frozen=True, slots=True)
class IndexSize:
    """What is in an index."""

    documents: int
    passages: int
    file_bytes: int


class _OtherVersion(Exception):
    """The file is of another version, or of another program."""


class DocumentIndex:
    """The index at `path`, or in memory; used by one thread at a time, and raises no `sqlite3.Error`.

    The file is opened by the first call. `lost` counts how often all documents were lost, which then
    have to be added again.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._database: sqlite3.Connection | None = None
        self._tables: dict[str, VectorTable] = {}  # by model
        self._embedded: dict[str, int] = {}  # by model: up to this passage all have vectors
        self.lost = 0

    @property
    def in_memory(self) -> bool:
        """Whether the index is lost at the end of the program."""
        return self._path is None

    # --- documents ------------------------------------------------------------------------------

    def add(
        self,
        key: str,
        text: str,
        starts: tuple[PageStart, ...] = (),
        kind: DocumentKind = DocumentKind.TEXT,
        version: str = "",
    ) -> None:
        """Index a document; at once done if it is known with this text.

        `version` is that of what extracted it, for `known`.
        """
        for _ in self.adding(key, text, starts, kind, version):
            pass

    def adding(
        self,
        key: str,
        text: str,
        starts: tuple[PageStart, ...] = (),
        kind: DocumentKind = DocumentKind.TEXT,
        version: str = "",
    ) -> Iterator[int]:
        """Index a document in steps: yields the characters done after each batch of passages.

        Stops early if the document is removed meanwhile; one that was begun before is continued.
        """
        digest = _digest(text, starts)
        begun = self._guarded(lambda base: self._begin(base, key, digest, version), None)
        if begun is None:
            return
        document, done = begun
        labels = [label for label, _, _ in page_spans(text, starts)]
        cut = islice(spans(text, starts, kind), done, None)
        while True:
            lost = self.lost
            batch = list(islice(cut, BATCH))
            rows = [_row(document, span, text, labels) for span in batch]
            complete = len(batch) < BATCH
            kept = self._guarded(
                lambda base, rows=rows, complete=complete: self._write(
                    base, document, rows, complete
                ),
                False,
            )
            if not kept or lost != self.lost:
                return
            yield batch[-1].end if batch else len(text)
            if complete:
                return

    def known(self, versions: Mapping[str, str | None]) -> set[str]:
        """Those of these keys whose documents are complete, in this version; None: in any."""
        rows = self._guarded(
            lambda base: base.execute(
                "SELECT key, version FROM document"
                " WHERE complete AND key IN (SELECT value FROM json_each(?))",
                (json.dumps(list(versions)),),
            ).fetchall(),
            [],
        )
        return {key for key, version in rows if versions[key] in (None, version)}

    def keys(self) -> set[str]:
        """The keys of all documents that are completely indexed."""
        found = self._guarded(
            lambda base: base.execute("SELECT key FROM document WHERE complete").fetchall(), []
        )
        return {key for (key,) in found if key is not None}

    def remove(self, keys: Iterable[str]) -> None:
        """Forget documents: they are not found from now on, and erased by `tidy`."""
        wanted = json.dumps(list(keys))

        def work(base: sqlite3.Connection) -> None:
            with _transaction(base):
                gone = base.execute(
                    "SELECT id, first, last FROM document"
                    " WHERE key IN (SELECT value FROM json_each(?))",
                    (wanted,),
                ).fetchall()
                self._forget(base, gone)

        self._guarded(work, None)

    def size(self) -> IndexSize:
        """How much is in the index, and the size of its file."""

        def work(base: sqlite3.Connection) -> IndexSize:
            documents, passages = base.execute(
                "SELECT count(*), ifnull(sum(last - first + 1), 0) FROM document"
                " WHERE key IS NOT NULL"
            ).fetchone()
            pages = base.execute("PRAGMA page_count").fetchone()[0]
            return IndexSize(
                documents, passages, pages * base.execute("PRAGMA page_size").fetchone()[0]
            )

        return self._guarded(work, IndexSize(0, 0, 0))

    def tidy(self) -> bool:
        """Erase some of what was removed from the file; False: there is nothing left to do."""
        return self._guarded(self._tidy, False)

    def close(self) -> None:
        """Close the file."""
        if self._database is not None:
            with suppress(sqlite3.Error):
                self._database.close()
            self._database = None

    # --- vectors --------------------------------------------------------------------------------

    def without_vectors(self, model: str, limit: int = 16) -> list[Unembedded]:
        """Passages that have no vector of this model, the oldest first."""

        def work(base: sqlite3.Connection) -> list[Unembedded]:
            number = self._model(base, model)
            rows = base.execute(
                "SELECT p.id, p.headings, p.table_head, p.text FROM passage AS p"
                " JOIN document AS d ON d.id = p.document WHERE p.id > ? AND d.key IS NOT NULL"
                " AND NOT EXISTS (SELECT 1 FROM vector WHERE model = ? AND passage = p.id)"
                " ORDER BY p.id LIMIT ?",
                (self._embedded.get(model, 0), number, limit),
            ).fetchall()
            if rows:
                self._embedded[model] = rows[0][0] - 1
            return [
                Unembedded(each, "\n".join(part for part in (headings, table_head, text) if part))
                for each, headings, table_head, text in rows
            ]

        return self._guarded(work, [])

    def count_without_vectors(self, model: str) -> int:
        """How many passages have no vector of this model."""

        def work(base: sqlite3.Connection) -> int:
            number = self._model(base, model)
            passages = base.execute(
                "SELECT ifnull(sum(last - first + 1), 0) FROM document WHERE key IS NOT NULL"
            ).fetchone()[0]
            # Those of removed documents go with them, in the same transaction.
            have = base.execute("SELECT count(*) FROM vector WHERE model = ?", (number,))
            return max(0, passages - have.fetchone()[0])

        return self._guarded(work, 0)

    def set_vectors(self, model: str, vectors: Iterable[tuple[int, Sequence[float]]]) -> None:
        """Set vectors of passages; those of passages that are gone are ignored."""
        from app.documents.vectors import packed  # numpy

        rows = [(number, packed(vector)) for number, vector in vectors]

        def work(base: sqlite3.Connection) -> None:
            known = self._model(base, model)
            with _transaction(base):
                base.executemany(
                    "INSERT OR REPLACE INTO vector SELECT ?, p.id, ? FROM passage AS p"
                    " JOIN document AS d ON d.id = p.document"
                    " WHERE p.id = ? AND d.key IS NOT NULL",
                    [(known, row, number) for number, row in rows],
                )
            if (table := self._tables.get(model)) is not None:
                table.add(rows)

        self._guarded(work, None)

    # --- search ---------------------------------------------------------------------------------

    def search(
        self,
        text: str,
        keys: Iterable[str] | None = None,
        vector: Sequence[float] | None = None,
        model: str = "",
        limit: int = 8,
    ) -> list[Found]:
        """The passages that fit a question best, also only those of documents with these keys.

        With the question's vector of a model, its words and its meaning count.
        """
        wanted = None if keys is None else list(dict.fromkeys(keys))
        if limit < 1 or wanted == []:
            return []
        asked = question(_encodable(text))

        def work(base: sqlite3.Connection) -> list[Found]:
            ranges = None if wanted is None else _ranges(base, wanted)
            if ranges == []:
                return []
            pool = max(_POOL, 4 * limit)
            by_words = self._by_words(base, asked, ranges, pool)
            by_meaning: dict[int, float] = {}
            if vector is not None:
                table = self._table(base, model, len(vector))
                by_meaning = dict(table.nearest(vector, pool, ranges))
            if asked.phrases and by_words:
                by_meaning = {each: by_meaning[each] for each in by_words if each in by_meaning}
            return self._fused(base, by_words, by_meaning, limit)

        return self._guarded(work, [])

    def _by_words(
        self,
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
            return self._by_words(base, Question(terms=asked.terms + loose.terms), ranges, limit)
        used: list[str] = []
        counts, unknown = [count for count, _ in phrases], 0
        for count, term in sorted((_count(base, each), each) for each in asked.terms):
            if count and used and sum(counts) + count > _MOST_POSTINGS:
                break  # the terms that say the least
            if not count and unknown < _MOST_UNKNOWN:
                unknown += 1
                if similar := self._similar(base, term):
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
        found = self._match(base, match, ranges, limit)
        return {number: min(1.0, max(0.0, -value / most)) for number, value in found}

    def _match(
        self,
        base: sqlite3.Connection,
        match: str,
        ranges: list[tuple[int, int]] | None,
        limit: int,
    ) -> list[tuple[int, float]]:
        """Ids and BM25 (less is better) of the best passages."""
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
        return base.execute(
            "SELECT words.rowid, words.rank FROM words"
            " CROSS JOIN passage AS p ON p.id = words.rowid"
            " CROSS JOIN document AS d ON d.id = p.document"
            f" WHERE words MATCH ? {among} AND d.key IS NOT NULL"
            " ORDER BY words.rank LIMIT ?",
            (match, *bound, limit),
        ).fetchall()

    def _similar(self, base: sqlite3.Connection, term: str) -> list[str]:
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

    def _fused(
        self,
        base: sqlite3.Connection,
        by_words: dict[int, float],
        by_meaning: dict[int, float],
        limit: int,
    ) -> list[Found]:
        """The best of both, by reciprocal rank fusion; overlapping ones merged, copies left out."""
        ranks: dict[int, float] = {}
        for ranked in (by_words, by_meaning):
            for rank, number in enumerate(ranked, 1):
                ranks[number] = ranks.get(number, 0.0) + 1 / (_RANK + rank)
        rows = {
            row[0]: row[1:]
            for row in base.execute(
                "SELECT p.id, d.key, p.start, p.end, p.text, p.page_index, p.page, p.headings,"
                " p.table_head FROM passage AS p JOIN document AS d ON d.id = p.document"
                " WHERE p.id IN (SELECT value FROM json_each(?))",
                (json.dumps(list(ranks)),),
            )
        }
        made: list[Found] = []
        texts: set[str] = set()
        of_document: dict[str, int] = {}
        while ranks:
            number = max(
                ranks,
                key=lambda each: (
                    ranks[each] * _AGAIN ** of_document.get(rows[each][0], 0),
                    -each,
                ),
            )
            del ranks[number]
            key, start, end, text, *place = rows[number]
            if text in texts:
                continue
            texts.add(text)
            values = [by_words.get(number, 0.0)]
            if by_meaning:
                values.append(max(0.0, by_meaning.get(number, 0.0)))
            found = Found(key, start, end, sum(values) / len(values), text, *place)
            if _merge(made, found):
                continue
            if len(made) == limit:
                break
            made.append(found)
            of_document[key] = of_document.get(key, 0) + 1
        return made

    def _table(self, base: sqlite3.Connection, model: str, numbers: int) -> VectorTable:
        """The vectors of a model, read from the file by the first question."""
        from app.documents.vectors import VectorTable  # numpy

        table = self._tables.get(model)
        if table is None or table.numbers != numbers:
            table = self._tables[model] = VectorTable(numbers)
            table.add(
                base.execute(
                    "SELECT passage, data FROM vector WHERE model = ?", (self._model(base, model),)
                )
            )
        return table

    # --- writing --------------------------------------------------------------------------------

    def _begin(
        self, base: sqlite3.Connection, key: str, digest: bytes, version: str
    ) -> tuple[int, int] | None:
        """Id of the document to write, and how many passages it has; None: it is complete."""
        row = base.execute(
            "SELECT id, digest, complete, first, last FROM document WHERE key = ?", (key,)
        ).fetchone()
        with _transaction(base):
            if row is not None:
                document, old, complete, first, last = row
                if old == digest:
                    base.execute(
                        "UPDATE document SET version = ? WHERE id = ?", (version, document)
                    )
                if old == digest and complete:
                    return None
                newest = base.execute(
                    "SELECT seq FROM sqlite_sequence WHERE name = 'passage'"
                ).fetchone()
                if old == digest and (last < first or newest == (last,)):
                    return document, last - first + 1
                self._forget(base, [(document, first, last)])
            cursor = base.execute(
                "INSERT INTO document(key, digest, version) VALUES (?, ?, ?)",
                (key, digest, version),
            )
            return int(cursor.lastrowid or 0), 0

    def _write(
        self,
        base: sqlite3.Connection,
        document: int,
        rows: list[_Row],
        complete: bool,
    ) -> bool:
        """Write passages; False: the document is gone, or another one was written in between."""
        with _transaction(base):
            row = base.execute(
                "SELECT first, last FROM document WHERE id = ? AND key IS NOT NULL", (document,)
            ).fetchone()
            if row is None:
                return False
            first, last = row
            newest = base.execute("SELECT seq FROM sqlite_sequence WHERE name = 'passage'")
            following = (newest.fetchone() or (0,))[0] + 1
            if last < first:
                first, last = following, following - 1
            elif last + 1 != following:
                return False
            numbered = [(last + 1 + at, *each) for at, each in enumerate(rows)]
            base.executemany("INSERT INTO passage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", numbered)
            base.executemany(
                "INSERT INTO words(rowid, above, body) VALUES (?, ?, ?)",
                [(each[0], *_indexed(*each[6:9])) for each in numbered],
            )
            base.execute(
                "UPDATE document SET first = ?, last = ?, complete = ? WHERE id = ?",
                (first, last + len(rows), complete, document),
            )
            return True

    def _forget(self, base: sqlite3.Connection, gone: list[tuple[int, int, int]]) -> None:
        """Mark documents as removed, and remove their vectors."""
        for document, first, last in gone:
            base.execute("UPDATE document SET key = NULL WHERE id = ?", (document,))
            base.execute("DELETE FROM vector WHERE passage BETWEEN ? AND ?", (first, last))
        if gone:
            _set_state(base, "erase", "delete")
        for table in self._tables.values():
            table.remove([(first, last) for _, first, last in gone])

    def _tidy(self, base: sqlite3.Connection) -> bool:
        """One step: passages of removed documents, then old parts of the file's structures."""
        step = base.execute("SELECT value FROM state WHERE name = 'erase'").fetchone()
        match step[0] if step else "":
            case "delete":
                self._delete_some(base)
            case "merge" | "merging" as now:
                with _transaction(base):
                    before = base.total_changes
                    pages = -_MERGE_PAGES if now == "merge" else _MERGE_PAGES
                    base.execute("INSERT INTO words(words, rank) VALUES ('merge', ?)", (pages,))
                    done = base.total_changes - before < 2 and now == "merging"
                    _set_state(base, "erase", "vacuum" if done else "merging")
            case "vacuum":
                # As a script: a single execution would free one page only.
                base.executescript(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})")
                if base.execute("PRAGMA freelist_count").fetchone()[0] == 0:
                    with _transaction(base):
                        base.execute("DELETE FROM state WHERE name = 'erase'")
                    base.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            case _:
                return False
        return True

    def _delete_some(self, base: sqlite3.Connection) -> None:
        """Delete some passages of a removed document; the next step follows the last ones."""
        with _transaction(base):
            row = base.execute(
                "SELECT id, first, last FROM document WHERE key IS NULL LIMIT 1"
            ).fetchone()
            if row is None:
                _set_state(base, "erase", "merge")
                return
            document, first, last = row
            rows = base.execute(
                "SELECT id, headings, table_head, text FROM passage"
                " WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT ?",
                (first, last, BATCH),
            ).fetchall()
            base.executemany(
                "INSERT INTO words(words, rowid, above, body) VALUES ('delete', ?, ?, ?)",
                [(each[0], *_indexed(*each[1:])) for each in rows],
            )
            base.executemany("DELETE FROM passage WHERE id = ?", [(each[0],) for each in rows])
            if len(rows) < BATCH:
                base.execute("DELETE FROM document WHERE id = ?", (document,))
            else:
                base.execute(
                    "UPDATE document SET last = ? WHERE id = ?", (rows[-1][0] - 1, document)
                )

    def _model(self, base: sqlite3.Connection, name: str) -> int:
        row = base.execute("SELECT id FROM model WHERE name = ?", (name,)).fetchone()
        if row is None:
            row = (base.execute("INSERT INTO model(name) VALUES (?)", (name,)).lastrowid,)
        return int(row[0] or 0)

    # --- the file -------------------------------------------------------------------------------

    def _guarded(self, work: Callable[[sqlite3.Connection], T], default: T) -> T:
        """What `work` returns; after a fault of the file it is done again, in a new one."""
        for _ in range(3):
            try:
                if self._database is None:
                    self._database = _open(self._path)
                return work(self._database)
            except (sqlite3.Error, OSError, _OtherVersion) as error:
                self._recover(error)
        return default

    def _recover(self, error: Exception) -> None:
        """Make a new file in place of a damaged one; go on in memory if none can be written."""
        self.close()
        self._tables, self._embedded = {}, {}
        self.lost += 1
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        unusable = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
        if self._path is None:
            _log.error("the index of documents failed: %s", error)
        elif isinstance(error, _OtherVersion) or code in unusable:
            _log.warning("the index of documents is made anew: %s (%s)", error, self._path)
            try:
                for end in ("-wal", "-shm", "-journal", ""):
                    self._path.with_name(self._path.name + end).unlink(missing_ok=True)
            except OSError:
                self._path = None
        else:
            _log.warning("the index of documents is in memory only: %s (%s)", error, self._path)
            self._path = None


def _open(path: Path | None) -> sqlite3.Connection:
    """Open or create the file, for this process only."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    base = sqlite3.connect(
        path or ":memory:", timeout=0.2, isolation_level=None, check_same_thread=False
    )
    try:
        base.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        base.execute("PRAGMA secure_delete = ON").fetchall()
        base.execute("PRAGMA auto_vacuum = INCREMENTAL").fetchall()
        base.execute("PRAGMA journal_mode = WAL").fetchall()
        base.execute("PRAGMA synchronous = NORMAL")
        base.execute("PRAGMA temp_store = MEMORY")
        base.execute("PRAGMA cache_size = -16000")
        with _transaction(base):
            tables = base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            version = f"{VERSION} {unicodedata.unidata_version}"
            if not tables:
                for statement in _SCHEMA.split(";\n"):
                    base.execute(statement)
                _set_state(base, "version", version)
                base.execute(f"PRAGMA application_id = {APPLICATION}")
            elif base.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
                raise _OtherVersion("it is of another program")
            row = base.execute("SELECT value FROM state WHERE name = 'version'").fetchone()
            if row != (version,):
                raise _OtherVersion(f"its version is {row and row[0]}, not {version}")
        base.execute("CREATE TEMP TABLE wanted (first INTEGER PRIMARY KEY, last INTEGER)")
        base.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab(main, words, row)")
    except BaseException:
        base.close()
        raise
    return base


@contextmanager
def _transaction(base: sqlite3.Connection) -> Generator[None]:
    base.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with suppress(sqlite3.Error):
            base.execute("ROLLBACK")
        raise
    base.execute("COMMIT")


def _set_state(base: sqlite3.Connection, name: str, value: str) -> None:
    base.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))


def _count(base: sqlite3.Connection, match: str) -> int:
    """How many passages have a term."""
    found = base.execute("SELECT count(*) FROM words WHERE words MATCH ?", (match,))
    return int(found.fetchone()[0])


def _row(document: int, span: Span, text: str, labels: list[str]) -> _Row:
    place = (document, span.start, span.end, span.page_index, _encodable(labels[span.page_index]))
    texts = (span.headings, span.table_head, text[span.start : span.end])
    headings, table_head, body = map(_encodable, texts)
    return (*place, headings, table_head, body)


def _digest(text: str, starts: tuple[PageStart, ...]) -> bytes:
    """What tells a document's extracted text from another one."""
    made = blake2b(digest_size=16)
    for at in range(0, len(text), _SLICE):  # in slices, so that other threads do not wait
        made.update(text[at : at + _SLICE].encode("utf-8", "surrogatepass"))
    made.update(repr([(page.label, page.start) for page in starts]).encode())
    return made.digest()


def _encodable(text: str) -> str:
    """A text with a question mark for each lone surrogate."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _indexed(headings: str, table_head: str, text: str) -> tuple[str, str]:
    """What the full-text index has of a passage: what is above it, and its text."""
    above = "\n".join((headings, table_head, name_words(text)))
    return folded(above), folded(text)


def _ranges(base: sqlite3.Connection, keys: list[str]) -> list[tuple[int, int]]:
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


def _merge(made: list[Found], found: Found) -> bool:
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
