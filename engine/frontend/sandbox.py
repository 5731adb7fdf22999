"""Jinja sandbox with resource limits, for untrusted chat templates from model files.

Jinja's sandbox blocks access to Python's internals, but not `"x" * 10 ** 9` or nested loops. So
each loop iteration, call, filter, operator and literal is charged to a Budget of CPU time, bytes and
value sizes before it runs. The size checks bound the time of every single operation, so no
watchdog thread or signal is needed.
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
from jinja2.filters import FILTERS, make_attrgetter, sync_do_slice
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.utils import Cycler, Joiner, Namespace, pass_context
from jinja2.visitor import NodeTransformer

from engine.frontend.budget import MAX_INTEGER, MAX_ITEMS, Budget, Exhausted

MAX_SOURCE = 64_000  # characters of a template; the longest known has 20,000
_MAX_NODES = 12_000  # syntax nodes of a template; the longest known has 1,300
_MAX_DEPTH = 50  # calls inside calls
_MAX_WIDTH = 1_000  # characters of padding, or of a set of characters to strip
_MAX_WRAPPED = 100_000  # characters of a text that is wrapped
_WIDE_FORMAT = re.compile(r"%(\([^)]*\))?[-+ #0]*(\*|\d{4,}|\d*\.(\*|\d{4,}))")
_TEXT_METHODS = """
    capitalize casefold center count endswith find format format_map index isalnum isalpha isascii
    isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join ljust
    lower lstrip partition removeprefix removesuffix replace rfind rindex rjust rpartition rsplit
    rstrip split splitlines startswith strip swapcase title upper zfill
"""
_METHODS: tuple[tuple[type, frozenset[str]], ...] = (
    (str, frozenset(_TEXT_METHODS.split())),
    (list, frozenset({"copy", "count", "index"})),
    (tuple, frozenset({"count", "index"})),
    (dict, frozenset({"copy", "get", "items", "keys", "values"})),
)
_FILTERS = """
    abs attr capitalize count d default dictsort e escape filesizeformat first float forceescape
    groupby int items last length list lower map max min reject rejectattr reverse safe select
    selectattr sort string title truncate unique upper wordcount
"""


class Refused(jinja2.TemplateError):
    """The template called `raise_exception`; the message is the template's."""


class OpaqueNamespace(Namespace):
    """`namespace()` whose repr omits its attributes, which may be nested exponentially."""

    def __repr__(self) -> str:
        return "namespace"


class GenerationBlock(Extension):
    """`{% generation %}`, which marks the assistant's text for training; ignored here."""

    tags = {"generation"}  # noqa: RUF012 (the base class declares it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The nodes between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Meter(NodeTransformer):
    """Rewrites a syntax tree so that loops, comparisons, literals, `~` and slices are charged."""

    def __init__(self) -> None:
        self.count = 0

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        self.count += 1
        if self.count > _MAX_NODES:
            raise Exhausted("is too long")
        return super().generic_visit(node, *args, **kwargs)

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_environment_call("step", node), lineno=node.lineno))
        if node.test is not None:
            node.test = nodes.And(_environment_call("step", node), node.test, lineno=node.lineno)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return nodes.And(_environment_call("step", node), node, lineno=node.lineno)

    def visit_Test(self, node: nodes.Test) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return nodes.And(_environment_call("step", node), node, lineno=node.lineno)

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        return self._charged(node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        return self._charged(node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        return self._charged(node) if node.ctx == "load" else self.generic_visit(node)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        if isinstance(node.arg, nodes.Slice):
            return self._charged(node)
        return self.generic_visit(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _environment_call("joined", node, *node.nodes)

    def _charged(self, node: nodes.Expr) -> nodes.Node:
        self.generic_visit(node)
        return _environment_call("charged", node, node)


def _environment_call(method: str, at: nodes.Node, *arguments: nodes.Expr) -> nodes.Call:
    """A call of a method of TemplateEnvironment, as a syntax node."""
    target = nodes.EnvironmentAttribute(method, lineno=at.lineno)
    return nodes.Call(target, list(arguments), [], None, None, lineno=at.lineno)


class TemplateEnvironment(sandbox.ImmutableSandboxedEnvironment):
    """Compiles and renders templates within `budget`, to be renewed before each; not thread-safe."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", GenerationBlock],
            finalize=self.charged,
        )
        self.budget = Budget()
        self.concat = self._concatenated  # type: ignore[assignment]
        given = {name: FILTERS[name] for name in _FILTERS.split()}
        own: dict[str, Callable[..., Any]] = {
            "batch": self._batch,
            "center": self._center,
            "format": self._format,
            "indent": self._indent,
            "join": self._join,
            "replace": self._replace,
            "round": self._round,
            "slice": self._slice,
            "sum": self._sum,
            "tojson": self._tojson,
            "trim": self._trim,
            "urlencode": self._urlencode,
            "wordwrap": self._wordwrap,
        }
        self.filters = {name: self._metered(f) for name, f in (given | own).items()}
        self.globals = {
            "cycler": Cycler,
            "dict": dict,
            "joiner": Joiner,
            "namespace": OpaqueNamespace,
            "raise_exception": _raise_exception,
            "range": self.globals["range"],
        }

    def compile_source(self, source: str) -> jinja2.Template:
        """Compile a template. Raises jinja2.TemplateError and Python's built-in errors."""
        if len(source) > MAX_SOURCE:
            raise Exhausted("is too long")
        tree = _Meter().visit(self.parse(source))
        return jinja2.Template.from_code(self, self.compile(tree), self.globals)

    def render_template(self, template: jinja2.Template, variables: Mapping[str, object]) -> str:
        """Render a template. Raises as `compile_source` does."""
        context = template.new_context(dict(variables))
        return self._concatenated(template.root_render_func(context))

    # --- calls from a rewritten template --------------------------------------------------------

    def step(self) -> bool:
        """Count a loop iteration or comparison; returns True, as it is and-ed with conditions."""
        self.budget.step()
        return True

    def charged(self, value: Any) -> Any:
        """Charge a value, from a literal or about to be written out, and return it."""
        self.budget.charge(value)
        return value

    def joined(self, *values: object) -> str:
        """`a ~ b ~ c`."""
        self.budget.count_characters(*values)
        return self.charged("".join(map(str, values)))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Any call in a template; refuses methods that are not on the list."""
        owner = getattr(__obj, "__self__", None)
        if owner is __self:  # one of the three methods above
            return __obj(*args)  # without the loop variables that Jinja adds
        budget = __self.budget
        budget.step()
        if isinstance(__obj, BuiltinMethodType) and not isinstance(owner, type(sys)):
            args = __self._checked_method(owner, __obj.__name__, args)
        else:
            # A macro's varargs and kwargs are new values, not charged yet. Jinja adds _loop_vars.
            arguments = (value for name, value in kwargs.items() if not name.startswith("_"))
            budget.count_characters(args, *arguments)
        budget.depth += 1
        if budget.depth > _MAX_DEPTH:
            raise Exhausted("calls itself too deeply")
        try:
            return __self.charged(super().call(__context, __obj, *args, **kwargs))
        finally:
            budget.depth -= 1

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Any binary operator; the size of the result is checked before it is computed."""
        budget = self.budget
        budget.step()
        if operator == "%" and isinstance(left, str):
            self._check_percent(left, right)
        elif operator == "*":
            for many, times in ((left, right), (right, left)):
                if isinstance(times, int) and isinstance(many, str | list | tuple):
                    budget.check_length(max(len(many), 1) * max(times, 0))
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            if left.bit_length() * right > MAX_INTEGER:
                raise Exhausted("creates a number that is too large")
        elif operator == "+" and isinstance(left, str | list | tuple):
            added = len(right) if isinstance(right, str | list | tuple) else 0
            budget.check_length(len(left) + added)
        return self.charged(super().call_binop(context, operator, left, right))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format` with limits on field widths and output length."""
        safe = super().wrap_str_format(value)
        if safe is None:
            return None
        pattern = str(value.__self__)
        formatted = safe

        def bounded(*args: Any, **kwargs: Any) -> str:
            plain = pattern.replace("{{", "").replace("}}", "")
            if re.search(r"\d{4}|\{[^{}]*\{", plain):
                raise Exhausted("creates a text that is too long")
            each = self.budget.count_characters(args, kwargs) + _MAX_WIDTH
            self.budget.check_length(len(pattern) + plain.count("{") * each)
            return formatted(*args, **kwargs)

        return bounded

    # --- checks before an operation -------------------------------------------------------------

    def _concatenated(self, pieces: Iterable[str]) -> str:
        kept: list[str] = []
        length = 0
        for piece in pieces:
            length += len(piece)
            self.budget.check_length(length)
            kept.append(piece)
        self.budget.step(len(kept) // 8)
        return self.charged("".join(kept))

    def _checked_method(self, owner: object, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if owner is dict and name == "fromkeys" and args:
            return (self._listed(args[0]), *args[1:])
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
            if name in ("center", "ljust", "rjust", "zfill") and args:
                _check_width(args[0])
        return args

    def _joinable(self, separator: str, values: Iterable[Any]) -> list[Any]:
        kept = self._listed(values)
        characters = self.budget.count_characters(kept)
        self.budget.check_length(characters + len(separator) * len(kept))
        return kept

    def _listed(self, values: Iterable[Any]) -> list[Any]:
        kept: list[Any] = []
        for value in values:
            if len(kept) >= MAX_ITEMS:
                raise Exhausted("creates a list that is too long")
            kept.append(value)
        self.budget.step(len(kept) // 8)
        return kept

    def _check_replace(self, text: str, old: object, new: object) -> None:
        if isinstance(old, str) and isinstance(new, str):
            self.budget.check_length(len(text) + text.count(old) * len(new))

    def _check_strip(self, characters: object) -> None:
        if isinstance(characters, str) and len(characters) > _MAX_WIDTH:
            raise Exhausted("strips too many different characters")

    def _check_percent(self, pattern: str, values: object) -> None:
        if _WIDE_FORMAT.search(pattern):
            raise Exhausted("creates a text that is too long")
        each = self.budget.count_characters(values) + _MAX_WIDTH
        self.budget.check_length(len(pattern) + pattern.count("%") * each)

    # --- filters --------------------------------------------------------------------------------

    def _metered(self, function: Callable[..., Any]) -> Callable[..., Any]:
        first_argument = getattr(getattr(function, "jinja_pass_arg", None), "name", "")

        @pass_context
        def metered(context: Context, *args: Any, **kwargs: Any) -> Any:
            self.budget.step()
            self.budget.check_clock()
            passed = {"context": context, "eval_context": context.eval_ctx, "environment": self}
            lead = (passed[first_argument],) if first_argument else ()
            result = function(*lead, *args, **kwargs)
            if isinstance(result, Iterator):  # exhausted now, so that its cost is charged now
                return iter(self._listed(result))
            return self.charged(result)

        return metered

    def _batch(
        self, value: Iterable[Any], linecount: int, fill_with: Any = None
    ) -> Iterable[list[Any]]:
        _check_count(linecount)
        return FILTERS["batch"](value, linecount, fill_with)

    def _center(self, value: object, width: int = 80) -> str:
        _check_width(width)
        return str(value).center(width)

    def _format(self, value: object, *args: Any, **kwargs: Any) -> str:
        pattern = str(value)
        self._check_percent(pattern, (args, kwargs))
        return pattern % (kwargs or args)

    def _indent(
        self, value: object, width: int | str = 4, first: bool = False, blank: bool = False
    ) -> str:
        text = str(value)
        margin = width if isinstance(width, str) else " " * min(width, self.budget.text)
        self.budget.check_length(len(text) + (text.count("\n") + 2) * len(margin))
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
            raise Exhausted("creates a number that is too large")
        return FILTERS["round"](value, precision, method)

    def _slice(
        self, value: Iterable[Any], slices: int, fill_with: Any = None
    ) -> Iterable[list[Any]]:
        _check_count(slices)
        return sync_do_slice(self._listed(value), slices, fill_with)

    def _sum(
        self, value: Iterable[Any], attribute: str | int | None = None, start: float = 0
    ) -> float:
        # `+ 0` rejects a list as start: summing lists would copy the result at every step.
        return FILTERS["sum"](self, value, attribute, start + 0)

    def _tojson(
        self,
        value: object,
        ensure_ascii: bool = False,
        indent: int | str | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        margin = indent if isinstance(indent, str) else " " * min(indent or 0, 17)
        if len(margin) > 16 or (separators and self.budget.count_characters(*separators) > 16):
            raise Exhausted("creates a text that is too long")
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

    def _urlencode(self, value: Any) -> str:
        self.budget.check_length(9 * self.budget.count_characters(value))  # 3 for each byte
        return FILTERS["urlencode"](value)

    def _wordwrap(
        self,
        value: object,
        width: int = 79,
        break_long_words: bool = True,
        wrapstring: str | None = None,
        break_on_hyphens: bool = True,
    ) -> str:
        text = str(value)
        if len(text) > _MAX_WRAPPED:
            raise Exhausted("wraps a text that is too long")
        self.budget.check_length(len(text) * (1 + len(wrapstring or "\n")))
        return FILTERS["wordwrap"](
            self, text, width, break_long_words, wrapstring, break_on_hyphens
        )


def _check_width(width: object) -> None:
    if isinstance(width, int) and width > _MAX_WIDTH:
        raise Exhausted("creates a text that is too long")


def _check_count(count: int) -> None:
    if count > MAX_ITEMS:
        raise Exhausted("creates a list that is too long")


def _raise_exception(message: object = "") -> None:
    raise Refused(str(message))
