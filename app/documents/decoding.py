"""Text of bytes in any encoding: byte order marks, UTF-8, declared encodings, then statistics.

Strict UTF-8 is tried first, on the whole text and not only on its beginning. Other texts are
detected by `chardet`, whose letter statistics cover more languages and encodings than tables of
our own would. Line ends become "\n"; tabs and form feeds stay.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from unicodedata import category

import chardet

from app.documents.source import (
    MOST_CHARACTERS,
    MOST_TEXT_BYTES,
    ExtractionError,
    ExtractionFault,
    Look,
    Source,
)
from app.documents.wide import wide_encoding
from app.domain.documents import DocumentWarning, Warned

_BLOCK = 1 << 20  # bytes read at once
_SAMPLE = 1 << 18  # bytes of lines that are not ASCII, by which an encoding is judged
_FEW = 6  # bytes that are not ASCII: so few do not tell a language
# What is declared or found as the first is written by programs that mean the second.
_SUPERSETS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "gb2312": "gb18030",
    "gbk": "gb18030",
}
# Those that files are in; more of them, of mainframes or small regions, hide these in short texts.
_USUAL = (
    *("cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258"),
    *("iso8859-1", "iso8859-2", "iso8859-5", "iso8859-6", "iso8859-7", "iso8859-8", "iso8859-9"),
    *("iso8859-15", "iso8859-16", "koi8-r", "koi8-u", "cp437", "cp850", "cp852", "cp855"),
    *("cp862", "cp865", "cp866", "cp874", "cp1125", "mac-roman", "mac-cyrillic", "mac-latin2"),
    *("mac-greek", "mac-turkish", "cp932", "euc_jis_2004", "shift_jis_2004", "gb18030"),
    *("big5hkscs", "cp949", "euc_kr", "johab"),
)
# Escape sequences of terminals (colours, titles), and characters that are no text.
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;:?]{0,64}[ -/]?[@-~]|\][^\x07\x1b\n]{0,256}(?:\x07|\x1b\\)?)")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ufeff\ufffe\uffff]")
_MARKED = re.compile(r"(?<=(.))([^\x00-\x7f])", re.DOTALL)  # and what is before it
_TYPOGRAPHIC = re.compile(
    r"[\x00-\x7f\xa0\xa3\xa7\xa9\xab\xae\xb0\xb7\xbb\u2010-\u2026\u20ac\u2122]*"
)
_WIDE = ((2, re.compile("[\u0100-\uffff]")), (4, re.compile("[\U00010000-\U0010ffff]")))
_SURROGATES = re.compile(r"[\ud800-\udfff]")
_CODING = re.compile(rb"^[ \t\f]*#.{0,80}?coding[:=][ \t]*([-\w.]{1,40})")
_XML = re.compile(rb"\s*<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([-\w.:]{1,40})")
_META = re.compile(rb"<meta[^>]{0,400}?charset\s*=\s*[\"']?\s*([-\w.:]{1,40})", re.IGNORECASE)
_JAPANESE = re.compile(rb"\x1b\$[@B]|\x1b\([JI]")  # of ISO-2022-JP, whose bytes are ASCII


@dataclass(frozen=True, slots=True)
class Decoded:
    """A text, the encoding it was in, and what the user should know of it."""

    text: str
    encoding: str
    sure: bool = True
    cut: bool = False

    @property
    def warnings(self) -> tuple[Warned, ...]:
        """Those of its encoding and length, and that it is empty."""
        made: list[Warned] = []
        if not self.sure:
            made.append(Warned(DocumentWarning.UNSURE_ENCODING))
        if self.cut:
            made.append(Warned(DocumentWarning.CUT))
        if not self.text.strip():
            made.append(Warned(DocumentWarning.EMPTY))
        return tuple(made)


def clean(text: str) -> str:
    """A text without control characters, terminal escapes, marks of order and lone surrogates."""
    if not text.isprintable():  # a cheap no for most short texts
        if "\x1b" in text:
            text = _ESCAPES.sub("", text)
        text = _CONTROLS.sub("", text)
        text = _SURROGATES.sub("\ufffd", text)
    return text


def declared(head: bytes) -> str:
    """The encoding that the beginning of an XML, HTML or Python text names; "": none."""
    if found := _XML.match(head[:1000]) or _META.search(head[:4096]):
        return found[1].decode("ascii")
    for line in head[:400].split(b"\n", 2)[:2]:
        if found := _CODING.match(line):
            return found[1].decode("ascii")
    return ""


def known(encoding: str) -> str:
    """The codec that a declared name means, which may be a superset of it; "": none."""
    try:
        name = codecs.lookup(encoding.strip()).name
        "".encode(name)  # not those from bytes to bytes
    except (LookupError, ValueError, UnicodeError):
        return ""
    return "" if name in ("idna", "punycode", "undefined") else _SUPERSETS.get(name, name)


def decode(data: bytes, encoding: str = "") -> Decoded:
    """The text of bytes; `encoding` is a declared one, which counts where it fits."""
    return _decode(lambda: iter((data,)), data[: 1 << 16], encoding)


def load(source: Source, encoding: str = "", most: int = MOST_CHARACTERS) -> Decoded:
    """The text of a file, at most `most` characters, in memory that does not grow beyond it.

    `encoding` is a declared one; without it, what the text says of itself counts.
    Raises ExtractionError if it is no text.
    """

    def blocks() -> Iterator[bytes]:
        with source.open() as file:
            while data := file.read(_BLOCK):
                yield data

    made = _decode(blocks, source.head, encoding or declared(source.head), most)
    if not is_text(made.text[:_BLOCK]):
        raise ExtractionError(ExtractionFault.UNKNOWN, Look.BINARY)
    return Decoded(clean(made.text), made.encoding, made.sure, made.cut)


def is_text(text: str) -> bool:
    """Whether decoded characters are a text: few are controls or cannot be characters at all."""
    if not text:
        return True
    wrong = len(_CONTROLS.findall(_ESCAPES.sub("", text))) + text.count("\ufffd")
    return wrong <= 2 + len(text) // 50


def _decode(
    blocks: Callable[[], Iterator[bytes]],
    head: bytes,
    encoding: str,
    most: int = MOST_CHARACTERS,
) -> Decoded:
    if wide := wide_encoding(head):
        text, cut = _run(blocks, wide.encoding, most, skip=wide.mark, errors="replace")
        return Decoded(text, wide.encoding, "\ufffd" not in text, cut)
    named = known(encoding) if encoding else ""
    if named.startswith(("utf-16", "utf-32")):
        named = ""  # neither a mark nor zeros say so
    if named.startswith(("iso2022", "hz")) or (not named and _JAPANESE.search(head)):
        name = named or "iso2022_jp_ext"
        try:
            return Decoded(*_ordered(_run(blocks, name, most), name))
        except UnicodeError:
            pass
    try:
        return Decoded(*_ordered(_run(blocks, "utf-8", most), "utf-8"))
    except UnicodeError:
        pass
    sample, good, bad = _sampled(blocks, most)
    if good > bad:
        return _mixed(blocks, sample, most)
    name, sure = (named, True) if named and _fits(sample, named) else guess(sample)
    text, cut = _run(blocks, name, most, errors="replace")
    return Decoded(text, name, sure and "\ufffd" not in text, cut)


def _ordered(read: tuple[str, bool], name: str) -> tuple[str, str, bool, bool]:
    text, cut = read
    return text, name, True, cut


def _run(
    blocks: Callable[[], Iterator[bytes]],
    name: str,
    most: int,
    skip: int = 0,
    errors: str = "strict",
) -> tuple[str, bool]:
    """Decode blocks up to `most` characters: the text, and whether there was more.

    All characters of a text take as many bytes of memory as its widest one. It is cut before that
    is more than `MOST_TEXT_BYTES`.
    """
    decoder = io.IncrementalNewlineDecoder(
        codecs.getincrementaldecoder(name)(errors), translate=True
    )
    made: list[str] = []
    length, width = 0, 1
    for block in blocks():
        part = decoder.decode(block[skip:])
        skip = 0
        for each, pattern in _WIDE:
            if width < each and not part.isascii() and pattern.search(part):
                width = each
        left = min(most, MOST_TEXT_BYTES // width) - length
        if len(part) > left:
            return "".join((*made, part[: max(left, 0)])), True
        made.append(part)
        length += len(part)
    made.append(decoder.decode(b"", final=True))
    return "".join(made), False


def _lines(blocks: Callable[[], Iterator[bytes]]) -> Iterator[bytes]:
    """Lines with their ends, in pieces of at most a block."""
    rest = b""
    for block in blocks():
        *whole, rest = (rest + block).splitlines(keepends=True)
        yield from whole
        if len(rest) > _BLOCK:
            yield rest
            rest = b""
    if rest:
        yield rest


def _sampled(blocks: Callable[[], Iterator[bytes]], most: int) -> tuple[bytes, int, int]:
    """Lines that are not ASCII; their characters of valid UTF-8, and the bytes that are none."""
    made: list[bytes] = []
    length = seen = good = bad = 0
    for line in _lines(blocks):
        seen += len(line)
        if not line.isascii():
            piece = line[: _SAMPLE - length]
            made.append(piece)
            length += len(piece)
            text = piece.decode("utf-8", "replace")
            wrong = text.count("\ufffd")
            bad += wrong
            good += sum(map(len, re.findall(r"[^\x00-\x7f]+", text))) - wrong
        if length >= _SAMPLE or seen > 4 * most:
            break
    return b"".join(made), good, bad


def _fits(sample: bytes, name: str) -> bool:
    text = sample.decode(name, "replace")
    return text.count("\ufffd") <= 1 + len(text) // 1000 and is_text(text)


def guess(sample: bytes) -> tuple[str, bool]:
    """The legacy encoding of bytes by the statistics of letters, and whether it is sure.

    With few bytes above 127, such as the quotes of an English text, letter statistics are unsure:
    then the neighbours of these bytes decide, and Windows encodings come before older ones.
    """
    marks = len(re.findall(rb"[\x80-\xff]", sample[:4096]))
    fits: list[tuple[float, str, str]] = []  # how well, its name, the text
    for each in chardet.detect_all(
        sample,
        ignore_threshold=True,
        max_bytes=_SAMPLE,
        compat_names=False,
        include_encodings=_USUAL,
    ):
        if name := known(each["encoding"] or ""):
            text = sample[:4096].decode(name, "replace")
            weight = 1.1 if name == "cp1252" and marks <= _FEW else 1.0
            if _TYPOGRAPHIC.fullmatch(text):
                weight *= 10
            fits.append((each["confidence"] * weight * 0.02 ** _oddness(text), name, text))
    if not fits:
        return "cp1252", False
    best, name, text = max(fits, key=lambda each: each[0])
    second = max((other for other, _, other_text in fits if other_text != text), default=0.0)
    return name, marks > 8 * _FEW or best > (1.1 + 0.5 / max(marks, 1)) * second


def _oddness(text: str) -> float:
    """How many of the marks and letters that are not ASCII stand where they do not: 0 to 1."""
    odd = count = 0
    for found in _MARKED.finditer("\n" + text):
        before, each, after = found[1], found[2], text[found.end() - 1 : found.end()]
        count += 1
        if each.isalpha():
            odd += (
                (each.isupper() and before.islower())
                or (each.islower() and after.isupper())
                or (each > "\u036f" and (_is_latin(before) or _is_latin(after)))
            )
        elif category(each) in ("Cc", "Cn", "Co", "So", "Sk", "Sm", "No"):
            odd += category(each) in ("Cc", "Cn", "Co") or before.isalpha() or after.isalpha()
        elif category(each) in ("Pi", "Ps"):
            odd += before.isalnum()
        elif category(each) in ("Po", "Pd", "Pf", "Pe") and each not in "\u2019\u2014\xb7":
            odd += before.isalpha() and after.isalpha()
    return odd / max(count, 1)


def _is_latin(letter: str) -> bool:
    return letter.isalpha() and letter < "\u0250"


def _mixed(blocks: Callable[[], Iterator[bytes]], sample: bytes, most: int) -> Decoded:
    """UTF-8 with lines in another encoding, such as a log of several programs."""
    lines = [each for each in sample.splitlines(keepends=True) if not _is_utf8(each)]
    other, _ = guess(b"".join(lines))

    def recoded() -> Iterator[bytes]:
        for line in _lines(blocks):
            if _is_utf8(line):
                yield line
                continue
            text = line.decode("utf-8", "replace")
            wrong = text.count("\ufffd")
            marks = sum(map(len, re.findall(r"[^\x00-\x7f]+", text)))
            yield (text if marks > 2 * wrong else line.decode(other, "replace")).encode()

    text, cut = _run(recoded, "utf-8", most)
    return Decoded(text, "utf-8", False, cut)


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
