"""Words for queries over tables and their results, as the window and exported chats show them."""

from __future__ import annotations

from collections.abc import Sequence

from app.domain.parts import TablePart
from app.domain.table_query import Compare, Condition, Do, Expression, Query, QueryError, read_query
from app.domain.table_result import Facts, LeftOut, read_facts
from app.system.translation import number, tr, trn

_NUMBERS = (Do.COUNT, Do.SUM, Do.MEAN, Do.DISTINCT)


def expression_words(expression: Expression) -> str:
    """A column, or what is made of it, such as "sum of Amount"."""
    column = expression.column
    match expression.do:
        case Do.VALUE:
            return column
        case Do.YEAR:
            return tr("year of {column}", column=column)
        case Do.MONTH:
            return tr("month of {column}", column=column)
        case Do.COUNT if not column:
            return tr("number of rows")
        case Do.COUNT:
            return tr("number of cells in {column}", column=column)
        case Do.SUM:
            return tr("sum of {column}", column=column)
        case Do.MEAN:
            return tr("average of {column}", column=column)
        case Do.MIN:
            return tr("smallest {column}", column=column)
        case Do.MAX:
            return tr("largest {column}", column=column)
        case Do.DISTINCT:
            return tr("number of different {column}", column=column)


def condition_words(condition: Condition) -> str:
    """A condition, such as "Amount is more than 3"."""
    what, value = expression_words(condition.about), condition.value
    match condition.compare:
        case Compare.EQUAL:
            return tr("{what} is {value}", what=what, value=value)
        case Compare.OTHER:
            return tr("{what} is not {value}", what=what, value=value)
        case Compare.LESS:
            return tr("{what} is less than {value}", what=what, value=value)
        case Compare.AT_MOST:
            return tr("{what} is at most {value}", what=what, value=value)
        case Compare.MORE:
            return tr("{what} is more than {value}", what=what, value=value)
        case Compare.AT_LEAST:
            return tr("{what} is at least {value}", what=what, value=value)
        case Compare.CONTAINS:
            return tr("{what} contains “{value}”", what=what, value=value)
        case Compare.WITHOUT:
            return tr("{what} does not contain “{value}”", what=what, value=value)
        case Compare.EMPTY:
            return tr("{what} is empty", what=what)
        case Compare.FILLED:
            return tr("{what} is not empty", what=what)


def query_words(query: Query) -> str:
    """A query in one line, such as "sum of Amount by Region, where Year is 2024"."""
    keys = [expression_words(each) for each in query.show if not each.do.is_aggregate]
    made = [expression_words(each) for each in query.show if each.do.is_aggregate]
    words = ", ".join(made or keys)
    if made and keys:
        words = tr("{what} by {keys}", what=words, keys=", ".join(keys))
    if query.where:
        joined = condition_words(query.where[0])
        for each in query.where[1:]:
            both = {"first": joined, "second": condition_words(each)}
            joined = (
                tr("{first} or {second}", **both)
                if query.any_of
                else tr("{first} and {second}", **both)
            )
        words = tr("{what}, where {conditions}", what=words, conditions=joined)
    if query.sort is not None:
        by = {"what": words, "column": expression_words(query.sort)}
        words = (
            tr("{what}, largest first by {column}", **by)
            if query.largest_first
            else tr("{what}, smallest first by {column}", **by)
        )
    if query.limit:
        words = trn("{what}, the first one", "{what}, the first {count}", query.limit, what=words)
    return words


def stored_query(part: TablePart) -> Query | None:
    """The query of a stored result; None if another version wrote it."""
    try:
        return read_query(
            part.query, {part.name: lambda name: name if name in part.columns else None}
        )
    except QueryError:
        return None


def table_words(part: TablePart) -> str:
    """The row of a result: the table, and the query in words."""
    query = stored_query(part)
    return tr("{name}: {query}", name=part.name, query=query_words(query)) if query else part.name


def result_text(part: TablePart) -> str:
    """A result as Markdown, with the names of its columns in the language of the window."""
    query, lines = stored_query(part), part.text.split("\n")
    if query is None or len(lines) < 2:
        return part.text
    names = [expression_words(each).replace("|", "\\|") for each in query.show]
    marks = ["---:" if each.do in _NUMBERS else "---" for each in query.show]
    head = (f"| {' | '.join(cells)} |" for cells in (names, marks))
    return "\n".join((*head, *lines[2:]))


def result_notes(part: TablePart) -> list[str]:
    """What has to be known about a result, each a sentence: nothing is left out silently."""
    return facts_words(read_facts(part.facts), part.text.count("\n") - 1)


def facts_words(facts: Facts, shown: int) -> list[str]:
    """The same, of a result of which so many rows are shown."""
    used = trn(
        "{count} row of {all} was used.",
        "{count} rows of {all} were used.",
        facts.used,
        all=number(facts.rows),
    )
    made = [used]
    if facts.found > shown:
        made.append(
            tr(
                "Shown are {shown} of {all} rows of the result.",
                shown=number(shown),
                all=number(facts.found),
            )
        )
    if facts.ties:
        made.append(
            trn(
                "{count} further row has the same value as the last one.",
                "{count} further rows have the same value as the last one.",
                facts.ties,
            )
        )
    made += [_left_out_words(each) for each in facts.left_out]
    made += [
        tr(
            "“{text}” in {column} was read as {value}.",
            text=each.text,
            column=each.column,
            value=each.value,
        )
        for each in facts.readings
    ]
    if facts.totals:
        made.append(
            trn(
                "{count} row has the totals of others and was left out: “{name}”.",
                "{count} rows have the totals of others and were left out, such as “{name}”.",
                facts.totals,
                name=facts.total_name,
            )
        )
    if facts.like_totals:
        made.append(
            trn(
                "{count} row calls itself a total and was used like any other.",
                "{count} rows call themselves totals and were used like any other.",
                facts.like_totals,
            )
        )
    if facts.unnamed:
        made.append(tr("No row names the columns: all rows were used."))
    if facts.titles:
        made.append(
            trn(
                "{count} row above the names of the columns was left out.",
                "{count} rows above the names of the columns were left out.",
                facts.titles,
            )
        )
    if facts.rounded:
        made.append(tr("Averages are rounded."))
    if facts.as_shown:
        made.append(tr("Numbers are taken as the sheet shows them."))
    return made


def _left_out_words(left: LeftOut) -> str:
    column = left.column
    if left.compared:
        return trn(
            "{count} cell in {column} could not be compared.",
            "{count} cells in {column} could not be compared.",
            left.others,
            column=column,
        )
    counts: list[str] = []
    if left.empty:
        counts.append(trn("{count} empty cell", "{count} empty cells", left.empty))
    if left.others:
        other = (
            trn("{count} that is no date", "{count} that are no dates", left.others)
            if left.is_date
            else trn("{count} that is no number", "{count} that are no numbers", left.others)
        )
        counts.append(other)
    if left.units:
        counts.append(
            trn("{count} not in {unit}", "{count} not in {unit}", left.units, unit=left.unit)
        )
    words = tr("Left out in {column}: {counts}", column=column, counts=", ".join(counts))
    named = [each for each in left.examples if each]
    if not named:
        return f"{words}."
    return tr("{words} ({examples}).", words=words, examples=_quoted(named))


def _quoted(texts: Sequence[str]) -> str:
    return ", ".join(tr("“{text}”", text=each) for each in texts)
