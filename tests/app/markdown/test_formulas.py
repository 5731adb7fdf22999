"""Formulas in markdown: which text is one, prices, blocks, streaming and HTML."""

from __future__ import annotations

import pytest

from app.markdown.blocks import Block, Code, Formula, Heading, Level, Paragraph, Run, Table
from app.markdown.export import to_html
from app.markdown.formulas import inline_tex
from app.markdown.stream import Stream, parse


def formulas_of(text: str) -> list[str]:
    """The sources of the inline formulas of a text of one paragraph."""
    (block,) = parse(text)
    assert isinstance(block, Paragraph)
    return [run.text for run in block.runs if run.formula]


def shown(block: Block) -> str:
    assert isinstance(block, Paragraph | Heading)
    return "".join(run.text for run in block.runs)


@pytest.mark.parametrize(
    "text",
    [
        "It costs $5 and $10.",
        "From $5 to $10, or $5-$10, or $5–$10.",
        "Between $1,000 and $2,000 ($3,000 at most).",
        "US$5 or US$6, CA$7/CA$8.",
        "10$/month or 100$/year",
        "5$ and 6$ more",
        "$AAPL and $MSFT rose; $PATH:$HOME too.",
        r"Escaped: \$x\$ and \$5.",
        "A lone $ sign, then $x without an end.",
        "`$x$` and `\\(y\\)` in code",
        "No formula $x\ny$ over a line break.",
        "$5 (€4), £3$4",
        "Open http://${HOST}:${PORT}/ or ${HOST}/${PATH}.",
        "Use $.get()/$.post() and $(this).hide();$('#a').show().",
        "The fee is $40 (about 55 A$), and $5k, or 6k$.",
        "It is $40 net, US$45/CA$60 gross; $1 each, 2 for 1.50$.",
        "docker run -v $(pwd):$(pwd) and $(A)$(B)",
        "Shell: $?/$!, $@ and $#.",
        "PHP: $row[$i], $a,$b and $this->a.$b",
        "${name} costs ${price} or 10$.",
        "价格$5和$6，从$5到10$。",
        "(1.58 g/L, ~$0.79/m³ gross). MgO ($300/t), $1M.",
        "ROWS($A$1:$A$9)",
    ],
)
def test_prices_and_code_are_text(text: str) -> None:
    assert formulas_of(text) == []


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        ("Let $x$ and $y_1$.", ["$x$", "$y_1$"]),
        (r"So \(a_1 * b_2 * c\) holds.", [r"\(a_1 * b_2 * c\)"]),
        ("($n$), $100$, **$b$**, $a$-$b$", ["$n$", "$100$", "$b$", "$a$", "$b$"]),
        (r"It costs $5 and $x_1 \le 6$.", [r"$x_1 \le 6$"]),
        (r"Escaped in one: $\$5 + x$.", [r"$\$5 + x$"]),
        ("\\(a\nb\\)", ["\\(a\nb\\)"]),
        (r"$x$. Then $y$, ($z$); $\%$ and $3 cm$.", ["$x$", "$y$", "$z$", r"$\%$", "$3 cm$"]),
        (
            r"${n \choose k}$, ${n}$, $\{a\}$ and $2 \sin x$",
            [r"${n \choose k}$", "${n}$", r"$\{a\}$", r"$2 \sin x$"],
        ),
        (r"$x^+$, $f'$, $n!$, $|a|$ and $0.5$", ["$x^+$", "$f'$", "$n!$", "$|a|$", "$0.5$"]),
        ("设$x$为数，$x+1$是下一个。", ["$x$", "$x+1$"]),
        ("$1 + 2A$ and $10 mod 3$", ["$1 + 2A$", "$10 mod 3$"]),
        (r"where $$x$$ is and \[y\] is", ["$$x$$", r"\[y\]"]),
        (r"\([0, 1) \cup (2, 3]\) and \(f(x)\)", [r"\([0, 1) \cup (2, 3]\)", r"\(f(x)\)"]),
    ],
)
def test_inline_formulas_keep_their_source(text: str, sources: list[str]) -> None:
    assert formulas_of(text) == sources


def test_inline_tex_has_no_delimiters() -> None:
    found = [inline_tex(source) for source in ("$x$", r"\( x \)", "$$x$$", r"\[x\]")]
    assert [tex.code for tex in found] == ["x"] * 4
    assert [tex.display for tex in found] == [False, False, True, True]


def test_formulas_in_headings_links_tables_and_emphasis() -> None:
    head, table, text = parse(
        "# Of $x$\n\n| a | $b$ |\n|---|---|\n| $c$ | d |\n\n**The $d_1$** [$e$](http://x.y)"
    )
    assert isinstance(head, Heading)
    assert head.runs == (Run("Of "), Run("$x$", formula=True))
    assert isinstance(table, Table)
    assert table.header[1] == (Run("$b$", formula=True),)
    assert table.rows[0][0] == (Run("$c$", formula=True),)
    assert isinstance(text, Paragraph)
    assert Run("$d_1$", bold=True, formula=True) in text.runs
    assert Run("$e$", link="http://x.y", formula=True) in text.runs


@pytest.mark.parametrize(
    ("source", "tex"),
    [
        ("$$x$$", "x"),
        ("$$\nx\n$$", "x"),
        ("\\[\nx = y\n\\]", "x = y"),
        ("\\[ x \\].", "x."),
        ("$$\na\n- b\n+ c\n= d\n$$", "a\n- b\n+ c\n= d"),
        ("\\[\\begin{pmatrix} a \\\\[2pt] b \\end{pmatrix}\\]",
         "\\begin{pmatrix} a \\\\[2pt] b \\end{pmatrix}"),
        ("$$\n# 1 \\$ & `2`\n$$", "# 1 \\$ & `2`"),
    ],
)  # fmt: skip
def test_formula_on_lines_of_its_own_is_a_block(source: str, tex: str) -> None:
    (block,) = parse(source)
    assert isinstance(block, Formula)
    assert (block.source, block.tex) == (source, tex)
    before, formula, after = parse(f"So:\n{source}\nwhere *x* is.")
    assert isinstance(formula, Formula)
    assert formula.tex == tex
    assert (shown(before), shown(after)) == ("So:", "where x is.")
    assert formula.place.start == 1


def test_formula_blocks_in_lists_and_quotes() -> None:
    blocks = parse("1. One:\n   \\[\n   x\n   \\]\n2. Two\n\n> $$\n> y\n> $$")
    found = [block for block in blocks if isinstance(block, Formula)]
    assert [block.tex for block in found] == ["x", "y"]
    assert found[0].place.path == (Level(quote=False, begins=False),)
    assert found[1].place.path == (Level(quote=True, begins=True),)


@pytest.mark.parametrize(
    "source",
    ["$$\nx\n\ny\n$$", "$$\nx", "$$", "$$$$", "\\[\n\\]", "$$\n```\nx\n```", "$$\n" + "a\n" * 2000 + "$$"],
)  # fmt: skip
def test_formula_that_is_not_closed_is_text(source: str) -> None:
    assert not any(isinstance(block, Formula) for block in parse(source))


def test_code_block_after_an_open_formula_stays_code() -> None:
    blocks = parse("$$\nx\n```py\ny\n```")
    assert isinstance(blocks[-1], Code)


@pytest.mark.parametrize(
    ("partial", "seen"),
    [
        (r"so \(a_1 * b", r"so \(a_1 * b"),
        (r"**so \(a*", r"so \(a*"),
        ("so $$a_1 * b", "so $$a_1 * b"),
        (r"so $x*y$ is *it", "so $x*y$ is it"),
        ("$$\na *b", "$$\na *b"),
        (r"\[ a *b", r"\[ a *b"),
        (r"\(a_1 *b", r"\(a_1 *b"),
        (r"> \[ a *b", r"\[ a *b"),
        (r"in \( [0, 1", r"in \( [0, 1"),
    ],
)
def test_open_formula_shows_its_source_while_streaming(partial: str, seen: str) -> None:
    stream = Stream()
    stream.feed(partial)
    (block,) = stream.blocks
    assert shown(block) == seen


def test_formula_appears_once_it_is_closed() -> None:
    stream = Stream()
    stream.feed("$$\nx\n$")
    assert isinstance(stream.blocks[0], Paragraph)
    stream.feed("$")
    (block,) = stream.blocks
    assert isinstance(block, Formula)


def test_html_has_the_source() -> None:
    html = to_html(parse("So $a<b$:\n$$\nx_1 * y_1\n$$"))
    assert html == "<p>So $a&lt;b$:</p>\n<p>$$<br>\nx_1 * y_1<br>\n$$</p>"
