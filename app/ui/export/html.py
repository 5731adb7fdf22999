"""A chat as one HTML file: formulas as pictures in it, highlighted code, light and dark.

It has no scripts and loads nothing: every text of the chat is escaped, and the fonts are those of
the reader's system. Its security policy forbids both, should a browser understand something else.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from html import escape
from itertools import groupby

from PySide6.QtWidgets import QApplication

from app.domain.chat_tree import ChatTree
from app.domain.document import PictureLabel, Section, one_line, sections, when
from app.domain.file_words import image_name
from app.domain.picture_types import SHOWN_ANYWHERE, media_type
from app.markdown.blocks import Code, Formula, Heading, Paragraph, Run, passage_number
from app.markdown.export import to_html
from app.markdown.formulas import Tex, inline_tex
from app.ui.blocks.highlight import exact_spans, lexer_of
from app.ui.blocks.style import ReadingStyle
from app.ui.blocks.typesetting import COLOR, Picture, Wrong, typeset
from app.ui.theme.palette import DARK, LIGHT, Palette
from app.ui.widgets.direction import runs_right_to_left

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
MOST_PICTURE_BYTES = 8_000_000  # of the file of a picture that is put into the document
Read = Callable[[str], bytes]  # the file of a SHA-256; b"": it is not kept. Raises OSError.
_LONGEST_CODE = 200_000  # characters of a block that is highlighted
_ROLES = ("keyword", "string", "number", "comment", "name", "error")


def style_sheet() -> str:
    """The style sheet, with the colours of the light and the dark theme; GUI thread only."""
    return f"""
:root {{ color-scheme: light dark; {_colors(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_colors(DARK)} }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; padding: 2rem 1rem 4rem; background: var(--background); color: var(--text);
  font: 1rem/1.6 Inter, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }}
main {{ max-width: 46rem; margin: 0 auto; overflow-wrap: break-word; }}
header h1 {{ font-size: 1.6rem; line-height: 1.3; margin: 0 0 .25rem; }}
header p, .author {{ color: var(--secondary); font-size: .85rem; margin: 0; }}
section {{ margin-top: 2rem; }}
section.user {{ background: var(--accent-soft); border-radius: 12px; padding: .75rem 1rem; }}
.author b {{ color: var(--text); font-weight: 600; margin-inline-end: .5rem; }}
h1, h2, h3, h4, h5, h6 {{ line-height: 1.35; margin: 1.5rem 0 .5rem; break-after: avoid; }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.25rem; }} h3 {{ font-size: 1.1rem; }}
h4, h5, h6 {{ font-size: 1rem; }}
p {{ margin: .6rem 0; }}
a {{ color: var(--accent); }}
del {{ color: var(--secondary); }}
blockquote {{ margin: .6rem 0; padding-inline-start: 1rem; color: var(--secondary);
  border-inline-start: 2px solid var(--hairline); }}
pre {{ background: var(--sunken); border-radius: 10px; padding: .8rem 1rem; overflow-x: auto;
  direction: ltr; text-align: left; }}
code {{ font: .88em/1.55 "JetBrains Mono", ui-monospace, "Cascadia Mono", Menlo, monospace;
  font-variant-ligatures: none; tab-size: 4; }}
:not(pre) > code {{ background: var(--sunken); border-radius: 4px; padding: .1em .3em; }}
table {{ border-collapse: collapse; display: block; overflow-x: auto; margin: .8rem 0; }}
th, td {{ padding-block: .5rem; padding-inline: 0 1.5rem; border-bottom: 1px solid var(--hairline);
  vertical-align: top; }}
figure {{ margin: .6rem 0; }}
figure img {{ max-width: 100%; max-height: 30rem; width: auto; height: auto; border-radius: 6px; }}
figcaption {{ color: var(--secondary); font-size: .85rem; }} figcaption p {{ margin: .25rem 0; }}
hr {{ border: 0; border-top: 1px solid var(--hairline); margin: 1.5rem 0; }}
.math {{ margin: .6rem 0; text-align: center; overflow-x: auto; }}
.math svg, .inline-math svg {{ overflow: visible; }}
{_syntax_rules()}
@media print {{ body {{ padding: 0; }} pre, table {{ overflow: visible; white-space: pre-wrap; }} }}
""".strip()


def _colors(palette: Palette) -> str:
    """The variables of one theme."""
    named = {
        "background": palette.background,
        "text": palette.text,
        "secondary": palette.secondary,
        "hairline": palette.hairline,
        "accent": palette.accent,
        "accent-soft": palette.accent_soft,
        "sunken": palette.sunken,
    }
    syntax = ReadingStyle(palette).syntax
    named |= {role: syntax[role].foreground().color().name() for role in _ROLES}
    return " ".join(f"--{name}: {color};" for name, color in named.items())


def _syntax_rules() -> str:
    rules = [f".{role} {{ color: var(--{role}); }}" for role in _ROLES]
    return "\n".join([*rules, ".comment { font-style: italic; }"])


def _no_file(sha256: str) -> bytes:
    """Where no files are kept."""
    return b""


def chat_html(tree: ChatTree, sheet: str, read: Read = _no_file) -> Iterator[str]:
    """The pieces of the document of one chat, one for each message; `sheet` is its style sheet.

    `read` returns the files of pictures, of which those that every browser shows are in it.
    """
    title = escape(one_line(tree.title))
    made = when(tree.created)
    yield (
        f'<!DOCTYPE html>\n<html dir="{_side(QApplication.isRightToLeft())}">\n'
        f'<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="generator" content="Tokonoma">\n'
        f"<title>{title}</title>\n<style>\n{sheet}\n</style>\n</head>\n<body>\n<main>\n"
        f'<header><h1 dir="auto">{title}</h1><p>{made}</p></header>\n'
    )
    for section in sections(tree):
        yield _section_html(section, read)
    yield "</main>\n</body>\n</html>\n"


def _section_html(section: Section, read: Read) -> str:
    said = f'<b dir="auto">{escape(section.heading)}</b>{escape(section.when)}'
    kind = ' class="user"' if section.is_user else ""
    show = _shown_note if section.are_notes else _shown
    pieces: list[str] = []
    for _, group in groupby(section.blocks, lambda each: isinstance(each, PictureLabel)):
        blocks = list(group)
        figures = [_figure(each, read) for each in blocks if isinstance(each, PictureLabel)]
        pieces += figures or [to_html(blocks, show)]
    body = "\n".join(pieces)
    side = _side(_is_right_to_left(section))
    return (
        f'<section{kind}>\n<p class="author">{said}</p>\n'
        f'<div dir="{side}">\n{body}\n</div>\n</section>\n'
    )


def _figure(label: PictureLabel, read: Read) -> str:
    """A picture with its words, or the words alone."""
    words, image = to_html([label]), label.image
    content = read(image.sha256) if 0 < image.size_bytes <= MOST_PICTURE_BYTES else b""
    kind = media_type(content)
    if kind not in SHOWN_ANYWHERE or len(content) > MOST_PICTURE_BYTES:
        return words
    data = b64encode(content).decode("ascii")
    size = f' width="{image.width}" height="{image.height}"' if image.width else ""
    alt = escape(image_name(image))
    return (
        f'<figure><img src="data:{kind};base64,{data}" alt="{alt}"{size}>'
        f"<figcaption>{words}</figcaption></figure>"
    )


def _side(right_to_left: bool) -> str:
    """The value of `dir`."""
    return "rtl" if right_to_left else "ltr"


def _is_right_to_left(section: Section) -> bool:
    texts = (block for block in section.blocks if isinstance(block, Paragraph | Heading))
    first = next(texts, None)
    return first is not None and runs_right_to_left("".join(run.text for run in first.runs))


def _shown_note(what: Code | Formula | Run) -> str:
    """The number of a passage, where references to it lead."""
    if isinstance(what, Run) and (number := passage_number(what.link)):
        return f'<b id="passage-{number}">{escape(what.text)}</b>'
    return _shown(what)


def _shown(what: Code | Formula | Run) -> str:
    """The HTML of code, a formula or a reference; "" for code that is not highlighted."""
    if isinstance(what, Code):
        return _code_html(what)
    if isinstance(what, Run) and (number := passage_number(what.link)):
        return f'<a href="#passage-{number}">{escape(what.text)}</a>'
    is_block = isinstance(what, Formula)
    tex = Tex(what.tex, display=True) if is_block else inline_tex(what.text)
    try:
        picture = typeset(tex)
    except Wrong:
        source = escape(what.source if is_block else what.text, quote=False)
        tag = "p" if is_block else "span"
        return f'<{tag} class="tex">{source}</{tag}>'.replace("\n", "<br>\n")
    svg = _svg(picture)
    label = escape(tex.code)
    if is_block:
        return f'<div class="math" role="img" aria-label="{label}">{svg}</div>'
    return f'<span class="inline-math" role="img" aria-label="{label}">{svg}</span>'


def _svg(picture: Picture) -> str:
    """The picture in the colour of the text, in units of its size, on its baseline."""
    start = picture.svg.index(">", picture.svg.index("<svg")) + 1
    box = picture.svg[:start].partition('viewBox="')[2].partition('"')[0]
    height = picture.ascent + picture.descent
    inside = picture.svg[start:].replace(COLOR, "currentColor")
    return (
        f'<svg viewBox="{box}" width="{picture.width:.4f}em" height="{height:.4f}em"'
        f' style="vertical-align:{-picture.descent:.4f}em" aria-hidden="true">{inside}'
    )


def _code_html(code: Code) -> str:
    lexer = lexer_of(code.language) if len(code.text) <= _LONGEST_CODE else None
    if lexer is None:
        return ""
    lines = code.text.split("\n")
    made: list[str] = []
    for line, spans in zip(lines, exact_spans(lexer, code.text), strict=False):
        at = 0
        pieces: list[str] = []
        for start, length, role in spans:
            pieces.append(escape(line[at:start], quote=False))
            at = start + length
            pieces.append(f'<span class="{role}">{escape(line[start:at], quote=False)}</span>')
        made.append("".join([*pieces, escape(line[at:], quote=False)]))
    made += [escape(line, quote=False) for line in lines[len(made) :]]
    text = "\n".join(made)
    return f'<pre><code class="language-{escape(code.language)}">{text}\n</code></pre>'
