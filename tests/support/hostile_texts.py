"""Hostile texts: web pages, messages, tables, notebooks, RTF and plain text that never ends."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

from small_documents import HTML, MAIL, NOTEBOOK, RTF, SRT

Make = Callable[[], bytes]
Files = dict[str, Make]


def hostile_texts(url: str, file: str) -> Files:
    """By their names; `url` and `file` are addresses that no reader may open."""
    web, local = url.encode(), file.encode()
    return {
        **_web_pages(web, local),
        **_messages(web, local),
        **_tables(),
        **_json(),
        **_rich_text(web),
        **_plain(),
        **_markdown(web),
    }


def _page(body: bytes) -> bytes:
    return b"<!DOCTYPE html><html><head><title>x</title></head><body>" + body + b"</body></html>"


def _web_pages(url: bytes, file: bytes) -> Files:
    outside = (
        b'<meta http-equiv="refresh" content="0;url=%s"><img src="%s"><iframe src="%s"></iframe>'
        b'<script src="%s"></script><link rel=stylesheet href="%s"><object data="%s"></object>'
        b'<base href="%s"><p>words</p>' % (url, url, file, url, url, file, url)
    )
    cells = b'<table><tr><td colspan="1000000000" rowspan="1000000000">x</td></tr></table>'
    nested = b"<table><tr><td>" * 20_000 + b"x" + b"</td></tr></table>" * 20_000
    return {
        "deep.html": lambda: _page(b"<div>" * 100_000 + b"x" + b"</div>" * 100_000),
        "unclosed.html": lambda: _page(b"<b><p>" * 300_000),
        "mixed.html": lambda: _page(b"<b><i></b></i>" * 100_000),
        "lists.html": lambda: _page(b"<ul><li>" * 50_000),
        "quotes.html": lambda: _page(b"<blockquote>x" * 30_000),
        "nestedtables.html": lambda: _page(nested),
        "spans.html": lambda: _page(cells * 50),
        "wide.html": lambda: _page(b"<table><tr>" + b"<td>x" * 300_000 + b"</table>"),
        "rows.html": lambda: _page(b"<table>" + b"<tr><td>x<td>y" * 100_000 + b"</table>"),
        "attribute.html": lambda: _page(b'<p title="' + b"x" * 20_000_000 + b'">y</p>'),
        "attributes.html": lambda: _page(b"<p " + b"a=b " * 500_000 + b">y</p>"),
        "comments.html": lambda: _page(b"<!--" * 500_000),
        "commentends.html": lambda: b"<!---->" * 200_000 + b"<html>x",
        "lessthan.html": lambda: _page(b"<" * 2_000_000),
        "entities.html": lambda: _page(b"&#x110000;&#0;&#xD800;&#99999999999999999;&amp" * 50_000),
        "ampersands.html": lambda: _page(b"&" * 1_000_000),
        "cdata.html": lambda: _page(b"<![CDATA[" * 200_000),
        "declarations.html": lambda: b"<!DOCTYPE html [" + b"<!ENTITY a 'b'>" * 100_000,
        "processing.html": lambda: _page(b"<?x " * 300_000),
        "script.html": lambda: _page(b"<script>" + b"while(1);</scrip" * 200_000),
        "style.html": lambda: _page(b"<style>" * 100_000),
        "textarea.html": lambda: _page(b"<textarea><title><xmp><plaintext>" * 50_000),
        "data.html": lambda: _page(
            b'<img src="data:image/png;base64,' + b"A" * 30_000_000 + b'"><p>x'
        ),
        "outside.html": lambda: _page(outside),
        "charset.html": lambda: b'<html><meta charset="zlib"><p>x\x9c',
        "charsets.html": lambda: b'<html><meta charset="utf-16"><p>\xe4\xf6 words',
        "nul.html": lambda: HTML.replace(b"e", b"e\0", 3),
        "breaks.html": lambda: _page(b"<br>" * 1_000_000),
        "spaces.html": lambda: _page(b"<p>" + b" \n" * 5_000_000 + b"</p>"),
        "links.html": lambda: _page(b'<a href="#">' * 100_000),
        "math.html": lambda: _page(b"<svg><math>" * 30_000 + b"<text>x"),
    }


def _headers(kind: bytes, more: bytes = b"") -> bytes:
    return (
        b"From: a@example.org\r\nTo: b@example.org\r\nSubject: x\r\nDate: x\r\n"
        b"MIME-Version: 1.0\r\nContent-Type: %s\r\n%s\r\n" % (kind, more)
    )


def _nested_parts(depth: int) -> bytes:
    body = b"".join(
        b"--b%d\r\nContent-Type: multipart/mixed; boundary=b%d\r\n\r\n" % (n, n + 1)
        for n in range(depth)
    )
    return _headers(b"multipart/mixed; boundary=b0") + body


def _messages(url: bytes, file: bytes) -> Files:
    mixed = b'multipart/mixed; boundary="b"'
    part = b"--b\r\nContent-Type: text/plain\r\n\r\nx\r\n"
    external = (
        b'--b\r\nContent-Type: message/external-body; access-type=URL; URL="%s"\r\n\r\n'
        b'--b\r\nContent-Type: text/html\r\n\r\n<img src="%s"><img src="%s">\r\n--b--'
        % (url, url, file)
    )
    evil = b'--b\r\nContent-Disposition: attachment; filename="../../../../tmp/evil"\r\n\r\nx\r\n'

    def charset(name: bytes, body: bytes = b"x\x9c") -> Make:
        return lambda: _headers(b"text/plain; charset=" + name) + body

    def encoded(how: bytes, body: bytes) -> Make:
        return lambda: _headers(b"text/plain", b"Content-Transfer-Encoding: %s\r\n" % how) + body

    def messages(count: int) -> bytes:
        return (b"From a Mon May  6 07:08:09 2024\r\n" + _headers(b"text/plain") + b"x\r\n") * count

    return {
        "nested.eml": lambda: _nested_parts(10_000),
        "nestedfew.eml": lambda: _nested_parts(100),
        "forwarded.eml": lambda: _headers(b"message/rfc822") * 2_000,
        "parts.eml": lambda: _headers(mixed) + part * 20_000,
        "noboundary.eml": lambda: _headers(b"multipart/mixed") + part * 10,
        "emptyboundary.eml": lambda: _headers(b'multipart/mixed; boundary=""') + b"--\r\n" * 10_000,
        "boundary.eml": lambda: _headers(b"multipart/mixed; boundary=" + b"b" * 100_000) + part,
        "headers.eml": lambda: _headers(b"text/plain", b"X-A: b\r\n" * 200_000) + b"x",
        "header.eml": lambda: _headers(b"text/plain", b"X-A: " + b"b " * 3_000_000 + b"\r\n"),
        "folded.eml": lambda: _headers(b"text/plain", b"X-A: b\r\n" + b" c\r\n" * 300_000),
        "addresses.eml": lambda: _headers(b"text/plain", b"Cc: " + b"<(" * 100_000 + b"\r\n"),
        "comments.eml": lambda: _headers(b"text/plain", b"Cc: " + b"((" * 5_000 + b"\r\n"),
        "groups.eml": lambda: _headers(b"text/plain", b"Cc: " + b"a:" * 50_000 + b"\r\n"),
        "words.eml": lambda: _headers(
            b"text/plain", b"X-Subject: " + b"=?utf-8?q?a?= " * 100_000 + b"\r\n"
        ),
        "subject.eml": lambda: MAIL.replace(b"Subject: ", b"Subject: " + b"=?x?" * 50_000),
        "parameters.eml": lambda: _headers(
            b"text/plain; " + b"; ".join(b"a*%d=b" % n for n in range(30_000))
        ),
        "date.eml": lambda: MAIL.replace(b"Mon, 6 May 2024", b"Mon, 99 May 999999999999"),
        "zlib.eml": charset(b"zlib"),
        "hex.eml": charset(b"hex", b"zz"),
        "rot13.eml": charset(b"rot13"),
        "idna.eml": charset(b"idna", b"xn--" * 20_000),
        "punycode.eml": charset(b"punycode", b"a-" + b"z" * 20_000),
        "escape.eml": charset(b"unicode_escape", b"\\N{" + b"a" * 10_000),
        "nocharset.eml": charset(b"no-such-charset"),
        "utf7.eml": charset(b"utf-7", b"+ADw-script+AD4-" * 1_000),
        "base64.eml": encoded(b"base64", b"!" * 3_000_000),
        "base64lines.eml": encoded(b"base64", base64.b64encode(b"x" * 5_000_000)),
        "quoted.eml": encoded(b"quoted-printable", b"=\r\n" * 1_000_000 + b"=zz"),
        "uu.eml": encoded(b"x-uuencode", b"begin 644 ../../evil\r\n" + b"M" * 100_000),
        "names.eml": lambda: _headers(mixed) + evil * 100 + b"--b--",
        "external.eml": lambda: _headers(mixed) + external,
        "delivery.eml": lambda: _headers(b"multipart/report; boundary=b")
        + b"--b\r\nContent-Type: message/delivery-status\r\n\r\n" + b"A: b\r\n\r\n" * 50_000,
        "many.mbox": lambda: messages(5_000),
        "froms.mbox": lambda: b"From a b\r\n" * 5 + messages(2) + b"\r\nFrom x\r\n" * 200_000,
        "page.mhtml": lambda: _headers(b'multipart/related; boundary="b"') + b"--b\r\n" * 50_000,
        "outside.mhtml": lambda: _headers(b'multipart/related; boundary="b"')
        + b"--b\r\nContent-Type: text/html\r\nContent-Location: %s\r\n\r\n<img src='%s'>x\r\n--b--"
        % (url, url),
    }  # fmt: skip


def _tables() -> Files:
    return {
        "oneline.csv": lambda: b"x" * 100_000_000,
        "commas.csv": lambda: b"," * 20_000_000,
        "quotes.csv": lambda: b'"' * 10_000_001,
        "unclosed.csv": lambda: b'a,b\n1,"' + b"x,y\n" * 5_000_000,
        "columns.csv": lambda: b"a," * 300_000 + b"\n" + b"1," * 300_000,
        "rows.csv": lambda: b"a,b\n" * 2_000_000,
        "returns.csv": lambda: b"a,b\r" * 100_000,
        "nul.csv": lambda: b"a,b\n" * 100 + b"1\0,2\n" * 2,
        "delimiters.csv": lambda: b"a;b,c\td|e:f\n" * 10_000,
        "ragged.csv": lambda: b"".join(b"x," * (n % 300) + b"\n" for n in range(5_000)),
        "tabs.tsv": lambda: b"\t" * 5_000_000 + b"x",
        "numbers.csv": lambda: b"a,b\n" + b"9" * 5_000_000 + b",1e999999999\n",
    }


def _json() -> Files:
    def notebook(**cell: object) -> bytes:
        made = json.loads(NOTEBOOK)
        made["cells"][1] |= cell
        return json.dumps(made).encode()

    picture = {"output_type": "display_data", "data": {"image/png": "A" * 30_000_000,
               "text/plain": ["words"]}, "metadata": {}}  # fmt: skip
    stream = {"output_type": "stream", "name": "stdout", "text": ["line\n"] * 1_000_000}
    ansi = {"output_type": "error", "ename": "E", "evalue": "x",
            "traceback": ["\x1b[0;31m" * 100_000]}  # fmt: skip
    return {
        "deep.json": lambda: b"[" * 1_000_000 + b"]" * 1_000_000,
        "deepobjects.json": lambda: b'{"a":' * 300_000 + b"1" + b"}" * 300_000,
        "number.json": lambda: b'{"a": ' + b"9" * 5_000_000 + b"}",
        "exponent.json": lambda: b'{"a": 1e999999999, "b": -0, "c": NaN, "d": Infinity}',
        "keys.json": lambda: b"{" + b'"a": 1,' * 1_000_000 + b'"b": 2}',
        "strings.json": lambda: b'["' + b"\\ud800" * 1_000_000 + b'"]',
        "array.json": lambda: b"[" + b"0," * 5_000_000 + b"0]",
        "lines.jsonl": lambda: b'{"a": 1}\n' * 200_000 + b"{broken\n" * 100,
        "linesdeep.jsonl": lambda: b'{"a": 1}\n' + b"[" * 500_000,
        "open.json": lambda: b'{"a": "' + b"x" * 10_000_000,
        "backslashes.json": lambda: b'{"a": "' + b"\\" * 3_000_001,
        "utf16.json": lambda: '{"a": "ü"}'.encode("utf-16"),
        "nul.json": lambda: b'{"a": "' + b"\\u0000" * 100_000 + b'"}',
        "picture.ipynb": lambda: notebook(outputs=[picture]),
        "stream.ipynb": lambda: notebook(outputs=[stream] * 10),
        "outputs.ipynb": lambda: notebook(outputs=[{"output_type": "x"}] * 100_000),
        "ansi.ipynb": lambda: notebook(outputs=[ansi]),
        "source.ipynb": lambda: notebook(source={"not": ["a", "list"]}),
        "kinds.ipynb": lambda: notebook(cell_type=7, outputs="text", metadata=[1]),
        "cells.ipynb": lambda: b'{"cells": {"a": 1}, "nbformat": 4}',
        "cellsnull.ipynb": lambda: b'{"cells": [null, 1, "x", [], {}], "nbformat": "4"}',
        "version.ipynb": lambda: b'{"worksheets": [{"cells": 5}], "nbformat": 2, "cells": null}',
        "deep.ipynb": lambda: b'{"cells": ' + b"[" * 200_000 + b', "nbformat": 4}',
        "fences.ipynb": lambda: notebook(source="```\n" * 100_000),
    }


def _rich_text(url: bytes) -> Files:
    linked = b'{\\field{\\*\\fldinst INCLUDEPICTURE "%s"}{\\fldrslt x}}' % url
    return {
        "deep.rtf": lambda: b"{\\rtf1" + b"{" * 1_000_000 + b"x" + b"}" * 1_000_000 + b"}",
        "open.rtf": lambda: b"{\\rtf1 " + b"{\\b " * 500_000,
        "closed.rtf": lambda: b"{\\rtf1 x" + b"}" * 500_000 + b"after",
        "bin.rtf": lambda: b"{\\rtf1 a\\bin2147483647 b}",
        "binnegative.rtf": lambda: b"{\\rtf1 a\\bin-99999999999999999999 b}" * 3,
        "unicode.rtf": lambda: b"{\\rtf1\\uc99999 " + b"\\u-32768?\\u99999999?" * 50_000 + b"}",
        "parameters.rtf": lambda: b"{\\rtf1\\fs" + b"9" * 1_000_000 + b" x}",
        "word.rtf": lambda: b"{\\rtf1\\" + b"a" * 5_000_000 + b" x}",
        "page.rtf": lambda: RTF.replace(b"ansicpg1252", b"ansicpg99999"),
        "hex.rtf": lambda: b"{\\rtf1 " + b"\\'zz\\'" * 100_000 + b"}",
        "object.rtf": lambda: b"{\\rtf1{\\object{\\*\\objdata " + b"d0cf11e0" * 1_000_000 + b"}}x}",
        "picture.rtf": lambda: b"{\\rtf1{\\pict\\pngblip " + b"89504e47" * 2_000_000 + b"}x}",
        "table.rtf": lambda: b"{\\rtf1\\trowd " + b"\\cellx1" * 100_000 + b"x\\cell" * 100_000
        + b"\\row}",
        "rows.rtf": lambda: b"{\\rtf1 " + b"\\trowd\\cellx1 a\\cell\\row" * 100_000 + b"}",
        "nestedtables.rtf": lambda: b"{\\rtf1 " + b"\\trowd\\intbl\\itap9999 a\\nestcell" * 20_000,
        "outside.rtf": lambda: b"{\\rtf1 " + linked * 10 + b"{\\*\\template %s}}" % url,
        "fonts.rtf": lambda: b"{\\rtf1{\\fonttbl" + b"{\\f1\\fcharset255 x;}" * 100_000 + b"}x}",
        "slashes.rtf": lambda: b"{\\rtf1 " + b"\\" * 1_000_001,
        "destinations.rtf": lambda: b"{\\rtf1" + b"{\\*\\x y}" * 200_000 + b"}",
    }  # fmt: skip


def _plain() -> Files:
    def srt(line: bytes, times: int = 1) -> bytes:
        return SRT + b"41\r\n00:00:41,000 --> 00:00:42,000\r\n" + line * times + b"\r\n\r\n"

    cue = b"1\r\n99999999:99:99,999 --> 00:00:00,000\r\nx\r\n\r\n"
    return {
        "spaces.txt": lambda: b" " * 30_000_000 + b"x",
        "returns.txt": lambda: b"\r" * 5_000_000,
        "breaks.txt": lambda: b"\n" * 20_000_000,
        "controls.txt": lambda: b"word\x01\x02 and words that follow it here\n" * 10_000,
        "nul.txt": lambda: b"a long line of words without any odd characters" * 100 + b"\0" * 20,
        "overlong.txt": lambda: b"text \xc0\xaf\xe0\x80\xaf\xf8\x88\x80\x80\x80 text\n" * 1_000,
        "mark.txt": lambda: b"\xff\xfe",
        "halfutf16.txt": lambda: b"\xff\xfea\0b\0c",
        "surrogates.txt": lambda: b"\xff\xfe" + b"a\0\x00\xd8" * 10_000,
        "utf32.txt": lambda: b"\xff\xfe\0\0" + b"\xff\xff\xff\x7f" * 1_000,
        "combining.txt": lambda: b"a" + "\u0301".encode() * 5_000_000,
        "direction.txt": lambda: "\u202e\u2066\u2069".encode() * 100_000 + b"txt.exe",
        "latin.txt": lambda: bytes(range(128, 256)) * 1_000,
        "japanese.txt": lambda: "日本語の文章です。".encode("shift-jis") * 5_000,
        "escapes.log": lambda: b"2024-05-06 07:08:09 \x1b[31mERROR\x1b[0m x\n" * 50_000,
        "escape.log": lambda: b"\x1b[" + b"9;" * 2_000_000,
        "date.log": lambda: b"2024-05-06T07:08:09" * 500_000,
        "long.py": lambda: b"x = (" + b"(" * 1_000_000,
        "backslashes.py": lambda: b'"' + b"\\" * 3_000_000,
        "laughs.xml": lambda: b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><x>&b;</x>',
        "times.srt": lambda: cue * 50_000,
        "tags.srt": lambda: srt(b"<i><b><font color='", 100_000),
        "arrows.srt": lambda: srt(b"-->", 300_000),
        "digits.srt": lambda: srt(b"0", 5_000_000),
        "styles.ass": lambda: b"[Script Info]\n[Events]\nFormat: " + b"a," * 200_000
        + b"Text\nDialogue: " + b"{\\an8" * 200_000,
        "noformat.ass": lambda: b"[Script Info]\n[Events]\n" + b"Dialogue: 0,1,2\n" * 50_000,
        "notes.vtt": lambda: b"WEBVTT\n\n" + b"NOTE x\n\n" * 100_000,
        "times.vtt": lambda: b"WEBVTT\n\n" + b"00:00.000 --> " * 200_000,
        "cue.vtt": lambda: b"WEBVTT\n\n00:00.000 --> 00:01.000\n" + b"<v " * 300_000,
    }  # fmt: skip


def _markdown(url: bytes) -> Files:
    return {
        "brackets.md": lambda: b"[" * 500_000,
        "images.md": lambda: b"![a](%s) " % url * 1_000,
        "quotes.md": lambda: b"> " * 200_000 + b"x",
        "stars.md": lambda: b"*a **b " * 200_000,
        "ticks.md": lambda: b"".join(b"`" * n + b" " for n in range(1, 2_000)),
        "headings.md": lambda: b"# x\n" * 300_000,
        "front.md": lambda: b"---\n" + b"a: &a [*a,*a]\n" * 50_000,
        "table.md": lambda: b"|a" * 100_000 + b"\n" + b"|-" * 100_000 + b"\n",
        "lists.md": lambda: b"".join(b" " * n + b"- x\n" for n in range(2_000)),
    }
