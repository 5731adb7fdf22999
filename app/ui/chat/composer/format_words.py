"""Answer formats in words: their names, and what to write for each."""

from __future__ import annotations

from app.domain.chat_settings import AnswerFormat
from app.system.translation import tr


def full_name(format: AnswerFormat) -> str:
    """The name of a format."""
    match format:
        case AnswerFormat.FREE:
            return tr("Any text")
        case AnswerFormat.JSON:
            return tr("JSON")
        case AnswerFormat.SCHEMA:
            return tr("JSON schema")
        case AnswerFormat.CHOICES:
            return tr("List of choices")
        case AnswerFormat.REGEX:
            return tr("Regular expression")
        case AnswerFormat.GRAMMAR:
            return tr("Grammar")


def help_text(format: AnswerFormat) -> str:
    """What the answers are then, and what is to be written."""
    match format:
        case AnswerFormat.FREE:
            return tr("The model answers as it likes.")
        case AnswerFormat.JSON:
            return tr("Every answer is a JSON object or list.")
        case AnswerFormat.SCHEMA:
            return tr("Every answer is JSON that this JSON schema describes.")
        case AnswerFormat.CHOICES:
            return tr("Every answer is one of these lines.")
        case AnswerFormat.REGEX:
            return tr("Every answer matches this regular expression as a whole.")
        case AnswerFormat.GRAMMAR:
            return tr("Every answer matches this grammar, in GBNF or Lark.")


def example(format: AnswerFormat) -> str:
    """Shown in the empty field; the same in every language."""
    match format:
        case AnswerFormat.SCHEMA:
            return '{"type": "object", "properties": {"name": {"type": "string"}}}'
        case AnswerFormat.CHOICES:
            return "yes\nno"
        case AnswerFormat.REGEX:
            return "[0-9]{4}-[0-9]{2}-[0-9]{2}"
        case AnswerFormat.GRAMMAR:
            return 'root ::= "yes" | "no"'
        case _:
            return ""
