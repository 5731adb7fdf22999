"""Answers from tables: the model writes a query, the app evaluates it, the model answers from that.

The model sees the columns with a few of their values, and never adds up numbers itself. A query that
does not fit the table is asked for once again, with what is wrong. The result is stored as a part of
the answer before its text, so that an answer that was stopped goes on from it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from app.chat.documents.long_documents import Door, LongAnswer
from app.chat.documents.part_sizes import PartSizes
from app.chat.documents.table_prompts import (
    AGAIN,
    MOST_COLUMNS,
    MOST_TABLES,
    OF_RESULT,
    TASK,
    query_prompt,
    query_schema,
    shown_columns,
    tables_prompt,
)
from app.chat.documents.table_request import TableRequest
from app.documents.table_evaluation import Stopped, evaluate
from app.documents.table_text import Column, Table, find_tables
from app.documents.tables import table_lines
from app.domain.deltas import (
    AnswerEnd,
    AnswerFailed,
    Delta,
    EndReason,
    PromptProgressDelta,
    SectionDelta,
    StepDelta,
    TextDelta,
    ThoughtDelta,
    WaitingDelta,
)
from app.domain.document_prompt import table_prompt
from app.domain.documents import NO_QUERY, NO_TABLE, SearchFault
from app.domain.parts import ErrorPart, TablePart
from app.domain.remote_fault import RemoteFaultKind
from app.domain.table_query import (
    QueryError,
    read_query,
)
from app.domain.table_result import TableResult, read_facts
from app.domain.table_words import facts_words
from app.engines.run import Waiting
from app.system.translation import tr
from app.system.worker import BackgroundWorker

_MOST_QUERY = 400  # tokens
_SHARE = 2  # one part of so many of the room is the tables, or the result
_TRIES = 2
T = TypeVar("T")


class TableAnswer(LongAnswer):
    """An answer that is written from the result of a query: `AnswerRun`."""

    def __init__(self, asked: TableRequest, door: Door) -> None:
        super().__init__(asked, door)
        self._table_request, self._found = asked, asked.found

    async def _steps(self, sizes: PartSizes) -> AsyncIterator[Delta]:
        """The result of a query, then the text."""
        asked = self._table_request
        if self._found is None:
            yield StepDelta(1, 2, query=True)
            tables = await self._work(lambda: find_tables(asked.files))
            if not tables:
                raise _failed(NO_TABLE)
            refused, found, tries, is_held = "", None, 0, True
            while tries < _TRIES:
                yield StepDelta(1, 2, query=True)
                shown = await self._shown_tables(tables, sizes.text)
                prompt = query_prompt(shown, len(tables), asked.question, asked.earlier, refused)
                text = ""
                schema = query_schema(shown) if is_held else ""
                try:
                    async for delta in self._told(
                        self._door.ask(prompt, most_tokens=_MOST_QUERY, schema=schema)
                    ):
                        match delta:
                            case TextDelta():
                                text += delta.text
                                yield replace(delta, text="", context_used=self._chat_tokens)
                            case ThoughtDelta():
                                yield TextDelta("", delta.generated_tokens, self._chat_tokens)
                            case AnswerEnd():
                                if delta.reason is EndReason.CANCELLED:
                                    self._cancelled = True
                            case PromptProgressDelta() | WaitingDelta():
                                yield delta
                            case _:
                                pass
                except AnswerFailed as failed:
                    if not is_held or failed.error.fault.kind is not RemoteFaultKind.REFUSED:
                        raise
                    is_held = False  # a server that knows no schemas is asked without one
                    continue
                tries += 1
                if not self._cancelled:
                    yield StepDelta(2, 2, query=True)
                    found = await self._work(partial(self._evaluated, text, tables))
                if self._cancelled:
                    yield self._used()
                    yield AnswerEnd(EndReason.CANCELLED)
                    return
                if isinstance(found, TablePart):
                    self._found = found
                    break
                refused = AGAIN.format(query=" ".join(text.split())[:1000], error=found)
            if self._found is None:
                raise _failed(NO_QUERY, str(found))
            yield SectionDelta(self._found)
        yield StepDelta(0, 0, query=True)
        async for delta in self._written(await self._of_result(self._found, sizes.text)):
            yield delta

    def _evaluated(self, text: str, tables: Sequence[Table]) -> TablePart | str:
        """The result of the query that a model wrote, or why there is none."""
        by_name = {table.name: table for table in tables}
        try:
            query = read_query(text, {name: _find(table) for name, table in by_name.items()})
            table = by_name[query.table]
            return result_part(evaluate(table, query, self._is_stopped), table)
        except QueryError as error:
            return str(error)
        except Stopped:
            return ""

    def _is_stopped(self) -> bool:
        return self._cancelled

    async def _work(self, call: Callable[[], T]) -> T:
        """What a call returns that may take long, made on a thread."""
        worker, waiting = BackgroundWorker("table"), Waiting[T | Exception]()

        def work() -> T | Exception:
            try:
                return call()
            except Exception as error:  # noqa: BLE001  (raised below, where the answer ends)
                return error

        worker.run(work, waiting.put)
        try:
            found = await waiting
        finally:
            worker.end()
        if isinstance(found, Exception):
            raise found
        return found

    # --- prompts --------------------------------------------------------------------------------

    async def _shown_tables(
        self, tables: Sequence[Table], room: int
    ) -> list[tuple[Table, list[Column]]]:
        """The tables with the columns that the model is shown: as many as there is room for."""
        room = room // _SHARE - await self._door.count(TASK)
        most = MOST_COLUMNS
        while True:
            question = self._table_request.question
            shown = [(each, shown_columns(each, question, most)) for each in tables[:MOST_TABLES]]
            if most <= 2 or await self._door.count(tables_prompt(shown)) <= room:
                return shown
            most = most * 2 // 3

    async def _of_result(self, part: TablePart, room: int) -> str:
        """The prompt for the answer, with as many rows of the result as there is room for."""
        head, line, *rows = part.text.split("\n")
        most = len(rows)
        while True:
            text = "\n".join((head, line, *rows[:most]))
            if most <= 1 or await self._door.count(text) <= room // _SHARE:
                break
            most //= 2
        notes = facts_words(read_facts(part.facts), most)
        read = table_prompt(part.name, part.query, text, notes)
        return f"{self._asked.wish}\n\n{OF_RESULT}\n\n{read}".lstrip()


def _failed(kind: str, about: str = "") -> AnswerFailed:
    return AnswerFailed(ErrorPart(SearchFault(about, kind)))


def _find(table: Table) -> Callable[[str], str | None]:
    def find(name: str) -> str | None:
        column = table.column(name)
        return column.name if column else None

    return find


def result_part(result: TableResult, table: Table) -> TablePart:
    """A result as it is stored in an answer."""
    query = result.query
    empty = tr("(empty)")
    rows = [
        [
            cell or (empty if not each.do.is_aggregate else "")
            for cell, each in zip(row, query.show, strict=True)
        ]
        for row in result.rows
    ]
    lines = table_lines([list(map(str, query.show)), *rows], len(query.show))
    used = {each.column for each in query.show} | {each.about.column for each in query.where}
    used |= {query.sort.column} if query.sort else set()
    names = tuple(each.name for each in table.columns if each.name in used)
    return TablePart("\n".join(lines), query.table, query.json, result.facts.json, names)
