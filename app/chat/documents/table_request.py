"""What an answer from tables is made from: the tables, the question, and the result so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.chat.documents.long_documents import LongRequest
from app.domain.document_prompt import earlier_prompt
from app.domain.documents import Reads
from app.domain.message import Message
from app.domain.parts import Parts, TablePart, files, prompt_text, typed_text
from engine import Role


@dataclass(frozen=True, slots=True)
class TableRequest(LongRequest):
    """What an answer from tables is made from."""

    question: str = ""  # what the user typed
    found: TablePart | None = None  # of the answer so far
    earlier: str = ""  # the question before, with its query, if this one may follow it


def table_request(messages: Sequence[Message], so_far: Parts) -> TableRequest | None:
    """What an answer to the last of the messages is made from; None: it is not from tables.

    They are those of the last question with files.
    """
    question = messages[-1] if messages else None
    if question is None or question.role is not Role.USER:
        return None
    asked = [message for message in messages if message.role is Role.USER]
    last = next((message for message in reversed(asked) if files(message.parts)), None)
    found = tuple(part for part in files(last.parts if last else ()) if part.reads is Reads.TABLES)
    if not found:
        return None
    done = next((part for part in so_far if isinstance(part, TablePart)), None)
    earlier = ""
    if last is not question:
        queries = [p for m in messages for p in m.parts if isinstance(p, TablePart)]
        words = typed_text(asked[-2].parts).strip()
        earlier = earlier_prompt(words, queries[-1].query if queries else "")
    return TableRequest(
        found, prompt_text(question.parts), (), typed_text(so_far),
        typed_text(question.parts).strip(), done, earlier,
    )  # fmt: skip
