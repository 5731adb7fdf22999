"""Files that the command line reads: texts, and the constraint of an answer."""

from __future__ import annotations

import json
from pathlib import Path

from engine.cli.options import Options
from engine.errors import RequestError
from engine.messages import Constraint, ConstraintKind

_GRAMMARS = {".gbnf": ConstraintKind.GBNF, ".lark": ConstraintKind.LARK}  # by suffix


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, without newline translation. Raises RequestError."""
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise RequestError(f"The file {path} is not UTF-8 text.", "Convert it to UTF-8.") from None
    except OSError as error:
        raise RequestError(
            f"The file {path} cannot be read: {error.strerror}.", "Check the path."
        ) from None


def read_texts(path: Path) -> list[str]:
    """The strings of a JSON array in a file. Raises RequestError."""
    try:
        texts = json.loads(read_text(path).removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        texts = None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise RequestError(
            f"The file {path} is not a JSON array of strings.", 'Write ["one", "two"].'
        )
    return texts


def constraint(options: Options) -> Constraint | None:
    """The constraint of --grammar, --json-schema, --regex or --choices, if given."""
    if options.grammar is not None:
        path = Path(options.grammar)
        kind = _GRAMMARS.get(path.suffix.lower())
        if kind is None:
            raise RequestError(
                f"--grammar {options.grammar!r} is of an unknown kind.",
                "Name a GBNF grammar .gbnf, and a Lark grammar .lark.",
            )
        return Constraint(kind, read_text(path).removeprefix("\ufeff"))
    if options.json_schema is not None:
        text = read_text(Path(options.json_schema)).removeprefix("\ufeff")
        return Constraint(ConstraintKind.JSON_SCHEMA, text)
    if options.regex is not None:
        return Constraint(ConstraintKind.REGEX, options.regex)
    if options.choices is not None:
        return Constraint(ConstraintKind.CHOICES, json.dumps(options.choices.split(",")))
    return None
