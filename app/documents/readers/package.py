"""Safe reading of zip packages and of XML: what docx, odt, epub and their like are made of.

Nothing is written, no name leads outside, no entity is expanded and nothing is fetched; what
unpacks to more than the limits is refused while it is unpacked.
"""

from __future__ import annotations

import posixpath
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from html.entities import html5
from itertools import islice
from types import TracebackType
from urllib.parse import unquote
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from app.documents.source import ExtractionError, ExtractionFault, Source
from app.domain.documents import DocumentWarning, Warned

MOST_ENTRIES = 50_000
MOST_ENTRY_BYTES = 400_000_000  # of one entry, unpacked
MOST_UNPACKED_BYTES = 1_000_000_000  # of all entries that are read
MOST_RATIO = 200  # unpacked to packed bytes of an entry ...
RATIO_FROM_BYTES = 20_000_000  # ... that unpacks to more than this
DEEPEST = 250  # elements within each other
LONGEST_TOKEN = 16_000_000  # bytes of a tag with its attributes
CHUNK = 1 << 20  # bytes
MOST_SEARCHED_BYTES = 1 << 26  # of a file without a list of its entries

_ENTRY = re.compile(rb"PK\x03\x04(?=.{26})", re.DOTALL)
_HEADER = struct.Struct("<6x2H8xI4x2H")  # flags, method, packed bytes, lengths of name and extra

# Names of namespaces as readers write them; those of the transitional and the strict formats are
# the same. An element of any other namespace has its local name only.
_TRANSITIONAL = "http://schemas.openxmlformats.org/"
_STRICT = "http://purl.oclc.org/ooxml/"
_OASIS = "urn:oasis:names:tc:opendocument:xmlns:"
PREFIXES = {
    **{
        root + name: prefix
        for prefix, transitional, strict in (
            ("w", "wordprocessingml/2006/main", "wordprocessingml/main"),
            ("a", "drawingml/2006/main", "drawingml/main"),
            ("c", "drawingml/2006/chart", "drawingml/chart"),
            ("dgm", "drawingml/2006/diagram", "drawingml/diagram"),
            ("m", "officeDocument/2006/math", "officeDocument/math"),
            ("p", "presentationml/2006/main", "presentationml/main"),
            ("r", "officeDocument/2006/relationships", "officeDocument/relationships"),
            ("s", "spreadsheetml/2006/main", "spreadsheetml/main"),
            ("wp", "drawingml/2006/wordprocessingDrawing", "drawingml/wordprocessingDrawing"),
        )
        for root, name in ((_TRANSITIONAL, transitional), (_STRICT, strict))
    },
    "http://schemas.openxmlformats.org/markup-compatibility/2006": "mc",
    "http://schemas.microsoft.com/office/word/2010/wordprocessingShape": "wps",
    "urn:schemas-microsoft-com:vml": "v",
    "http://purl.org/dc/elements/1.1/": "dc",
    "http://www.w3.org/1999/xlink": "xlink",
    "http://www.w3.org/XML/1998/namespace": "xml",
    "http://www.w3.org/1998/Math/MathML": "math",
    "http://www.w3.org/1999/xhtml": "html",
    **{
        f"{_OASIS}{name}:1.0": name
        for name in (
            *("office", "text", "table", "style", "meta", "manifest", "script", "form"),
            *("presentation", "animation", "config"),
        )
    },
    f"{_OASIS}drawing:1.0": "draw",
    f"{_OASIS}svg-compatible:1.0": "svg",
    f"{_OASIS}xsl-fo-compatible:1.0": "fo",
    f"{_OASIS}datastyle:1.0": "number",
}


def damaged(detail: str) -> ExtractionError:
    """The error of a file that is not what its format says."""
    return ExtractionError(ExtractionFault.DAMAGED, detail)


class Package:
    """A zip file whose entries are read by name, within limits; a context manager."""

    def __init__(self, source: Source) -> None:
        """Reads the list of entries; raises ExtractionError."""
        self._left = MOST_UNPACKED_BYTES
        self._is_damaged = False
        self._file = source.open()
        self._zip: zipfile.ZipFile | None = None
        self._starts: dict[str, int] = {}  # of entries without a list
        try:
            try:
                self._zip = zipfile.ZipFile(self._file)
                self._entries = self._listed(self._zip.infolist())
            except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError) as error:
                self._entries = self._found()
                if not self._entries:
                    raise damaged(str(error)) from error
                self._is_damaged = True
        except (ExtractionError, OSError):
            self._file.close()
            raise
        self._folded = {name.casefold(): name for name in reversed(self._entries)}

    def __enter__(self) -> Package:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._zip is not None:
            self._zip.close()
        self._file.close()

    def _listed(self, found: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
        if len(found) > MOST_ENTRIES:
            raise ExtractionError(ExtractionFault.TOO_LARGE, f"{len(found)} entries in the archive")
        end = 0
        for entry in sorted(found, key=lambda entry: entry.header_offset):
            if entry.header_offset < end:
                raise damaged(f"entries of the archive overlap at {entry.filename!r}")
            end = entry.header_offset + 30 + entry.compress_size
        return {_plain(entry.filename): entry for entry in found if not entry.is_dir()}

    def _found(self) -> dict[str, zipfile.ZipInfo]:
        """The entries of a file whose list of them, at its end, is missing."""
        self._file.seek(0)
        data = self._file.read(MOST_SEARCHED_BYTES)
        made: dict[str, zipfile.ZipInfo] = {}
        for match in islice(_ENTRY.finditer(data), MOST_ENTRIES):
            flags, method, packed, length, extra = _HEADER.unpack_from(data, match.start())
            name = data[match.start() + 30 : match.start() + 30 + length]
            entry = zipfile.ZipInfo(_plain(name.decode("utf-8", "replace")) or "?")
            entry.flag_bits, entry.compress_type, entry.compress_size = flags, method, packed
            self._starts[entry.filename] = match.start() + 30 + length + extra
            made[entry.filename] = entry
        return made

    @property
    def names(self) -> Iterable[str]:
        """The entries' names, with slashes, in the order of the file."""
        return self._entries.keys()

    def __contains__(self, name: str) -> bool:
        return name.casefold() in self._folded

    def read(self, name: str) -> bytes:
        """An entry's bytes; raises KeyError without it, ExtractionError if it cannot be read."""
        return b"".join(self.chunks(name))

    def chunks(self, name: str) -> Iterator[bytes]:
        """An entry's bytes in pieces; raises as `read` does."""
        entry = self._entries[self._folded[name.casefold()]]
        if entry.flag_bits & 1:
            raise ExtractionError(ExtractionFault.PROTECTED, f"{name} is encrypted")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise damaged(f"{name} is packed by method {entry.compress_type}")
        most = min(MOST_ENTRY_BYTES, self._left)
        most = min(most, max(RATIO_FROM_BYTES, entry.compress_size * MOST_RATIO))
        too_large = ExtractionError(
            ExtractionFault.TOO_LARGE, f"{name} unpacks to more than {most} bytes"
        )
        if entry.file_size > most:
            raise too_large
        read = 0
        try:
            for piece in self._pieces(entry):
                read += len(piece)
                if read > most:
                    raise too_large
                yield piece
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            ValueError,
            OSError,
            RuntimeError,
        ) as error:
            raise damaged(f"{name}: {error}") from error
        finally:
            self._left -= read

    def _pieces(self, entry: zipfile.ZipInfo) -> Iterator[bytes]:
        """The unpacked bytes of an entry; raises what zlib and zipfile do."""
        if self._zip is not None and entry.filename not in self._starts:
            with self._zip.open(entry) as file:
                while piece := file.read(CHUNK):
                    yield piece
            return
        self._file.seek(self._starts[entry.filename])
        if entry.compress_type == zipfile.ZIP_STORED:
            yield self._file.read(min(entry.compress_size, MOST_ENTRY_BYTES))
            return
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        while not unpacker.eof:
            packed = unpacker.unconsumed_tail or self._file.read(1 << 16)
            if not packed:
                raise EOFError("the entry is cut off")
            yield unpacker.decompress(packed, CHUNK)

    @property
    def warnings(self) -> tuple[Warned, ...]:
        """What the user should know of what was read so far."""
        return (Warned(DocumentWarning.DAMAGED),) if self._is_damaged else ()

    def tree(self, name: str) -> Element | None:
        """The root of an XML entry, None without the entry; raises ExtractionError."""
        return xml_tree(self.chunks(name), name) if name in self else None

    def part(self, name: str) -> Element | None:
        """The root of an XML entry that can be missed: None also if it is damaged."""
        try:
            return self.tree(name)
        except ExtractionError as error:
            self._miss(error)
            return None

    def _miss(self, error: ExtractionError) -> None:
        """Goes on without what is damaged, and remembers it; raises any other error."""
        if error.fault is not ExtractionFault.DAMAGED:
            raise error
        self._is_damaged = True

    def elements(self, name: str, *wanted: str, opened: str = "") -> Iterator[Element]:
        """`xml_elements` of an entry, none without the entry: those before a damage.

        Raises ExtractionError if there are none before it.
        """
        if name not in self:
            return
        found = 0
        try:
            for element in xml_elements(self.chunks(name), *wanted, opened=opened, name=name):
                found += 1
                yield element
        except ExtractionError as error:
            if not found:
                raise
            self._miss(error)


def _plain(name: str) -> str:
    """An entry's name as packages refer to it."""
    return name.replace("\\", "/").lstrip("/")


def resolved(base: str, target: str) -> str:
    """The entry that `target` names, seen from the entry `base`; never outside of the package."""
    path = unquote(target.split("#", 1)[0].split("?", 1)[0]).replace("\\", "/")
    joined = posixpath.join("/", posixpath.dirname(base), path)
    return posixpath.normpath(joined).lstrip("/")


def xml_tree(chunks: Iterable[bytes], name: str = "") -> Element:
    """The root element of an XML text; `name` is for errors. Raises ExtractionError."""
    builder = _Builder(frozenset(), name)
    for piece in chunks:
        builder.feed(piece)
    return builder.close()


def xml_elements(
    chunks: Iterable[bytes], *wanted: str, opened: str = "", name: str = ""
) -> Iterator[Element]:
    """The outermost elements of the wanted names, each forgotten when the next one is taken.

    An element called `opened` that is around them comes when it begins, before what is within it.
    """
    builder = _Builder(frozenset(wanted), name, opened)
    error: ExtractionError | None = None
    for piece in chunks:
        try:
            builder.feed(piece)
        except ExtractionError as found:
            error = found
        yield from builder.taken()  # also those before an error
        if error is not None:
            raise error
    builder.close()
    yield from builder.taken()


class _Builder:
    """Builds elements whose names have the prefixes of `PREFIXES`, and refuses entities."""

    def __init__(self, wanted: frozenset[str], name: str, opened: str = "") -> None:
        self._wanted = wanted
        self._opened = opened
        self._name = name
        self._tree = TreeBuilder()
        self._open: list[Element] = []
        self._within = 0  # depth of the wanted element that is open; 0: none
        self._found: list[Element] = []
        self._fed = 0  # bytes
        self._names: dict[str, str] = {}
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.ordered_attributes = True
        parser.UseForeignDTD(True)  # an entity that is not defined is skipped, not an error
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._tree.data
        parser.EntityDeclHandler = self._entity
        parser.SkippedEntityHandler = self._skipped
        self._parser = parser

    def feed(self, piece: bytes) -> None:
        self._fed += len(piece)
        self._parse(piece, last=False)
        if self._fed - self._parser.CurrentByteIndex > LONGEST_TOKEN:
            raise damaged(f"{self._name}: a tag of more than {LONGEST_TOKEN} bytes")

    def close(self) -> Element:
        self._parse(b"", last=True)
        return self._tree.close()

    def taken(self) -> list[Element]:
        found, self._found = self._found, []
        return found

    def _parse(self, piece: bytes, *, last: bool) -> None:
        try:
            self._parser.Parse(piece, last)
        except (expat.ExpatError, ValueError, LookupError) as error:
            raise damaged(f"{self._name}: {error}") from error

    def _plain(self, name: str) -> str:
        known = self._names.get(name)
        if known is None:
            namespace, _, local = name.rpartition(" ")
            prefix = PREFIXES.get(namespace, "")
            known = self._names[name] = f"{prefix}:{local}" if prefix else local
        return known

    def _start(self, name: str, attributes: list[str]) -> None:
        plain = self._plain(name)
        pairs = {
            self._plain(attributes[i]): attributes[i + 1] for i in range(0, len(attributes), 2)
        }
        element = self._tree.start(plain, pairs)
        if len(self._open) == DEEPEST:
            raise damaged(f"{self._name}: more than {DEEPEST} elements within each other")
        self._open.append(element)
        if not self._within and plain in self._wanted:
            self._within = len(self._open)
        elif not self._within and plain == self._opened:
            self._found.append(element)

    def _end(self, name: str) -> None:
        self._tree.end(name)
        element = self._open.pop()
        if not self._wanted:
            return
        if self._within == len(self._open) + 1:
            self._within = 0
            self._found.append(element)
        if not self._within and self._open:
            with suppress(ValueError):
                self._open[-1].remove(element)

    def _entity(self, name: str, *_: object) -> None:
        raise damaged(f"{self._name}: it declares the entity {name!r}")

    def _skipped(self, name: str, is_parameter: bool) -> None:
        if not is_parameter:
            self._tree.data(html5.get(f"{name};", ""))
