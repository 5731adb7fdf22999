"""Index of documents: their passages with full-text search (FTS5, BM25) and vectors, in SQLite.

All in it is derived from documents, so that no fault of its file is one for the user: a damaged
file, or one of another version, is made anew, and where none can be written the index is in memory.
A document is written in batches and stays marked as incomplete until the last one. What is removed
is not found from then on, and `tidy` erases it from the file in small steps.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from app.documents.beside import OfNewer, beside, remove_beside
from app.documents.index_file import VERSION, OtherVersion, open_index, set_state, transaction
from app.documents.passages import Span, parts_of, spans
from app.documents.ranking import by_words, fused, passage_ranges
from app.documents.terms import folded, name_words, question
from app.domain.documents import DocumentKind, FoundPassage, PageStart, page_spans
from engine import disk_files

if TYPE_CHECKING:
    from app.documents.vectors import VectorTable

T = TypeVar("T")
_Row = tuple[int, int, int, int, str, str, str, str]  # columns of a passage, without its id
_log = logging.getLogger(__name__)

BATCH = 32  # passages of a transaction
_SLICE = 1 << 18  # characters
_POOL = 60  # best passages of each kind of search that are fused
_MERGE_PAGES = 200  # of the full-text index that one step of `tidy` rewrites
_VACUUM_PAGES = 500


@dataclass(frozen=True, slots=True)
class Unembedded:
    """A passage without a vector, and the texts that vectors are wanted of."""

    id: int
    text: str
    parts: tuple[str, ...] = ()  # of the text; a question may be near to one of them only


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

    def text(self, key: str) -> tuple[str, tuple[PageStart, ...]] | None:
        """The text of a complete document as its passages have it, and where its pages begin.

        Places in it are those of the text that was indexed: what is between the passages, which is
        white space, is newlines.
        """
        rows = self._guarded(
            lambda base: base.execute(
                "SELECT p.start, p.end, p.page_index, p.page, p.text FROM document AS d"
                " JOIN passage AS p ON p.id BETWEEN d.first AND d.last"
                " WHERE d.key = ? AND d.complete ORDER BY p.start, p.end",
                (key,),
            ).fetchall(),
            [],
        )
        pieces: list[str] = []
        pages: dict[int, PageStart] = {}
        done = 0
        for start, end, page_index, page, text in rows:
            pages.setdefault(page_index, PageStart(page, start))
            pieces += ("\n" * (start - done), text[max(0, done - start) :])
            done = max(done, end)
        starts = tuple(pages[each] for each in sorted(pages)) if any(r[3] for r in rows) else ()
        return ("".join(pieces), starts) if rows else None

    def remove(self, keys: Iterable[str]) -> None:
        """Forget documents: they are not found from now on, and erased by `tidy`."""
        wanted = json.dumps(list(keys))

        def work(base: sqlite3.Connection) -> None:
            with transaction(base):
                gone = base.execute(
                    "SELECT id, first, last FROM document"
                    " WHERE key IN (SELECT value FROM json_each(?))",
                    (wanted,),
                ).fetchall()
                self._forget(base, gone)

        self._guarded(work, None)

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
            return [_unembedded(*row) for row in rows]

        return self._guarded(work, [])

    def without_parts(self, model: str, limit: int = 16) -> list[Unembedded]:
        """Passages that have a vector of this model, and none of their parts yet."""

        def work(base: sqlite3.Connection) -> list[Unembedded]:
            rows = base.execute(
                "SELECT p.id, p.headings, p.table_head, p.text FROM vector AS v"
                " JOIN passage AS p ON p.id = v.passage"
                " WHERE v.model = ? AND v.parts IS NULL ORDER BY v.passage LIMIT ?",
                (self._model(base, model), limit),
            ).fetchall()
            return [_unembedded(*row) for row in rows]

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
        """Set vectors of passages, without those of their parts; passages that are gone are ignored."""
        from app.documents.vectors import packed  # numpy

        rows = [(number, packed(vector)) for number, vector in vectors]

        def work(base: sqlite3.Connection) -> None:
            known = self._model(base, model)
            with transaction(base):
                base.executemany(
                    "INSERT OR REPLACE INTO vector SELECT ?, p.id, NULL, ? FROM passage AS p"
                    " JOIN document AS d ON d.id = p.document"
                    " WHERE p.id = ? AND d.key IS NOT NULL",
                    [(known, row, number) for number, row in rows],
                )
            if (table := self._tables.get(model)) is not None:
                table.add(rows)

        self._guarded(work, None)

    def set_parts(self, model: str, parts: Mapping[int, Sequence[Sequence[float]]]) -> None:
        """Set the vectors of the parts of passages; those without a vector are ignored."""
        from app.documents.vectors import packed  # numpy

        tails = {number: [*map(packed, some)] for number, some in parts.items()}

        def work(base: sqlite3.Connection) -> None:
            known = self._model(base, model)
            with transaction(base):
                for number, tail in tails.items():
                    row = base.execute(
                        "SELECT data FROM vector WHERE model = ? AND passage = ? AND parts IS NULL",
                        (known, number),
                    ).fetchone()
                    if row is not None:
                        base.execute(
                            "UPDATE vector SET parts = ?, data = ? WHERE model = ? AND passage = ?",
                            (len(tail), b"".join((*row, *tail)), known, number),
                        )

        self._guarded(work, None)

    # --- search ---------------------------------------------------------------------------------

    def search(
        self,
        text: str,
        keys: Iterable[str] | None = None,
        vector: Sequence[float] | None = None,
        model: str = "",
        limit: int = 8,
    ) -> list[FoundPassage]:
        """The passages that fit a question best, also only those of documents with these keys.

        With the question's vector of a model, its words and its meaning count.
        """
        wanted = None if keys is None else list(dict.fromkeys(keys))
        if limit < 1 or wanted == []:
            return []
        asked = question(_encodable(text))

        def work(base: sqlite3.Connection) -> list[FoundPassage]:
            ranges = None if wanted is None else passage_ranges(base, wanted)
            if ranges == []:
                return []
            pool = max(_POOL, 4 * limit)
            near_words = by_words(base, asked, ranges, pool)
            by_meaning: dict[int, float] = {}
            if vector is not None:
                table = self._table(base, model, len(vector))
                by_meaning = self._refined(base, model, vector, table.nearest(vector, pool, ranges))
            if asked.phrases and near_words:
                by_meaning = {each: by_meaning[each] for each in near_words if each in by_meaning}
            return fused(base, near_words, by_meaning, limit)

        return self._guarded(work, [])

    def _refined(
        self,
        base: sqlite3.Connection,
        model: str,
        vector: Sequence[float],
        near: list[tuple[int, float]],
    ) -> dict[int, float]:
        """The nearest passages by the mean of their cosine and that of their nearest part."""
        from app.documents.vectors import refined  # numpy

        if not near:
            return {}
        rows = base.execute(
            "SELECT passage, data FROM vector WHERE model = ?"
            " AND passage IN (SELECT value FROM json_each(?))",
            (self._model(base, model), json.dumps([number for number, _ in near])),
        )
        return refined(vector, dict(near), rows)

    def _table(self, base: sqlite3.Connection, model: str, numbers: int) -> VectorTable:
        """The vectors of a model, read from the file by the first question."""
        from app.documents.vectors import VectorTable, packed_bytes  # numpy

        table = self._tables.get(model)
        if table is None or table.numbers != numbers:
            table = self._tables[model] = VectorTable(numbers)
            table.add(
                base.execute(
                    "SELECT passage, substr(data, 1, ?) FROM vector WHERE model = ?",
                    (packed_bytes(numbers), self._model(base, model)),
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
        with transaction(base):
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
        with transaction(base):
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
            set_state(base, "erase", "delete")
        for table in self._tables.values():
            table.remove([(first, last) for _, first, last in gone])

    def _tidy(self, base: sqlite3.Connection) -> bool:
        """One step: passages of removed documents, then old parts of the file's structures."""
        step = base.execute("SELECT value FROM state WHERE name = 'erase'").fetchone()
        match step[0] if step else "":
            case "delete":
                self._delete_some(base)
            case "merge" | "merging" as now:
                with transaction(base):
                    before = base.total_changes
                    pages = -_MERGE_PAGES if now == "merge" else _MERGE_PAGES
                    base.execute("INSERT INTO words(words, rank) VALUES ('merge', ?)", (pages,))
                    done = base.total_changes - before < 2 and now == "merging"
                    set_state(base, "erase", "vacuum" if done else "merging")
            case "vacuum":
                # As a script: a single execution would free one page only.
                base.executescript(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})")
                if base.execute("PRAGMA freelist_count").fetchone()[0] == 0:
                    with transaction(base):
                        base.execute("DELETE FROM state WHERE name = 'erase'")
                    base.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            case _:
                return False
        return True

    def _delete_some(self, base: sqlite3.Connection) -> None:
        """Delete some passages of a removed document; the next step follows the last ones."""
        with transaction(base):
            row = base.execute(
                "SELECT id, first, last FROM document WHERE key IS NULL LIMIT 1"
            ).fetchone()
            if row is None:
                set_state(base, "erase", "merge")
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
                    self._database = self._opened()
                return work(self._database)
            except (sqlite3.Error, OSError, OtherVersion) as error:
                self._recover(error)
        return default

    def _opened(self) -> sqlite3.Connection:
        """The file; one of a newer version stays, and this version has its own beside it."""
        try:
            opened = open_index(self._path)
        except OfNewer as error:
            if self._path is None:
                raise
            _log.info("the index of documents is of a newer version and stays: %s", error)
            self._path = beside(self._path, VERSION)
            self.lost += 1
            return open_index(self._path)
        if self._path is not None:
            remove_beside(self._path)
        return opened

    def _recover(self, error: Exception) -> None:
        """Make a new file in place of a damaged one; go on in memory if none can be written."""
        self.close()
        self._tables, self._embedded = {}, {}
        self.lost += 1
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        unusable = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
        if self._path is None:
            _log.error("the index of documents failed: %s", error)
        elif isinstance(error, OtherVersion) or code in unusable:
            _log.warning("the index of documents is made anew: %s (%s)", error, self._path)
            try:
                for end in ("-wal", "-shm", "-journal", ""):
                    disk_files.delete(self._path.with_name(self._path.name + end))
            except OSError:
                self._path = None
        else:
            _log.warning("the index of documents is in memory only: %s (%s)", error, self._path)
            self._path = None


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


def _unembedded(number: int, headings: str, table_head: str, text: str) -> Unembedded:
    whole = "\n".join(part for part in (headings, table_head, text) if part)
    return Unembedded(number, whole, parts_of(whole))


def _encodable(text: str) -> str:
    """A text with a question mark for each lone surrogate."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _indexed(headings: str, table_head: str, text: str) -> tuple[str, str]:
    """What the full-text index has of a passage: what is above it, and its text."""
    above = "\n".join((headings, table_head, name_words(text)))
    return folded(above), folded(text)
