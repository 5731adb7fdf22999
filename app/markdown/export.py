"""Parsed blocks as HTML and as markdown, for the clipboard: the structure that the screen shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from html import escape

from app.markdown.blocks import (
    BOX,
    BULLET,
    TICKED,
    Block,
    Code,
    Formula,
    Heading,
    Level,
    Paragraph,
    Rule,
    Run,
    Runs,
    Table,
    passage_number,
    passage_numbers,
)
from app.markdown.inline import References, inline_runs
from app.markdown.stream import parse

_SPACE = re.compile(r"(\s*)(.*?)(\s*)", re.DOTALL)
_SPECIAL = re.compile(r"[\\`*_~<>$&#|!]|(?<=http|ttps)://|(?<=\d)[.)]")
_LINE_MARK = re.compile(r"^[ \t]*(?=[-+=])", re.MULTILINE)
_ONLY_BULLETS = re.compile(r"(?:- *){3,}|(?:\* *){3,}")  # which would be a rule
_IN_BRACKETS = "0123456789 \t\n\xa0,;\u2013-"  # of a reference to passages
_BRACKETS = {"[": "&#91;", "]": "&#93;"}  # escaped by a backslash they begin a formula
Show = Callable[[Code | Formula | Run], str]
Cite = Callable[[int, str], str]  # the source of a reference to a passage, with its text here
_STYLES = (("bold", "**", "strong"), ("italic", "*", "em"), ("strike", "~~", "del"))


@dataclass(slots=True)
class _Node:
    """A container, or the whole text: `level` is None for it and for an item that begins before."""

    level: Level | None
    children: list[_Node | Block] = field(default_factory=list["_Node | Block"])

    @property
    def is_tight(self) -> bool:
        first = self.children[0]
        return first.is_tight if isinstance(first, _Node) else first.place.tight

    @property
    def is_item(self) -> bool:
        return self.level is not None and not self.level.quote


def to_html(blocks: Sequence[Block], show: Show = lambda _: "") -> str:
    """The blocks as HTML, without raw HTML and without pictures.

    `show` returns the HTML of a code block, a formula or a reference to a passage; "" leaves it as
    its source.
    """
    return "\n".join(_html_of(_tree(blocks), show))


def to_markdown(blocks: Sequence[Block], cite: Cite = lambda _, text: text) -> str:
    """The blocks as markdown that is parsed to the same blocks.

    `cite` returns the source of a reference to a passage; its text, as it was written.
    """
    return "\n".join(_lines_of(_tree(blocks), cite))


def _tree(blocks: Sequence[Block]) -> _Node:
    """The containers with their blocks; a paragraph in pieces is one block."""
    root = _Node(None)
    stack: list[_Node] = [root]
    shown: list[Level] = []
    for block in blocks:
        path = block.place.path
        around = stack[-1].children
        if block.place.joined and around and isinstance(last := around[-1], Paragraph):
            assert isinstance(block, Paragraph)
            around[-1] = replace(last, runs=(*last.runs, *block.runs))
            continue
        depth = 0
        while depth < min(len(path), len(shown)) and not path[depth].begins:
            if path[depth].quote != shown[depth].quote:
                break
            depth += 1
        del stack[depth + 1 :], shown[depth:]
        for level in path[depth:]:
            node = _Node(level if level.quote or level.begins else None)
            stack[-1].children.append(node)
            stack.append(node)
            shown.append(level)
        stack[-1].children.append(block)
    return root


def _number(marker: str) -> tuple[str, str]:
    """The number with its delimiter ("" for a bullet), and the box of a task, or ""."""
    number, _, box = marker.rpartition(" ")
    if box in (BOX, TICKED):
        return number, box
    return ("" if marker == BULLET else marker), ""


# --- HTML -----------------------------------------------------------------------------------------


def _html_of(node: _Node, show: Show) -> list[str]:
    """The HTML of the children of a container."""
    made: list[str] = []
    open_list, delimiter = "", ""
    for child in node.children:
        level = child.level if isinstance(child, _Node) and child.is_item else None
        number, box = _number(level.marker) if level else ("", "")
        if open_list and (level is None or level.first or number[-1:] != delimiter):
            made.append(f"</{open_list}>")
            open_list = ""
        if not isinstance(child, _Node):
            made.append(_block_html(child, show))
        elif level:
            if not open_list:
                open_list, delimiter = ("ol" if number else "ul"), number[-1:]
                start = number[:-1]
                made.append(f'<ol start="{start}">' if start not in ("", "1") else f"<{open_list}>")
            made.append(_item_html(child, f"{box} " if box else "", show))
        elif child.level:
            made += ["<blockquote>", *_html_of(child, show), "</blockquote>"]
        else:
            made += _html_of(child, show)
    if open_list:
        made.append(f"</{open_list}>")
    return made


def _item_html(item: _Node, box: str, show: Show) -> str:
    """An item; its first paragraph has no `<p>`, as in a list without blank lines."""
    first = item.children[0]
    if not isinstance(first, Paragraph):
        return "\n".join([f"<li>{box}", *_html_of(item, show), "</li>"])
    rest = _html_of(_Node(None, item.children[1:]), show)
    return "\n".join([f"<li>{box}{_runs_html(first.runs, show)}", *rest]) + "</li>"


def _block_html(block: Block, show: Show) -> str:
    match block:
        case Paragraph():
            return f"<p>{_runs_html(block.runs, show)}</p>"
        case Heading():
            return f"<h{block.level}>{_runs_html(block.runs, show)}</h{block.level}>"
        case Code() if shown := show(block):
            return shown
        case Formula() if shown := show(block):
            return shown
        case Code():
            language = f' class="language-{escape(block.language)}"' if block.language else ""
            return f"<pre><code{language}>{escape(block.text, quote=False)}\n</code></pre>"
        case Table():
            return _table_html(block, show)
        case Formula():
            return f"<p>{_lines_html(block.source)}</p>"
        case Rule():
            return "<hr>"


def _table_html(table: Table, show: Show) -> str:
    made = ["<table>"]
    for n, row in enumerate((table.header, *table.rows)):
        tag = "td" if n else "th"
        cells = [
            f'<{tag} style="text-align:{side}">{_runs_html(cell, show)}</{tag}>'
            for cell, side in zip(row, table.alignments, strict=True)
        ]
        made.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join([*made, "</table>"])


def _lines_html(text: str) -> str:
    return escape(text, quote=False).replace("\n", "<br>\n")


def _runs_html(runs: Runs, show: Show) -> str:
    made: list[str] = []
    for run in runs:
        cites = passage_number(run.link) > 0
        text = ((run.formula or cites) and show(run)) or _lines_html(run.text)
        if run.code:
            text = f"<code>{text}</code>"
        for name, _, tag in reversed(_STYLES):
            if getattr(run, name):
                text = f"<{tag}>{text}</{tag}>"
        if run.link and not cites:
            text = f'<a href="{escape(run.link)}">{text}</a>'
        made.append(text)
    return "".join(made)


# --- markdown -------------------------------------------------------------------------------------


def _lines_of(node: _Node, cite: Cite) -> list[str]:
    """The lines of the children of a container."""
    made: list[str] = []
    bullet = "-"
    for n, child in enumerate(node.children):
        before = node.children[n - 1] if n else None
        if isinstance(child, _Node):
            after_item = isinstance(before, _Node) and before.is_item
            if child.is_item and child.level and child.level.first and after_item:
                bullet = "*" if bullet == "-" else "-"
            lines, is_tight = _container_lines(child, bullet, cite), child.is_tight
        else:
            lines = _block_lines(child, cite)
            is_tight = child.place.tight and not isinstance(child, Rule)
        if made and not is_tight:
            made.append("")
        made += lines
    return made


def _container_lines(node: _Node, bullet: str, cite: Cite) -> list[str]:
    lines = _lines_of(node, cite)
    if node.level is None:
        return lines
    if node.level.quote:
        return [f"> {line}" if line else ">" for line in lines]
    number, box = _number(node.level.marker)
    mark = f"{number or bullet} "
    task = "" if not box else "[ ] " if box == BOX else "[x] "
    if isinstance(node.children[0], Rule):
        lines[0] = "---" if bullet == "*" else "***"  # not a rule together with the bullet
    if task and not isinstance(node.children[0], Paragraph):
        lines.insert(0, "")
    if _ONLY_BULLETS.fullmatch(mark + lines[0]):
        lines.insert(0, "")
    indented = [" " * len(mark) + line if line else "" for line in lines[1:]]
    return [mark + task + lines[0], *indented]


def _block_lines(block: Block, cite: Cite) -> list[str]:
    match block:
        case Paragraph():
            return _text_lines(block.runs, "", cite)
        case Heading():
            one_line = tuple(replace(run, text=run.text.replace("\n", " ")) for run in block.runs)
            return _text_lines(one_line, f"{'#' * block.level} ", cite)
        case Code():
            letter = "~" if "`" in block.language else "`"
            longest = max(map(len, re.findall(f"{letter}+", block.text)), default=0)
            mark = letter * max(longest + 1, 3)
            return [mark + block.language, *block.text.split("\n"), mark]
        case Table():
            sides = {"left": "---", "center": ":-:", "right": "--:"}
            rows = [[_cell(cell, cite) for cell in row] for row in (block.header, *block.rows)]
            header, *rest = [f"| {' | '.join(row)} |" for row in rows]
            return [header, f"|{'|'.join(sides[side] for side in block.alignments)}|", *rest]
        case Formula():
            return block.source.split("\n")
        case Rule():
            return ["---"]


def _text_lines(runs: Runs, before: str, cite: Cite) -> list[str]:
    """The lines of a paragraph, or of a heading that begins with a mark.

    Punctuation is escaped only where it would be markup.
    """
    text = before + _markdown_of(runs, as_written=True).lstrip(" \t\n")
    found = parse(text, passage_numbers(runs))
    parsed = [block for block in found if isinstance(block, Paragraph | Heading)]
    is_one = all(block.place.joined == (n > 0) for n, block in enumerate(parsed))
    again = tuple(run for block in parsed for run in block.runs)
    exact = is_one and _shape(again) == _shape(runs)
    written = _markdown_of(runs, as_written=exact, cite=cite)
    return (before + written.lstrip(" \t\n")).split("\n")


def _cell(runs: Runs, cite: Cite) -> str:
    text = _markdown_of(runs, as_written=True)
    exact = _shape(inline_runs(text, References(passage_numbers(runs)))) == _shape(runs)
    text = _markdown_of(runs, as_written=exact, cite=cite)
    return text.replace("|", "\\|").replace("  \n", "<br>").replace("\n", "<br>")


def _shape(runs: Runs) -> list[Run]:
    """Each word and each mark with its style: what runs are, apart from white space."""
    return [
        replace(run, text=word) for run in runs for word in re.findall(r"\w+|[^\w\s]", run.text)
    ]


def _markdown_of(runs: Runs, *, as_written: bool, cite: Cite = lambda _, text: text) -> str:
    """The source of runs; `as_written`: punctuation in text is not escaped."""
    made: list[str] = []
    open_styles: list[str] = []  # the marks
    for at, run in enumerate(runs):
        wanted = [mark for name, mark, _ in _STYLES if getattr(run, name)]
        match = _SPACE.fullmatch(run.text)
        before, text, after = match.groups() if match and not run.code else ("", run.text, "")
        kept = 0
        while kept < min(len(open_styles), len(wanted)) and open_styles[kept] == wanted[kept]:
            kept += 1
        space = made.pop() if made and made[-1].isspace() and open_styles[kept:] else ""
        made += reversed(open_styles[kept:])
        made += [space + before.replace("\n", "  \n"), *wanted[kept:]]
        open_styles = wanted
        if number := passage_number(run.link):
            made.append(cite(number, text))
        else:
            first, text, last = _in_brackets(runs, at, text)
            middle = _run_source(replace(run, text=text), as_written=as_written)
            made.append(first + (middle if text or not (first or last) else "") + last)
        made += [after.replace("\n", "  \n")] if after else []
    space = made.pop() if made and made[-1].isspace() and open_styles else ""
    made += [*reversed(open_styles), space]
    return re.sub(r"(?<=\n) *\n", "\\\\\n", "".join(made))


def _in_brackets(runs: Runs, at: int, text: str) -> tuple[str, str, str]:
    """What of a run's text is in the brackets of a reference, before it and behind it.

    There nothing is escaped, or the reference would be none. The middle is the rest.
    """
    if runs[at].code or runs[at].formula or runs[at].link:
        return "", text, ""
    before = runs[at - 1] if at else Run("")
    behind = runs[at + 1] if at + 1 < len(runs) else Run("")
    first = last = ""
    if passage_number(before.link) and not before.text.endswith("]"):
        rest = text.lstrip(_IN_BRACKETS).removeprefix("]")
        first, text = text.removesuffix(rest), rest
    if passage_number(behind.link) and not behind.text.startswith("["):
        rest = text.rstrip(_IN_BRACKETS).removesuffix("[")
        text, last = rest, text.removeprefix(rest)
    return first, text, last


def _run_source(run: Run, *, as_written: bool) -> str:
    text = run.text
    if run.code:
        ticks = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
        is_padded = text[:1] == "`" or text[-1:] == "`" or (text[:1] == text[-1:] == " ")
        text = f"{ticks} {text} {ticks}" if is_padded and text.strip() else f"{ticks}{text}{ticks}"
    elif not run.formula:
        text = (text if as_written else _escaped(text)).replace("\n", "  \n")
    if not run.link:
        return text
    if run.link == run.text and run.link.startswith(("http://", "https://")):
        return run.link if as_written else f"<{run.link}>"
    address = f"<{run.link}>" if re.search(r"[()\s]", run.link) or not run.link else run.link
    return f"[{text}]({address})"


def _escaped(text: str) -> str:
    text = _LINE_MARK.sub(r"\g<0>\\", _SPECIAL.sub(lambda found: f"\\{found[0]}", text))
    return re.sub(r"[\[\]]", lambda found: _BRACKETS[found[0]], text)
