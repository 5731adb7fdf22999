"""The table of metadata keys agrees with what the engine reads, and knows every key there is."""

from __future__ import annotations

import ast
import inspect
from functools import cache
from pathlib import Path

import gguf

import engine
from metadata_keys import IGNORED, READ, REFUSED

# Keys whose names are in the source for another reason than to be read.
_NAMED_ONLY = {
    "{arch}.posnet.block_count": "left out of files that another program saved",
    "{arch}.wkv.head_size": "left out of files that another program saved",
    "{arch}.token_shift_count": "left out of files that another program saved",
    "{arch}.router_logit_softcapping": "left out of files that another program saved",
    "{arch}.block_size": "a field of formats",
}


@cache
def _texts() -> frozenset[str]:
    """Every text in the engine's source, and the constant parts of texts that are composed."""
    folder = Path(engine.__file__).parent
    return frozenset(
        node.value
        for file in folder.rglob("*.py")
        if "server" not in file.parts  # which tells clients of keys, and reads none
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _is_named(part: str) -> bool:
    return any(text == part or text.endswith(f".{part}") for text in _texts())


def _known(kind: type) -> set[str]:
    found: set[str] = set()
    for name, value in vars(kind).items():
        if isinstance(value, str) and not name.startswith("_"):
            found.add(value)
        elif inspect.isclass(value):
            found |= _known(value)
    return found


def test_every_key_of_the_format_is_in_the_table() -> None:
    assert _known(gguf.Keys) <= {*READ, *IGNORED, *REFUSED}
    assert not set(READ) & set(IGNORED)
    assert not set(READ) & set(REFUSED)
    assert not set(IGNORED) & set(REFUSED)


def test_the_source_names_the_keys_that_are_read_and_no_others() -> None:
    assert [key for key, part in READ.items() if part not in key or not _is_named(part)] == []
    unread = {*IGNORED, *REFUSED}
    named = {key for key in unread if _is_named(key.removeprefix("{arch}."))}
    assert named == set(_NAMED_ONLY)
