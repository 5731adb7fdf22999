"""Answers from tables: the model writes a query, the app evaluates it, the model answers from that.

The model sees the columns with a few of their values, and never adds up numbers itself. A query that
does not fit the table is asked for once again, with what is wrong. The result is stored as a part of
the answer before its text, so that an answer that was stopped goes on from it.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from app.chat.long_documents import Door, LongAnswer
from app.chat.part_sizes import PartSizes
from app.chat.table_request import TableRequest
from app.documents.table_evaluation import Stopped, evaluate
from app.documents.table_text import Column, ColumnKind, Table, find_tables
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
    MOST_ROWS,
    Compare,
    Condition,
    Do,
    Expression,
    Query,
    QueryError,
    read_query,
)
from app.domain.table_result import TableResult, read_facts
from app.domain.table_words import facts_words
from app.engines.run import Waiting
from app.system.translation import tr
from app.system.worker import BackgroundWorker

_MOST_QUERY = 400  # tokens
_MOST_COLUMNS = 60  # that a model is shown
_MOST_TABLES = 12
_SHOWN_CELL = 32  # characters of a value that a model is shown
_SHARE = 2  # one part of so many of the room is the tables, or the result
_TRIES = 2
_TASK = (
    "Write a query over a table as JSON, which a program will run to answer the question. Do not"
    " answer the question, and do not calculate anything yourself.\n"
    '"show" lists what the result has: columns, or "count" (of rows), "sum of", "mean of", "min of",'
    ' "max of" or "distinct of" a column; the columns beside these are what is grouped by. "year of"'
    ' and "month of" a date can be grouped by. "where" lists the conditions of the rows, and of'
    ' groups if their column is such as "count". "match" is "all" or "any" of these. "sort" is one'
    ' of what is shown, or "". "limit" is how many rows are wanted, or 0 for all.'
)
_AGAIN = "Your last query was {query}\nIt does not fit: {error} Write another one."
_OF_RESULT = (
    "A program has looked this up in the table with the query below. The result is complete and"
    " exact, as far as the notes do not say otherwise. Answer the question from it: use its numbers"
    " as they are, and calculate nothing. Say which cells or rows were left out, if any were."
)
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
                prompt = await self._query_prompt(tables, shown, refused)
                text = ""
                schema = _schema(shown) if is_held else ""
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
                refused = _AGAIN.format(query=" ".join(text.split())[:1000], error=found)
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
        room = room // _SHARE - await self._door.count(_TASK)
        most = _MOST_COLUMNS
        while True:
            question = self._table_request.question
            shown = [(each, _columns(each, question, most)) for each in tables[:_MOST_TABLES]]
            if most <= 2 or await self._door.count(_described(shown)) <= room:
                return shown
            most = most * 2 // 3

    async def _query_prompt(
        self, tables: Sequence[Table], shown: Sequence[tuple[Table, list[Column]]], refused: str
    ) -> str:
        asked = self._table_request
        left_out = len(tables) - len(shown)
        more = f"{left_out} further tables are not shown." if left_out else ""
        question = f"Question: {asked.question}\nQuery:"
        pieces = (
            _TASK,
            _described(shown),
            more,
            _examples(shown),
            asked.earlier,
            refused,
            question,
        )
        return "\n\n".join(filter(None, pieces))

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
        return f"{self._asked.wish}\n\n{_OF_RESULT}\n\n{read}".lstrip()


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


# --- what a model is shown ------------------------------------------------------------------------


def _columns(table: Table, question: str, most: int) -> list[Column]:
    """The columns that a model is shown: those that the question names, then the first ones."""
    if len(table.columns) <= most:
        return list(table.columns)
    words = {word for word in re.findall(r"\w+", question.casefold()) if len(word) > 2}

    def named(column: Column) -> bool:
        return not words.isdisjoint(re.findall(r"\w+", column.name.casefold()))

    ranked = sorted(table.columns, key=lambda each: not named(each))[:most]
    return [each for each in table.columns if each in ranked]


def _described(shown: Sequence[tuple[Table, list[Column]]]) -> str:
    """Tables with their columns, as a model reads them."""
    return "\n\n".join(_description(table, columns) for table, columns in shown)


def _description(table: Table, columns: Sequence[Column]) -> str:
    lines = [
        f"Table {json.dumps(table.name, ensure_ascii=False)}, {table.row_count} rows. Columns:"
    ]
    for each in columns:
        examples = ", ".join(_short(value) for value in each.examples)
        kind = f"{each.kind.value}, such as {examples}" if examples else each.kind.value
        lines.append(f"- {json.dumps(each.name, ensure_ascii=False)}: {kind}")
    if (more := len(table.columns) - len(columns)) > 0:
        lines.append(f"and {more} further columns")
    return "\n".join(lines)


def _short(value: str) -> str:
    text = " ".join(value.replace("<br>", " ").split())
    return text if len(text) <= _SHOWN_CELL else f"{text[:_SHOWN_CELL]}…"


def _expressions(columns: Sequence[Column]) -> list[str]:
    """All that a query can show of columns."""
    made: list[Expression] = []
    for each in columns:
        made.append(Expression(each.name))
        kinds = {
            ColumnKind.NUMBER: (Do.SUM, Do.MEAN, Do.MIN, Do.MAX),
            ColumnKind.DATE: (Do.YEAR, Do.MONTH, Do.MIN, Do.MAX),
        }.get(each.kind, ())
        made += [Expression(each.name, do) for do in (*kinds, Do.DISTINCT)]
    return [Do.COUNT.value, *map(str, made)]


def _schema(shown: Sequence[tuple[Table, list[Column]]]) -> str:
    """The JSON schema of a query over the shown tables."""
    columns = {each.name: each for _, several in shown for each in several}
    expressions = list(dict.fromkeys(_expressions(list(columns.values()))))
    condition: dict[str, object] = {
        "column": {"$ref": "#/$defs/expression"},
        "is": {"enum": [each.value for each in Compare]},
        "value": {"type": "string", "maxLength": 60},
    }
    properties: dict[str, object] = {}
    if len(shown) > 1:
        properties["table"] = {"enum": [table.name for table, _ in shown]}
    properties |= {
        "show": {
            "type": "array", "minItems": 1, "maxItems": 5, "items": {"$ref": "#/$defs/expression"},
        },
        "where": {"type": "array", "maxItems": 3, "items": _object(condition)},
        "match": {"enum": ["all", "any"]},
        "sort": {"enum": ["", *expressions]},
        "order": {"enum": ["largest first", "smallest first"]},
        "limit": {"type": "integer", "minimum": 0, "maximum": MOST_ROWS},
    }  # fmt: skip
    schema = _object(properties) | {"$defs": {"expression": {"enum": expressions}}}
    return json.dumps(schema, ensure_ascii=False)


def _object(properties: dict[str, object]) -> dict[str, object]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _examples(shown: Sequence[tuple[Table, list[Column]]]) -> str:
    """Questions with their queries, about columns of the first table."""
    table, columns = shown[0]
    name = table.name if len(shown) > 1 else ""
    texts = [each for each in columns if each.kind is ColumnKind.TEXT and each.examples]
    numbers = [each for each in columns if each.kind is ColumnKind.NUMBER]
    count = Expression("", Do.COUNT)
    made = [("How many rows are there?", Query((count,), table=name))]
    if texts:
        text, value = Expression(texts[0].name), _short(texts[0].examples[0])
        where = (Condition(text, Compare.EQUAL, value),)
        made.append((f"How many have the {text} {value}?", Query((count,), where, table=name)))
    if texts and numbers:
        text, number = Expression(texts[0].name), Expression(numbers[0].name)
        total = Expression(number.column, Do.SUM)
        made += [
            (f"The total {number} of each {text}?",
             Query((text, total), sort=total, largest_first=True, table=name)),
            (f"Which row has the largest {number}?",
             Query((text, number), sort=number, largest_first=True, limit=1, table=name)),
        ]  # fmt: skip
    lines = (f"Question: {question}\nQuery: {_full(query)}" for question, query in made)
    return "Examples:\n" + "\n".join(lines)


def _full(query: Query) -> str:
    """A query with all its fields, as the schema has them."""
    usual = {"match": "all", "sort": "", "order": "largest first", "limit": 0}
    own: dict[str, object] = json.loads(query.json)
    first = {key: value for key, value in own.items() if key not in usual}
    return json.dumps(first | usual | own, ensure_ascii=False)
