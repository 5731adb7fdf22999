"""What a model reads of tables: their columns, examples of queries, and the result of its query.

The words are English, as those of documents in prompts are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from app.documents.table_text import Column, ColumnKind, Table
from app.domain.table_query import MOST_ROWS, Compare, Condition, Do, Expression, Query

MOST_COLUMNS = 60  # that a model is shown
MOST_TABLES = 12
_SHOWN_CELL = 32  # characters of a value that a model is shown
TASK = (
    "Write a query over a table as JSON, which a program will run to answer the question. Do not"
    " answer the question, and do not calculate anything yourself.\n"
    '"show" lists what the result has: columns, or "count" (of rows), "sum of", "mean of", "min of",'
    ' "max of" or "distinct of" a column; the columns beside these are what is grouped by. "year of"'
    ' and "month of" a date can be grouped by. "where" lists the conditions of the rows, and of'
    ' groups if their column is such as "count". "match" is "all" or "any" of these. "sort" is one'
    ' of what is shown, or "". "limit" is how many rows are wanted, or 0 for all.'
)
AGAIN = "Your last query was {query}\nIt does not fit: {error} Write another one."
OF_RESULT = (
    "A program has looked this up in the table with the query below. The result is complete and"
    " exact, as far as the notes do not say otherwise. Answer the question from it: use its numbers"
    " as they are, and calculate nothing. Say which cells or rows were left out, if any were."
)


def query_prompt(
    shown: Sequence[tuple[Table, list[Column]]],
    count: int,
    question: str,
    earlier: str,
    refused: str,
) -> str:
    """What asks for a query over one of `count` tables, of which some are shown.

    `earlier` is the question before, and `refused` what is wrong with the last query; both may be "".
    """
    left_out = count - len(shown)
    more = f"{left_out} further tables are not shown." if left_out else ""
    asks = f"Question: {question}\nQuery:"
    pieces = (TASK, tables_prompt(shown), more, _examples(shown), earlier, refused, asks)
    return "\n\n".join(filter(None, pieces))


def shown_columns(table: Table, question: str, most: int) -> list[Column]:
    """The columns that a model is shown: those that the question names, then the first ones."""
    if len(table.columns) <= most:
        return list(table.columns)
    words = {word for word in re.findall(r"\w+", question.casefold()) if len(word) > 2}

    def named(column: Column) -> bool:
        return not words.isdisjoint(re.findall(r"\w+", column.name.casefold()))

    ranked = sorted(table.columns, key=lambda each: not named(each))[:most]
    return [each for each in table.columns if each in ranked]


def tables_prompt(shown: Sequence[tuple[Table, list[Column]]]) -> str:
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


def query_schema(shown: Sequence[tuple[Table, list[Column]]]) -> str:
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
