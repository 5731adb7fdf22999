"""Jinja for templates from strangers: nothing dangerous is reachable, and everything is metered.

Jinja's sandbox keeps a template from Python's internals, not from `"x" * 10 ** 9` or from loops in
loops. So each loop turn, call, filter, operator and literal reports here before it can cost much:
steps, processor time, bytes made, and the size of each value. No thread and no signal is needed,
since no single operation that passes can take long.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import BuiltinMethodType
from typing import Any

import jinja2
from jinja2 import nodes, sandbox
from jinja2.ext import Extension
from jinja2.filters import FILTERS, make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.utils import Namespace, pass_context
from jinja2.visitor import NodeTransformer

from engine.chat.budget import MAX_INTEGER, MAX_ITEMS, Budget, Exhausted

MAX_SOURCE = 64_000  # characters of a template; the longest known has 20,000
_MAX_NODES = 12_000  # syntax nodes of a template; the longest known has 1,300
_MAX_DEPTH = 50  # calls inside calls
_MAX_WIDTH = 1_000  # characters of padding, or of a set of characters to strip
_WIDE_FORMAT = re.compile(r"%(\([^)]*\))?[-+ #0]*(\*|\d{4,}|\d*\.(\*|\d{4,}))")
_TEXT_METHODS = """
    capitalize casefold count endswith find format format_map index isalnum isalpha isascii
    isdecimal isdigit islower isnumeric isspace istitle isupper join lower lstrip partition
    removeprefix removesuffix replace rfind rindex rpartition rsplit rstrip split splitlines
    startswith strip swapcase title upper
"""
_METHODS: tuple[tuple[type, frozenset[str]], ...] = (
    (str, frozenset(_TEXT_METHODS.split())),
    (list, frozenset({"copy", "count", "index"})),
    (tuple, frozenset({"count", "index"})),
    (dict, frozenset({"copy", "get", "items", "keys", "values"})),
)
_FILTERS = """
    abs attr capitalize count d default dictsort e escape first float groupby int items last length
    list lower map max min reject rejectattr reverse safe select selectattr sort string title
    truncate unique upper wordcount
"""


class Refused(jinja2.TemplateError):
    """The template called `raise_exception`; the message is its own."""


class QuietNamespace(Namespace):
    """`namespace()` that does not write out what it holds, which could be itself many times."""

    def __repr__(self) -> str:
        return "namespace"


class GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's words for training; here it changes nothing."""

    tags = {"generation"}  # noqa: RUF012 (the base class declares it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The nodes between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Meter(NodeTransformer):
    """Rewrites a template so that loops, literals, `~` and slices report to the environment."""

    def __init__(self) -> None:
        self.count = 0

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        self.count += 1
        if self.count > _MAX_NODES:
            raise Exhausted("is too long")
        return super().generic_visit(node, *args, **kwargs)

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_reported("turn", node), lineno=node.lineno))
        if node.test is not None:
            node.test = nodes.And(_reported("turn", node), node.test, lineno=node.lineno)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return nodes.And(_reported("turn", node), node, lineno=node.lineno)

    def visit_Test(self, node: nodes.Test) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return nodes.And(_reported("turn", node), node, lineno=node.lineno)

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        return self._made(node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        return self._made(node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        return self._made(node) if node.ctx == "load" else self.generic_visit(node)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        if isinstance(node.arg, nodes.Slice):
            return self._made(node)
        return self.generic_visit(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _reported("joined", node, *node.nodes)

    def _made(self, node: nodes.Expr) -> nodes.Node:
        self.generic_visit(node)
        return _reported("made", node, node)


def _reported(method: str, at: nodes.Node, *arguments: nodes.Expr) -> nodes.Call:
    target = nodes.EnvironmentAttribute(method, lineno=at.lineno)
    return nodes.Call(target, list(arguments), [], None, None, lineno=at.lineno)


class TemplateEnvironment(sandbox.ImmutableSandboxedEnvironment):
    """Compiles and renders one template; `budget` is renewed for each. One rendering at a time."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", GenerationBlock],
            finalize=self.made,
        )
        self.budget = Budget()
        self.concat = self._concatenated  # type: ignore[assignment]
        given = {name: FILTERS[name] for name in _FILTERS.split()}
        own: dict[str, Callable[..., Any]] = {
            "format": self._format,
            "indent": self._indent,
            "join": self._join,
            "replace": self._replace,
            "round": self._round,
            "sum": self._sum,
            "tojson": self._tojson,
            "trim": self._trim,
        }
        self.filters = {name: self._metered(f) for name, f in (given | own).items()}
        self.globals = {
            "dict": dict,
            "namespace": QuietNamespace,
            "raise_exception": _raise_exception,
            "range": self.globals["range"],
        }

    def compiled(self, source: str) -> jinja2.Template:
        """The template, ready to render. Raises jinja2.TemplateError and Python's own errors."""
        if len(source) > MAX_SOURCE:
            raise Exhausted("is too long")
        tree = _Meter().visit(self.parse(source))
        return jinja2.Template.from_code(self, self.compile(tree), self.globals)

    def rendered(self, template: jinja2.Template, variables: Mapping[str, object]) -> str:
        """The text a template makes. Raises as `compiled` does."""
        context = template.new_context(dict(variables))
        return self._concatenated(template.root_render_func(context))

    # --- what a rewritten template reports ------------------------------------------------------

    def turn(self) -> bool:
        """One turn of a loop, or one comparison; True, so that it can stand before a condition."""
        self.budget.step()
        return True

    def made(self, value: Any) -> Any:
        """A value made without a call, or about to be written out."""
        self.budget.take(value)
        return value

    def joined(self, *values: object) -> str:
        """`a ~ b ~ c`."""
        self.budget.weigh(*values)
        return self.made("".join(map(str, values)))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Any call in a template; refuses methods that are not on the list."""
        owner = getattr(__obj, "__self__", None)
        if owner is __self:  # one of the reports above
            return __obj(*args)  # without the loop's variables, which Jinja adds
        budget = __self.budget
        budget.step()
        if isinstance(__obj, BuiltinMethodType) and not isinstance(owner, type(sys)):
            args = __self._checked_method(owner, __obj.__name__, args)
        else:
            # What a macro calls varargs or kwargs was never weighed; _loop_vars is Jinja's own.
            budget.weigh(args, *(v for k, v in kwargs.items() if not k.startswith("_")))
        budget.depth += 1
        if budget.depth > _MAX_DEPTH:
            raise Exhausted("calls itself without end")
        try:
            return __self.made(super().call(__context, __obj, *args, **kwargs))
        finally:
            budget.depth -= 1

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Any arithmetic; sizes are worked out before the result is."""
        budget = self.budget
        budget.step()
        if operator == "%" and isinstance(left, str):
            self._check_percent(left, right)
        elif operator == "*":
            for many, times in ((left, right), (right, left)):
                if isinstance(times, int) and isinstance(many, str | list | tuple):
                    budget.room(max(len(many), 1) * max(times, 0))
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            if left.bit_length() * right > MAX_INTEGER:
                raise Exhausted("makes a number that is too large")
        elif operator == "+" and isinstance(left, str | list | tuple):
            budget.room(len(left) + (len(right) if isinstance(right, str | list | tuple) else 0))
        return self.made(super().call_binop(context, operator, left, right))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format`, with widths and repetition bounded."""
        safe = super().wrap_str_format(value)
        if safe is None:
            return None
        pattern = str(value.__self__)
        formatted = safe

        def bounded(*args: Any, **kwargs: Any) -> str:
            plain = pattern.replace("{{", "").replace("}}", "")
            if re.search(r"\d{4}|\{[^{}]*\{", plain):
                raise Exhausted("makes a text that is too long")
            each = self.budget.weigh(args, kwargs) + _MAX_WIDTH
            self.budget.room(len(pattern) + plain.count("{") * each)
            return formatted(*args, **kwargs)

        return bounded

    # --- checks before the act ------------------------------------------------------------------

    def _concatenated(self, pieces: Iterable[str]) -> str:
        kept: list[str] = []
        length = 0
        for piece in pieces:
            length += len(piece)
            self.budget.room(length)
            kept.append(piece)
        self.budget.step(len(kept) // 8)
        return self.made("".join(kept))

    def _checked_method(self, owner: object, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        allowed = next((names for kind, names in _METHODS if isinstance(owner, kind)), frozenset())
        if name not in allowed:
            raise jinja2.exceptions.SecurityError(f"the method {name!r} is not allowed")
        if isinstance(owner, str):
            if name == "join" and args:
                return (self._joinable(owner, args[0]), *args[1:])
            if name == "replace" and len(args) >= 2:
                self._check_replace(owner, args[0], args[1])
            if name in ("strip", "lstrip", "rstrip") and args:
                self._check_strip(args[0])
        return args

    def _joinable(self, separator: str, values: Iterable[Any]) -> list[Any]:
        kept = self._listed(values)
        self.budget.room(self.budget.weigh(kept) + len(separator) * len(kept))
        return kept

    def _listed(self, values: Iterable[Any]) -> list[Any]:
        kept: list[Any] = []
        for value in values:
            if len(kept) >= MAX_ITEMS:
                raise Exhausted("makes a list that is too long")
            kept.append(value)
        self.budget.step(len(kept) // 8)
        return kept

    def _check_replace(self, text: str, old: object, new: object) -> None:
        if isinstance(old, str) and isinstance(new, str):
            self.budget.room(len(text) + text.count(old) * len(new))

    def _check_strip(self, characters: object) -> None:
        if isinstance(characters, str) and len(characters) > _MAX_WIDTH:
            raise Exhausted("strips too many kinds of characters")

    def _check_percent(self, pattern: str, values: object) -> None:
        if _WIDE_FORMAT.search(pattern):
            raise Exhausted("makes a text that is too long")
        each = self.budget.weigh(values) + _MAX_WIDTH
        self.budget.room(len(pattern) + pattern.count("%") * each)

    # --- filters --------------------------------------------------------------------------------

    def _metered(self, function: Callable[..., Any]) -> Callable[..., Any]:
        wants = getattr(getattr(function, "jinja_pass_arg", None), "name", "")

        @pass_context
        def metered(context: Context, *args: Any, **kwargs: Any) -> Any:
            self.budget.step()
            self.budget.look()
            first = {"context": context, "eval_context": context.eval_ctx, "environment": self}
            lead = (first[wants],) if wants else ()
            result = function(*lead, *args, **kwargs)
            if isinstance(result, Iterator):  # done now, so that its cost shows now
                return iter(self._listed(result))
            return self.made(result)

        return metered

    def _format(self, value: object, *args: Any, **kwargs: Any) -> str:
        pattern = str(value)
        self._check_percent(pattern, (args, kwargs))
        return pattern % (kwargs or args)

    def _indent(
        self, value: object, width: int | str = 4, first: bool = False, blank: bool = False
    ) -> str:
        text = str(value)
        margin = width if isinstance(width, str) else " " * min(width, self.budget.text)
        self.budget.room(len(text) + (text.count("\n") + 2) * len(margin))
        return FILTERS["indent"](text, margin, first, blank)

    def _join(self, value: Iterable[Any], d: str = "", attribute: str | None = None) -> str:
        if attribute is not None:
            value = map(make_attrgetter(self, attribute), value)
        return str(d).join(map(str, self._joinable(str(d), value)))

    def _replace(self, value: object, old: str, new: str, count: int = -1) -> str:
        text = str(value)
        self._check_replace(text, str(old), str(new))
        return text.replace(str(old), str(new), -1 if count is None else count)

    def _round(self, value: float, precision: int = 0, method: str = "common") -> float:
        if abs(precision) > 15:
            raise Exhausted("makes a number that is too large")
        return FILTERS["round"](value, precision, method)

    def _sum(
        self, value: Iterable[Any], attribute: str | int | None = None, start: float = 0
    ) -> float:
        return FILTERS["sum"](self, value, attribute, start + 0)  # lists would be copied each time

    def _tojson(
        self,
        value: object,
        ensure_ascii: bool = False,
        indent: int | str | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        margin = indent if isinstance(indent, str) else " " * min(indent or 0, 17)
        if len(margin) > 16 or (separators and self.budget.weigh(*separators) > 16):
            raise Exhausted("makes a text that is too long")
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    def _trim(self, value: object, chars: str | None = None) -> str:
        self._check_strip(chars)
        return str(value).strip(chars)


def _raise_exception(message: object = "") -> None:
    raise Refused(str(message))
