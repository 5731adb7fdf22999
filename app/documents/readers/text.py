"""Reader of text, code and logs of any encoding; form feeds divide a plain text into pages."""

from __future__ import annotations

import re
from pathlib import Path

from app.documents.decoding import load
from app.documents.source import Source
from app.domain.documents import Document, DocumentKind, Page, PageUnit

_CODE = (
    " .ada .asm .astro .awk .bash .bat .bib .c .cc .cfg .cjs .clj .cmake .cmd .coffee .conf .cpp .cs"
    " .css .cu .cuh .cxx .d .dart .diff .dockerfile .el .elm .erl .ex .exs .f .f90 .fish .fs .glsl"
    " .go .gradle .graphql .groovy .h .hcl .hh .hpp .hs .hxx .ini .ipp .java .jl .js .jsx .kt .kts"
    " .less .lisp .lua .m .make .metal .mjs .mk .ml .mm .nim .nix .pas .patch .php .pl .pm .plist"
    " .properties .proto .ps1 .py .pyi .pyx .qml .r .rb .rs .rst .s .sass .scala .scm .scss .sh .sol"
    " .sql .svelte .svg .swift .tcl .tex .tf .toml .ts .tsx .v .vb .vhd .vim .vue .wgsl .wsdl .xaml"
    " .xml .xsd .xsl .yaml .yml .zig .zsh "
)
_CODE_NAMES = frozenset(
    ("makefile", "dockerfile", "cmakelists.txt", "rakefile", "gemfile", "jenkinsfile", ".gitignore")
)
_CODE_START = re.compile(r"\s*(?:#!\s*/|<\?(?:php|xml)\b|#\s*include\s*[<\"]|package\s+\w+;?\n)")
_CODE_LINE = re.compile(
    r"[ \t]*(?:(?:def|class|import|from|function|const|let|var|public|private|static|return|using"
    r"|struct|fn|func|package|elif|else:|if\s*\(|for\s*\(|while\s*\()\b.*[:;{}()\w\"']$"
    r"|.*[;{}]$|//|/\*|\*/)"
)
_LOG_LINE = re.compile(
    r"[\[(<]?(?:\d{4}[-/.]\d\d[-/.]\d\d[T ]\d\d:\d\d|\d\d:\d\d:\d\d[.,\] ]"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d |(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL)\b"
    r"|\S{1,64} \S{1,64} \S{1,64} \[\d\d/[A-Z][a-z]{2}/\d{4}:)"
)
_SHOWN_LINES = 60  # by which a text without a telling name is judged


def read(source: Source) -> Document:
    """The text of a file. Raises ExtractionError if it is no text."""
    decoded = load(source)
    kind = _kind(source, decoded.text)
    if kind is DocumentKind.TEXT and "\f" in decoded.text.strip("\f\n"):
        texts = decoded.text.rstrip("\f\n").split("\f")
        pages = tuple(Page(str(at), text.strip("\n")) for at, text in enumerate(texts, 1))
        return Document(kind, pages, PageUnit.PAGE, warnings=decoded.warnings)
    return Document(kind, (Page("", decoded.text),), warnings=decoded.warnings)


def _kind(source: Source, text: str) -> DocumentKind:
    """Whether it is code, a log or plain text: by the name, then by how its lines look."""
    name = Path(source.name or source.path.name).name.lower()
    if f" {source.suffix} " in _CODE or name in _CODE_NAMES or _CODE_START.match(text[:400]):
        return DocumentKind.CODE
    if source.suffix == ".log" or re.search(r"\.log\.\d+$", name) or name == "syslog":
        return DocumentKind.LOG
    lines = [line[:400].rstrip() for line in text[:20_000].split("\n") if line.strip()]
    lines = lines[:_SHOWN_LINES]
    if len(lines) >= 4:
        if sum(bool(_LOG_LINE.match(line)) for line in lines) >= 0.6 * len(lines):
            return DocumentKind.LOG
        if sum(bool(_CODE_LINE.match(line)) for line in lines) >= 0.6 * len(lines):
            return DocumentKind.CODE
    return DocumentKind.TEXT
