"""Values in tool calls: JSON, Python literals and plain texts, read from text that may be cut.

A reader raises Incomplete where more text may follow, NotACall where no text could complete it.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Mapping
from typing import Any, cast

_DEEPEST = 100  # nested brackets
_LONGEST_PYTHON = 200_000  # characters of a call as Python code
_TOKENS = {
    False: re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]|"', re.DOTALL),
    True: re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[\[\]{}()]|["']""", re.DOTALL),
}
_MARKS = re.compile(r"""\\.?|[\[\]{}()"']""", re.DOTALL)
_PAIRS = {"]": "[", "}": "{", ")": "("}
_NAMES: dict[str, Any] = {"true": True, "false": False, "null": None, "none": None}
_TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
GEMMA_QUOTE = '<|"|>'

Schema = Mapping[str, Any]


class Incomplete(Exception):
    """The text ends within a call."""


class NotACall(Exception):
    """The text is no call, whatever follows."""


class Depth:
    """How deep in brackets a growing text ends; so that it is not read again for every piece."""

    def __init__(self, text: str, *, python: bool = False) -> None:
        self._quotes = "\"'" if python else '"'
        self._depth, self._quote, self._is_escaped = 0, "", False
        self.push(text)

    def push(self, text: str) -> bool:
        """Add a piece; returns whether the text ends outside of all brackets."""
        self.closing(text)
        return self._depth <= 0 and not self._quote

    def closing(self, text: str) -> int:
        """Add a piece; returns where in it the outermost bracket is closed first; -1: nowhere."""
        begin = 1 if self._is_escaped and text else 0
        self._is_escaped = self._is_escaped and not text
        closed = -1
        for found in _MARKS.finditer(text, begin):
            letter = found[0]
            if self._quote:
                if letter[0] == "\\":
                    self._is_escaped = len(letter) == 1
                elif letter == self._quote:
                    self._quote = ""
            elif letter in self._quotes:
                self._quote = letter
            elif letter in "[{(":
                self._depth += 1
            elif letter in "]})":
                self._depth -= 1
                if self._depth <= 0 and closed < 0:
                    closed = found.end()
        return closed


def balanced_end(text: str, at: int, *, python: bool = False) -> int:
    """The end of the value whose opening bracket is at `at`."""
    opened: list[str] = []
    for found in _TOKENS[python].finditer(text, at):
        token = found[0]
        if token in "[{(":
            opened.append(token)
            if len(opened) > _DEEPEST:
                raise NotACall
        elif token in "]})":
            if not opened or opened.pop() != _PAIRS[token]:
                raise NotACall
            if not opened:
                return found.end()
        elif len(token) == 1:  # a string without end
            raise Incomplete
    raise Incomplete


def read_json(text: str, at: int) -> tuple[Any, str, int]:
    """The object or array at `at`: its value, its JSON text, its end. Wrong quotes are mended."""
    if at >= len(text):
        raise Incomplete
    if text[at] not in "{[":
        raise NotACall
    end = balanced_end(text, at)
    raw = text[at:end]
    try:
        value = _strict(raw)
    except (ValueError, RecursionError):
        value = _lenient(raw)
        return value, dumped(value), end
    return value, raw, end


def _strict(raw: str) -> Any:
    return json.loads(raw, parse_constant=_refuse, object_pairs_hook=_without_twins)


def _lenient(raw: str) -> Any:
    """A value with bare line ends in strings, or one in Python's syntax."""
    try:
        return json.loads(raw, strict=False, parse_constant=_refuse)
    except (ValueError, RecursionError):
        pass
    return python_literal(raw)


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key twice")
    return made


def dumped(value: Any) -> str:
    """A value as JSON text."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        raise NotACall from None


# --- texts by schema ----------------------------------------------------------------------------


def typed(text: str, schema: Any, root: Any = None) -> Any:
    """The value of an argument that is written as plain text, by the types its schema allows."""
    types = types_of(schema, root)
    if types == {"string"}:
        return text
    value, is_value = _plain(text.strip())
    if not is_value:
        return text
    if types is None or _is_one_of(value, types):
        return value
    return text if "string" in types else value


def _plain(text: str) -> tuple[Any, bool]:
    """The value of a text, and whether it is one."""
    if text.casefold() in _NAMES:
        return _NAMES[text.casefold()], True
    try:
        return _strict(text), True
    except (ValueError, RecursionError):
        pass
    if text[:1] not in "[{":
        return text, False
    try:
        return read_json(text, 0)[0], balanced_end(text, 0) == len(text)
    except (Incomplete, NotACall):
        return text, False


def _is_one_of(value: Any, types: set[str]) -> bool:
    if isinstance(value, str):
        return "string" in types
    is_flag = isinstance(value, bool)
    return any(
        isinstance(value, _TYPES.get(one, ())) and is_flag == (one == "boolean") for one in types
    )


def types_of(schema: Any, root: Any = None, depth: int = 0) -> set[str] | None:
    """The types that a schema allows; None: any."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return None
    given = cast("Mapping[str, Any]", schema)
    root = given if root is None else root
    if isinstance(reference := given.get("$ref"), str) and reference.startswith("#/"):
        target: Any = root
        for step in reference[2:].split("/"):
            target = cast("Any", target).get(step) if isinstance(target, Mapping) else None
        return types_of(target, root, depth + 1)
    kind = given.get("type")
    if isinstance(kind, str):
        return {kind}
    if isinstance(kind, list):
        return {str(one) for one in cast("list[Any]", kind)}
    if isinstance(values := given.get("enum"), list):
        return {_type_name(one) for one in cast("list[Any]", values)}
    if "const" in given:
        return {_type_name(given["const"])}
    found: set[str] = set()
    for choice in given.get("anyOf") or given.get("oneOf") or ():
        inner = types_of(choice, root, depth + 1)
        if inner is None:
            return None
        found |= inner
    return found or None


def _type_name(value: Any) -> str:
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "boolean"
    order = ("null", "integer", "number", "array", "object")
    return next(one for one in order if isinstance(value, _TYPES[one]))


# --- Python -------------------------------------------------------------------------------------


def _parsed_python(text: str) -> ast.Expression:
    if len(text) > _LONGEST_PYTHON:
        raise NotACall
    try:
        return ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise NotACall from None


def python_calls(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The calls in a list of these, as Python writes it: names and arguments."""
    tree = _parsed_python(text).body
    made: list[tuple[str, dict[str, Any]]] = []
    for one in tree.elts if isinstance(tree, ast.List) else ():
        if not isinstance(one, ast.Call) or one.args or any(k.arg is None for k in one.keywords):
            raise NotACall
        arguments = {str(word.arg): python_value(word.value) for word in one.keywords}
        made.append((ast.unparse(one.func), arguments))
    if not made:
        raise NotACall
    return made


def python_literal(text: str) -> Any:
    """The value of one literal. Raises NotACall."""
    return python_value(_parsed_python(text).body)


def python_value(node: ast.expr) -> Any:
    """The value of a literal, with JSON's names for constants too."""
    match node:
        case ast.Constant(value=bool() | int() | str() | None as value):
            return value
        case ast.Constant(value=float() as value) if math.isfinite(value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [python_value(one) for one in items]
        case ast.Dict(keys=keys, values=values):
            names = [None if key is None else python_value(key) for key in keys]
            if not all(isinstance(name, str) for name in names):
                raise NotACall
            return dict(zip(names, map(python_value, values), strict=True))
        case _:
            raise NotACall


# --- Gemma 4 ------------------------------------------------------------------------------------


def read_gemma(text: str, at: int, depth: int = 0) -> tuple[Any, int]:
    """The value at `at`, in which strings have quotes of their own and keys have none; its end."""
    if depth > _DEEPEST:
        raise NotACall
    at = _skip(text, at)
    rest = text[at : at + len(GEMMA_QUOTE)]
    if rest == GEMMA_QUOTE:
        begin = at + len(GEMMA_QUOTE)
        end = text.find(GEMMA_QUOTE, begin)
        if end < 0:
            raise Incomplete
        return text[begin:end], end + len(GEMMA_QUOTE)
    if GEMMA_QUOTE.startswith(rest):
        raise Incomplete
    if text[at] not in "{[":
        return _gemma_scalar(text, at)
    is_object, close = text[at] == "{", "}" if text[at] == "{" else "]"
    at, items, pairs = _skip(text, at + 1), list[Any](), dict[str, Any]()
    while text[at] != close:
        key = ""
        if is_object:
            key, at = gemma_key(text, at)
        value, at = read_gemma(text, at, depth + 1)
        items.append(value)
        pairs[key] = value
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
        elif text[at] != close:
            raise NotACall
    return (pairs if is_object else items), at + 1


def gemma_key(text: str, at: int) -> tuple[str, int]:
    """The name of the value that `at` begins, and where it is. Raises Incomplete and NotACall."""
    if text.startswith(GEMMA_QUOTE, at):
        value, at = read_gemma(text, at)
        at = _skip(text, at)
        if text[at] != ":":
            raise NotACall
        return value, at + 1
    found = re.compile(r"([^:{}\[\],]*)(.?)", re.DOTALL).match(text, at)
    assert found is not None
    if not found[2]:
        raise Incomplete
    if found[2] != ":" or not found[1].strip():
        raise NotACall
    return found[1].strip().strip("\"'"), found.end()


def _gemma_scalar(text: str, at: int) -> tuple[Any, int]:
    if text[at] == '"':
        found = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL).match(text, at)
        if found is None:
            raise Incomplete
        try:
            return json.loads(found[0], strict=False), found.end()
        except ValueError:
            raise NotACall from None
    found = re.compile(r"[^,{}\[\]<]*").match(text, at)
    assert found is not None
    if found.end() == len(text):
        raise Incomplete
    value = found[0].strip()
    if not value:
        raise NotACall
    return _plain(value)[0], found.end()


def _skip(text: str, at: int) -> int:
    """The next place without white space."""
    while at < len(text) and text[at].isspace():
        at += 1
    if at >= len(text):
        raise Incomplete
    return at
