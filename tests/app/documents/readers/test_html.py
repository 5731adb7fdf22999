"""Web pages saved as files, as Markdown."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from app.domain.documents import DocumentKind
from text_files import HOSTILE, MOST_SECONDS, Read, reader, warned

PAGE = """<!DOCTYPE html><html><head><meta charset="utf-8"><title>Tides &amp; moons</title>
<style>p{}</style><script>if (a<b) document.write("<p>no</p>")</script></head><body>
<a class="skip-link" href="#main">Skip to content</a>
<header>The Site<nav><ul><li><a href="/">Home</a></li></ul></nav></header>
<div id="cookie-banner"><p>We use cookies.</p><button>OK</button></div>
<main><h1>Tides</h1><p>Water <em>rises</em> and&nbsp;falls <b>twice</b>
a day.</p><p>Read <a href="https://example.org/moon?x=1">about the moon</a>.</main>
<aside>Related: winds</aside><footer>© 2026 The Site</footer></body></html>"""
TIDES = """# Tides

Water rises and falls twice a day.

Read [about the moon](https://example.org/moon?x=1).

---

The Site

Related: winds

© 2026 The Site"""

PAGES = {
    "page": (PAGE, TIDES),
    "no body": ("just text<br>- one<br>- two", "just text\n- one\n- two"),
    "no end tags": ("<p>one<p>two<ul><li>a<li>b</ul><p>three", "one\n\ntwo\n\n- a\n- b\n\nthree"),
    "crossed": ("<p>a</p></p>b<div><b>c</div>d</b>", "a\n\nb\n\nc\n\nd"),
    "frames": (
        "<frameset cols=2><frame name=menu src=menu.html><frame src=https://example.org/>"
        "<noframes><body>This page has frames.</body></noframes></frameset>",
        "[menu](menu.html)\n\n[frame](https://example.org/)\n\nThis page has frames.",
    ),
    "lists": (
        "<ul><li>a<ul><li>a1<li>a2<p>more</p></ul></li><li>b</ul>"
        "<ol start=3><li>x<li value=7>y<li><p>z</p><p>zz</p></ol>",
        "- a\n  - a1\n  - a2\n\n    more\n- b\n\n3. x\n7. y\n8. z\n\n   zz",
    ),
    "tasks": (
        "<ul><li><input type=checkbox checked> done<li><input type=checkbox> open</ul>",
        "- [x] done\n- [ ] open",
    ),
    "terms": (
        "<dl><dt>Ebb<dd>The water falls.<dt>Flood<dd>It rises.</dl>",
        "Ebb\n: The water falls.\n\nFlood\n: It rises.",
    ),
    "table": (
        "<table><caption>Heights</caption><thead><tr><th>Port<th>m</thead>"
        "<tbody><tr><td>Brest<td>7,0<tr><td>a|b<td>two<br>lines</table>",
        "Heights\n\n| Port | m |\n| --- | --- |\n| Brest | 7,0 |\n| a\\|b | two<br>lines |",
    ),
    "spans": (
        "<table><tr><th>Day<th colspan=2>Tides<tr><td rowspan=2>Mon<td>1<td>2<tr><td>3<td>4</table>",
        "| Day | Tides |  |\n| --- | --- | --- |\n| Mon | 1 | 2 |\n|  | 3 | 4 |",
    ),
    "table without end tags": (
        "<table><tr><td>a<td>b<tr><td>c<td>d<tbody><tr><td>e<td>f</table>g",
        "| a | b |\n| --- | --- |\n| c | d |\n| e | f |\n\ng",
    ),
    "end tag within a cell of what is around the table": (
        "<div>x<table><tr><td>a</div> b<td>c<tr><td>d<td>e</table>y</div>z",
        "x\n\n| a b | c |\n| --- | --- |\n| d | e |\n\ny\n\nz",
    ),
    "nested tables": (
        "<table><tr><td><h2>Left</h2><td><table><tr><th>k<th>v<tr><td>1<td>2</table></table>",
        "## Left\n\n| k | v |\n| --- | --- |\n| 1 | 2 |",
    ),
    "layout table": (
        "<table role=presentation><tr><td>a<td>b<tr><td>c<td>d</table>",
        "a\n\nb\n\nc\n\nd",
    ),
    "code": (
        '<pre><code class="language-py">def f(a):\n    return a &lt; 2\n</code></pre>'
        "<p>Run <code>f(1)</code>.",
        "```py\ndef f(a):\n    return a < 2\n```\n\nRun `f(1)`.",
    ),
    "code with line numbers": (
        "<table><tr><td class=linenos><pre>1\n2</pre><td class=code><pre>x\ny</pre></table>",
        "```\nx\ny\n```",
    ),
    "code with fences": ("<pre>```\na\n```</pre>", "````\n```\na\n```\n````"),
    "quote": ("<blockquote><p>To be</p></blockquote>He <q>said</q>.", "> To be\n\nHe “said”."),
    "headings that link to themselves": (
        '<h2><a href="#a" class="anchor">§</a>A</h2><h2>B<a href="#b">¶</a></h2>5 <a href="#s">§</a>',
        "## A\n\n## B\n\n5",
    ),
    "quote of blocks": (
        "<blockquote><p>a<p>b<ul><li>c<li>d</ul><blockquote>e</blockquote></blockquote>f",
        "> a\n>\n> b\n>\n> - c\n> - d\n>\n> > e\n\nf",
    ),
    "same address": (
        'See <a href="https://example.org/">example.org</a> or <a href="mailto:a@b.c">a@b.c</a>.',
        "See example.org or a@b.c.",
    ),
    "addresses that lead nowhere": (
        '<a href="#top">up</a> <a href="javascript:go()">go</a> <a>plain</a> <a href="">none</a>',
        "up go plain none",
    ),
    "base": (
        '<base href="https://example.org/docs/"><a href="../a.html">a</a>',
        "[a](https://example.org/a.html)",
    ),
    "tracking": (
        f'<a href="https://example.org/a?{"u" * 300}">offer</a>',
        "[offer](https://example.org/a)",
    ),
    "link around blocks": (
        "<a href=https://example.org/x><h3>Title</h3><p>text</p></a>",
        "### Title\n\ntext\n\n(https://example.org/x)",
    ),
    "pictures": ('<p>See <img src="x.png" alt="a map"><img src="y.png" alt=""></p>', "See ![a map]"),
    "hidden": (
        "<p hidden>no<p>yes <span style='display: none'>no <span>n</span> o</span>still"
        "<div aria-hidden=true>no</div><dialog>no</dialog><template>no</template>",
        "yes still",
    ),
    "hidden until a script runs": (
        '<html><body style="visibility:hidden"><p>text</p></body>',
        "text",
    ),
    "all navigation": ("<nav><a href='a.html'>A</a> <a href='b.html'>B</a></nav>", "[A](a.html) [B](b.html)"),
    "navigation that never ends": ("<nav>menu<p>all the text", "menu\n\nall the text"),
    "wrapper named after its banner": (
        "<div class='cookie-banner-visible'><main><p>text</p></main></div>",
        "text",
    ),
    "cookies that are eaten": ("<div class='cookie-recipe'>Bake them.</div>", "Bake them."),
    "articles": (
        "<div>menu</div><article><h2>A</h2>a</article><article><h2>B</h2>b</article>",
        "## A\n\na\n\n## B\n\nb\n\n---\n\nmenu",
    ),
    "entities": (
        "&lt;b&gt; &amp;amp; &eacute;&#233;&#xE9; &#150; &#0; &nosuch; &copy2026 &#99999999;",
        "<b> &amp; ééé – \ufffd &nosuch; ©2026 &#99999999;",
    ),
    "formulas": (
        '<p><span class="katex"><math><mi>x</mi><annotation encoding="application/x-tex">x^2'
        '</annotation></math><span aria-hidden="true">x2</span></span> and '
        '<math alttext="y_1"><mi>y</mi></math>, 10<sup>6</sup>, H<sub>2</sub>O, note<sup>[1]</sup>',
        "$x^2$ and $y_1$, 10^6, H2O, note[1]",
    ),
    "readings": (
        "<ruby>漢字<rp>(</rp><rt>かんじ</rt><rp>)</rp></ruby>と<del>old</del>",
        "漢字(かんじ)と~~old~~",
    ),
    "soft hyphens": ("hy\u00adphen&shy;ated zero\u200bwidth &zwnj;", "hyphenated zerowidth \u200c"),
    "comments": ("a<!-- x > y -->b<!-->c<![CDATA[d<e]]>f<!doctype x>g<?php h ?>i", "abcd<efgi"),
    "comparison": ("if a < b and c > d or a<=b", "if a < b and c > d or a<=b"),
    "cut within a tag": ('<p>text</p><a href="https://exam', 'text\n\n<a href="https://exam'),
    "quotes in attributes": ("<p title='a > b' data-x=\"<p>\">text", "text"),
    "upper case": ("<P>A<BR>B<TABLE><TR><TD>1<TD>2<TR><TD>3<TD>4</TABLE>", "A\nB\n\n| 1 | 2 |\n| --- | --- |\n| 3 | 4 |"),
    "xhtml": (
        '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title/></head>'
        '<body><p><a id="x"/>text<script src="a.js"/> more</p></body></html>',
        "text more",
    ),
    "form": (
        "<form>Name <input name=n><select><option>Afghanistan<option>Albania</select>"
        "<textarea>typed</textarea><button>Send</button></form>",
        "Name typed\n\nSend",
    ),
    "details": ("<details><summary>More</summary><p>inside</p></details>", "More\n\ninside"),
    "headings with breaks": ("<h1>A<br>B</h1><h2>C<p>d", "# A B\n\n## C\n\nd"),
}  # fmt: skip


@pytest.fixture
def html(tmp_path: Path) -> Read:
    return reader(tmp_path, "html")


@pytest.mark.parametrize("name", PAGES)
def test_pages_read_as_markdown(html: Read, name: str) -> None:
    page, expected = PAGES[name]
    document = html(page, "page.html")
    assert document.kind is DocumentKind.HTML
    assert document.text == expected
    assert not document.warnings


def test_the_title_is_that_of_the_page(html: Read) -> None:
    assert html(PAGE).title == "Tides & moons"


@pytest.mark.parametrize(
    ("head", "encoding"),
    [
        ('<meta charset="windows-1251">', "cp1251"),
        ('<meta http-equiv="Content-Type" content="text/html; charset=koi8-r">', "koi8-r"),
        ('<meta charset="iso-8859-1">', "utf-8"),  # declared wrongly
        ("", "utf-16"),
        ("", "cp1251"),
    ],
)
def test_the_encoding_of_a_page(html: Read, head: str, encoding: str) -> None:
    page = f"<html><head>{head}</head><body><p>Привет, большой мир, как твои дела?</p></body>"
    assert html(page.encode(encoding)).text == "Привет, большой мир, как твои дела?"


@pytest.mark.parametrize("page", ["", "<html><body></body></html>", "<script>x()</script>"])
def test_a_page_without_text_is_said_to_be_empty(html: Read, page: str) -> None:
    assert warned(html(page)) == ["empty"]


MHTML = (
    "From: <Saved by a browser>\r\nSubject: Page\r\nMIME-Version: 1.0\r\n"
    'Content-Type: multipart/related; type="text/html"; boundary="--B"\r\n\r\n'
    "----B\r\nContent-Type: text/html; charset=utf-8\r\n"
    "Content-Transfer-Encoding: quoted-printable\r\n\r\n"
    "<title>T</title><p>Gr=C3=BC=\r\n=C3=9Fe</p>\r\n"
    "----B\r\nContent-Type: image/png\r\nContent-Transfer-Encoding: base64\r\n\r\niVBORw0KGgo=\r\n"
    "----B--\r\n"
)


def test_a_web_archive_is_its_page(html: Read) -> None:
    document = html(MHTML, "page.mhtml")
    assert (document.text, document.title) == ("Grüße", "T")


@pytest.mark.parametrize("size", HOSTILE)
@pytest.mark.parametrize(
    ("before", "piece"),
    [
        ("", "<"),
        ("", "<a "),
        ("<a ", "="),
        ("<a ", "= "),
        ("", "<!doctype["),
        ("<math><annotation encoding=tex>", "a<b>"),
        ("", "<!--"),
        ("", "<![CDATA["),
        ("", "<script>"),
        ("", '<a b="'),
        ("", "<div>a"),
        ("", "<nav>a"),
        ("", "<li>a"),
        ("", "&#"),
        ("", "<table><tr><td>"),
        ("", "<td rowspan=9999 colspan=999>abcdef</td>"),
        ("<ul><li>" * 90, "<li>a"),
        ("<blockquote><table><tr><td>" + "<div>" * 190, "</blockquote>"),
        ("<base href=http://x/y>", "<a href=z>b</a>"),
        ("<b>" * 9_000, "</i>"),
    ],
)
def test_hostile_markup_takes_time_that_grows_with_it(
    html: Read, before: str, piece: str, size: int
) -> None:
    begins = time.process_time()
    html(before + piece * (size // len(piece)))
    assert time.process_time() - begins < MOST_SECONDS
