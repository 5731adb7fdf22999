r"""Typesetting of formulas: TeX to a scalable picture, on a worker thread, in a cache.

A formula takes 1 to 20 ms in pure Python, so none is typeset while text is laid out: `ask` returns
None and the formula shows its source until it is ready. Pictures are in units of the font size and
without a colour, so that neither a theme nor a zoom typesets anything again.

Wrong TeX gives no picture, and neither does a command that the library does not know, which it would
print as a word: their source is better. The library's time doubles with each level of some
constructs, so formulas nested too deeply for it are refused too.
"""

from __future__ import annotations

import queue
import re
import threading
import xml.etree.ElementTree as ET
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from app.markdown.formulas import Tex

LIMIT = 2000  # formulas kept; the oldest are typeset again when needed
LONGEST = 3000  # characters of a formula
HIGHEST_COST = 3000.0  # estimated work: about 1 s
COLOR = "#010203"  # in pictures, replaced with the colour of the text
_SIZE = 24.0  # font size at which the library works, in its units
_SCALE = 1.1  # of its font to the reading font of the same size: letters look equally large
_IGNORED = re.compile(r"\\(?:nonumber|notag|displaylimits)(?![a-zA-Z])|\\label\s*\{[^{}]*\}")
_TAG = re.compile(r"\\tag\*?\s*\{([^{}]*)\}")
_OTHER_NAMES = (
    (re.compile(r"\\mathop(?![a-zA-Z])"), r"\\,"),
    (re.compile(r"\\operatorname\*"), r"\\operatorname"),
    (re.compile(r"\\bmod(?![a-zA-Z])"), r"\\;\\mathrm{mod}\\;"),
    (re.compile(r"\\(begin|end)\s*\{(align|equation|gather)\}"), r"\\\1{\2*}"),
)
_VIEW = re.compile(r'viewBox="(\S+) (\S+) (\S+) (\S+)"')
# How often the library lays out the content of an element, from its times at growing depth.
_COST = {"mfrac": 2.0, "msqrt": 2.2, "mroot": 2.2, "mtd": 2.0, "mover": 2.0, "munder": 2.0}
_SCRIPT_COST = 2.0  # of sub- and superscripts
_FENCE_COST = 2.2  # of brackets that grow with their content


_lock = threading.Lock()  # the library keeps some values of a run in its modules


@dataclass(frozen=True, slots=True)
class Picture:
    """A typeset formula: an SVG, and its metrics as multiples of the font size."""

    svg: str  # in the colour COLOR
    width: float
    ascent: float  # above the baseline
    descent: float


class Wrong(Exception):
    """The TeX cannot be typeset."""


def typeset(tex: Tex) -> Picture:
    """Typeset one formula, on any thread. Raises Wrong."""
    with _lock:
        return _typeset(tex)


def _typeset(tex: Tex) -> Picture:
    if len(tex.code) > LONGEST:
        raise Wrong("too long")
    tree = _mathml(_prepared(tex.code), display=tex.display)
    if any(part.tag == "mi" and (part.text or "").startswith("\\") for part in tree.iter()):
        raise Wrong("unknown command")
    if _cost(tree) > HIGHEST_COST:
        raise Wrong("nested too deeply")
    tree.set("mathcolor", COLOR)
    try:
        svg = cast("str", _library().Math(tree, size=_SIZE).svg())
    except Exception as error:
        raise Wrong(str(error)) from error
    view = _VIEW.search(svg)
    _, top, width, height = map(float, view.groups()) if view else (0.0, 0.0, 0.0, 0.0)
    if width <= 2 or height <= 2:  # empty but for its margins
        raise Wrong("empty")
    unit = _SCALE / _SIZE
    return Picture(svg, width * unit, -top * unit, (height + top) * unit)


def _prepared(code: str) -> str:
    """TeX without numbering and with other names for what the library lacks."""
    code = _TAG.sub(r"\\qquad\\text{(\1)}", _IGNORED.sub("", code))
    for pattern, other in _OTHER_NAMES:
        code = pattern.sub(other, code)
    return code


def _mathml(code: str, *, display: bool) -> ET.Element:
    try:
        text = cast("str", _converter()(code, inline=not display))
        tree = ET.fromstring(text)
    except Exception as error:
        raise Wrong(str(error)) from error
    for part in tree.iter():
        part.tag = part.tag.rpartition("}")[2]
    return tree


def _cost(part: ET.Element) -> float:
    """The estimated work to lay out an element: 1 for a symbol."""
    inner = sum(_cost(child) for child in part)
    factor = _COST.get(part.tag, 1.0)
    if part.tag in ("msub", "msup", "msubsup"):
        factor = _SCRIPT_COST
    elif part.tag == "mrow" and any(child.get("stretchy") == "true" for child in part):
        factor = _FENCE_COST
    return 1.0 + factor * inner


@cache
def _library() -> Any:
    """The typesetting library, loaded when the first formula is typeset: it takes 0.1 s."""
    import ziamath  # noqa: PLC0415
    from ziamath.config import config  # noqa: PLC0415

    config.svg2 = False  # Qt's SVG has no <use>
    return ziamath


@cache
def _converter() -> Any:
    _library()
    from ziamath.tex import tex2mml  # noqa: PLC0415

    return tex2mml


class Typesetter:
    """Typesets formulas on a thread and keeps their pictures; all calls are on one thread."""

    def __init__(self, work: Callable[[Tex], Picture] = typeset) -> None:
        self._work = work
        self._pictures: dict[Tex, Picture | None] = {}  # None: wrong
        self._pending: set[Tex] = set()
        self._asked: deque[Tex] = deque()
        self._done: queue.SimpleQueue[tuple[Tex, Picture | None]] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards `_asked` and `_running`
        self.misses = 0  # how often a formula was not ready
        self._running = False  # the thread ends when nothing is asked for

    @property
    def busy(self) -> bool:
        """Whether a formula is not ready yet."""
        self._collect()
        return bool(self._pending)

    def ask(self, tex: Tex) -> Picture | None:
        """The picture of a formula; None if it is wrong or not ready, and then it is queued."""
        self._collect()
        if tex not in self._pictures and tex not in self._pending:
            self._pending.add(tex)
            with self._lock:
                self._asked.append(tex)
                start, self._running = not self._running, True
            if start:
                self._start()
        self.misses += tex in self._pending
        return self._pictures.get(tex)

    def ready(self, tex: Tex) -> bool:
        """Whether a formula that was asked for is typeset, or known to be wrong."""
        return tex not in self._pending

    def _start(self) -> None:
        threading.Thread(target=self._loop, name="formulas", daemon=True).start()

    def _collect(self) -> None:
        """Take over what the thread has finished."""
        while self._pending and not self._done.empty():
            tex, picture = self._done.get()
            self._pending.discard(tex)
            self._pictures[tex] = picture
            if len(self._pictures) > LIMIT:
                del self._pictures[next(iter(self._pictures))]

    def _loop(self) -> None:
        while (tex := self._next()) is not None:
            picture = None
            failed = True
            try:
                picture = self._work(tex)
                failed = False
            except Wrong:
                failed = False
            finally:
                if failed:  # by a bug, which `threading.excepthook` reports
                    self._start()
                self._done.put((tex, picture))

    def _next(self) -> Tex | None:
        with self._lock:
            self._running = bool(self._asked)
            return self._asked.popleft() if self._asked else None


TYPESETTER = Typesetter()
