"""Scenes of tables that are asked by a query: results, what is left out, no query, languages."""

from __future__ import annotations

from pathlib import Path

from app.documents.table_evaluation import evaluate
from app.documents.table_text import find_tables
from app.domain.documents import NO_QUERY, DocumentKind, Reads, SearchFault
from app.domain.message import MessageState
from app.domain.parts import ErrorPart, FilePart, Part, TablePart, TextPart
from app.domain.table_query import read_query
from app.store.store import Store
from engine import Role
from scenes_chat import NAME, Scene, ready
from stage import Stage, flush

_SUM = sum(n * 37 % 500 for n in range(240) if n % 9 != 7) + sum(n % 9 != 7 for n in range(240)) / 2
_ROWS = "\n".join(
    f"| {('North', 'South', 'East')[n % 3]} | {('Ada', 'Bo', 'Cy', 'Dee')[n % 4]} |"
    f" {'open' if n % 9 == 7 else f'{n * 37 % 500},50'} | {n % 28 + 1:02}.0{n % 6 + 1}.2026 |"
    for n in range(240)
)
_FILE = FilePart(
    "Orders 2026.csv",
    "| Region | Customer | Amount | Date |\n| --- | --- | --- | --- |\n"
    f"{_ROWS}\n| Total |  | {_SUM:.2f} | |".replace(f"{_SUM:.2f}", f"{_SUM:.2f}".replace(".", ",")),
    "a" * 64,
    DocumentKind.TABLE,
    reads=Reads.TABLES,
)
_QUERY = (
    '{"show": ["Region", "sum of Amount", "count"], "where": [{"column": "Date", "is": ">=",'
    ' "value": "2026-02"}], "sort": "sum of Amount", "order": "largest first"}'
)
_SAID = (
    "**East** has the largest total, **South** the smallest. Cells with “open” instead of an amount"
    " were left out."
)


def _result() -> TablePart:
    from app.chat.documents.table_answers import result_part

    [table] = find_tables([_FILE])
    query = read_query(_QUERY, {table.name: lambda name: name if table.column(name) else None})
    return result_part(evaluate(table, query, lambda: False), table)


def show(
    stage: Stage, answer: tuple[Part, ...], error: ErrorPart | None = None, question: str = ""
) -> None:
    """Open a chat with a question about a table."""
    store = Store.open(stage.folder / "conversations.sqlite")
    chat = store.create_conversation("Orders by region").id
    asked = question or "Which region has ordered most since February?"
    own = store.add_message(chat, None, Role.USER, (_FILE, TextPart(asked))).id
    said = store.add_message(chat, own, Role.ASSISTANT, answer, MessageState.STREAMING, NAME).id
    state = MessageState.FAILED if error else MessageState.COMPLETE
    store.finish(said, state, error=error, generated_tokens=40, seconds=3.0)
    store.close()
    ready(stage)
    stage.controller.open_conversation(chat)
    stage.wait_until_idle()


def table_result(stage: Stage) -> None:
    show(stage, (_result(), TextPart(_SAID)))


def table_query(stage: Stage) -> None:
    """The query is unfolded."""
    show(stage, (_result(), TextPart(_SAID)))
    view = stage.window.transcript
    view.message_layout.toggle_row(1, 0)
    view.scroller.scroll_to(0)
    flush()


def table_failed(stage: Stage) -> None:
    show(stage, (), ErrorPart(SearchFault('There is no column "Price".', NO_QUERY)))


def table_card(stage: Stage) -> None:
    """The card of the file, where its tables can be chosen."""
    ready(stage)
    path = Path(stage.folder) / "orders.md"
    path.write_text(_FILE.text, encoding="utf-8")
    stage.controller.attachments.attach([path])
    for _ in range(3):
        stage.wait_until_idle()
    stage.controller.attachments.read_by_parts(Reads.TABLES)
    flush()
    stage.window.attaching.viewer.show_attachment(1)
    flush()


def translate_languages(stage: Stage) -> None:
    """The languages that a document can be translated into."""
    ready(stage)
    stage.window.composer.set_text("")
    stage.window.composer.editor.setFocus()
    stage.window.prompt_list._choose_language()
    flush()


SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (table_result, table_query, table_failed, table_card, translate_languages)
}
