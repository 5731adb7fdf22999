"""The format of a file, found by its content; its name is a hint between text formats only."""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator

from app.documents.source import ExtractionError, ExtractionFault, Look, Source
from app.documents.wide import wide_encoding

_TAR_MAGIC, _TAR_AT = b"ustar", 257
_PDF_WITHIN = 1024  # bytes that may come before a PDF's header
_SNIFFED = 1 << 13  # bytes of a text that are looked at
_MOST_TYPES_BYTES = 1 << 20  # of the list of content types in a package
_TAIL = 1 << 13

# The first bytes of what an archive's list can be made of.
_ARCHIVES = (b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00")
_ZIP = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"

# What begins with these bytes has no text.
_BEGINNINGS = {
    Look.PICTURE: (
        *(b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\x00", b"MM\x00*"),
        *(b"\x00\x00\x01\x00", b"qoif", b"8BPS", b"\xff\x0a", b"\x00\x00\x00\x0cJXL "),
        *(b"\x00\x00\x00\x0cjP  ", b"gimp xcf"),
    ),
    Look.AUDIO: (
        *(b"ID3", b"fLaC", b"OggS", b"MThd", b"#!AMR", b"\xff\xfb", b"\xff\xf3", b"\xff\xf1"),
    ),
    Look.VIDEO: (b"\x1aE\xdf\xa3", b"FLV\x01", b"\x00\x00\x01\xba", b"0&\xb2u\x8ef\xcf\x11"),
    Look.MODEL: (b"GGUF", b"\x93NUMPY", b"\x89HDF\r\n\x1a\n"),
    Look.PROGRAM: (
        *(b"\x7fELF", b"\xca\xfe\xba\xbe", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\x00asm"),
        b"dex\n",
    ),
    Look.FONT: (b"OTTO\x00", b"\x00\x01\x00\x00\x00", b"ttcf", b"wOFF", b"wOF2"),
    Look.DATABASE: (b"SQLite format 3\x00", b"PAR1"),
    Look.EBOOK: (b"ITSF", b"AT&TFORM"),
    Look.COMPRESSED: (
        *(b"\x28\xb5\x2f\xfd", b"MSCF\x00", b"\xed\xab\xee\xdb", b"!<arch>\n", b"LZIP"),
        *(b"\x1f\x9d", b"\x04\x22\x4d\x18", b"xar!"),
    ),
    Look.DISK: (b"QFI\xfb",),
}
_LOOKS = (  # offset, bytes there
    *((0, magic, look) for look, magics in _BEGINNINGS.items() for magic in magics),
    (4, b"Standard Jet DB", Look.DATABASE),
    (4, b"Standard ACE DB", Look.DATABASE),
    (8, b"WEBP", Look.PICTURE),
    (8, b"WAVE", Look.AUDIO),
    (8, b"AVI ", Look.VIDEO),
    (8, b'{"', Look.MODEL),  # safetensors, if the length before it fits
    (60, b"BOOKMOBI", Look.EBOOK),
    (32769, b"CD001", Look.DISK),
)
_PROGRAM_AT = 0x3C  # of `MZ` programs: where their next header is
_ISO_MEDIA = {b"M4A": Look.AUDIO, b"hei": Look.PICTURE, b"avi": Look.PICTURE, b"mif": Look.PICTURE}

# The main part of an Office package, as its list of content types names it.
_OFFICE_TYPES = (
    (b"wordprocessingml", "docx"),
    (b"ms-word.document.macroEnabled", "docx"),
    (b"ms-word.template.macroEnabled", "docx"),
    (b"spreadsheetml", "xlsx"),
    (b"ms-excel.sheet.macroEnabled", "xlsx"),
    (b"ms-excel.template.macroEnabled", "xlsx"),
    (b"presentationml", "pptx"),
    (b"ms-powerpoint.presentation.macroEnabled", "pptx"),
    (b"ms-powerpoint.template.macroEnabled", "pptx"),
    (b"ms-powerpoint.slideshow.macroEnabled", "pptx"),
)
# What reading a damaged package raises.
_DAMAGES = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError),
    *(OSError, ValueError, NotImplementedError),
)
_BINARY_SHEETS = b"ms-excel.sheet.binary.macroEnabled"
_MIME_TYPES = (
    (b"application/epub+zip", "epub"),
    (b"application/vnd.oasis.opendocument.text", "odt"),
    (b"application/vnd.oasis.opendocument.spreadsheet", "ods"),
    (b"application/vnd.oasis.opendocument.presentation", "odp"),
)

# The streams of an OLE file that say what it is.
_OLE_STREAMS = {
    "WordDocument": Look.OLD_WORD,
    "Workbook": Look.OLD_SHEETS,
    "Book": Look.OLD_SHEETS,
    "PowerPoint Document": Look.OLD_SLIDES,
    "__properties_version1.0": Look.OUTLOOK,
}
_OLE_ENCRYPTED = ("EncryptedPackage", "DRMEncryptedDataSpace")
_OLE_MOST_SECTORS = 4096  # of the directory

# Readers of text formats by the ending of a name.
_ENDINGS = {
    **dict.fromkeys((".md", ".markdown", ".mdown", ".mkd", ".mdx"), "markdown"),
    **dict.fromkeys((".csv", ".tsv", ".tab"), "table"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson", ".geojson", ".json5", ".jsonc"), "json"),
    **dict.fromkeys((".html", ".htm", ".xhtml", ".mhtml", ".mht"), "html"),
    **dict.fromkeys((".eml", ".mbox", ".mbx"), "email"),
    **dict.fromkeys((".srt", ".vtt", ".ass", ".ssa", ".sbv", ".sub"), "subtitles"),
    ".ipynb": "notebook",
}
# Endings of formats that are not text: an empty file with one is no empty text, and what is text
# in spite of it is judged by its content alone. Any other ending is that of a text or of code,
# which may begin as a web page, a message or subtitles do.
_NO_TEXT_ENDINGS = frozenset(
    (
        *(".pdf", ".docx", ".docm", ".odt", ".pptx", ".pptm", ".odp", ".xlsx", ".xlsm", ".ods"),
        *(".epub", ".zip", ".7z", ".rar", ".gz", ".tgz", ".tar", ".bz2", ".xz", ".doc", ".xls"),
        *(".ppt", ".png", ".jpg", ".jpeg", ".gif", ".webp"),
    )
)

_HTML = re.compile(rb"<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_MAIL_HEADER = re.compile(rb"([A-Za-z][A-Za-z0-9-]{1,60}):")
_MAIL_NAMES = frozenset(
    (
        *(b"from", b"to", b"subject", b"date", b"message-id", b"received", b"return-path"),
        *(b"mime-version", b"delivered-to", b"reply-to", b"cc", b"x-mailer", b"content-type"),
    )
)
_MAIL_LEAST = 3  # names of headers that a message has
_FLAT = re.compile(rb"<office:document\s[^>]*office:mimetype=[\"']([^\"'>]+)")  # OpenDocument
_SRT = re.compile(
    rb"\s*\d+[ \t]*\r?\n[ \t]*\d{1,3}:\d\d:\d\d[,.]\d{1,3}[ \t]*-->[ \t]*\d{1,3}:\d\d:\d\d[,.]\d"
)
_STYLED_SUBTITLES = re.compile(rb"\s*\[script info\]", re.IGNORECASE)
_WEB_ARCHIVE = re.compile(rb"^content-type:\s*multipart/related", re.IGNORECASE | re.MULTILINE)
_NOTEBOOK = re.compile(rb'"nbformat"\s*:\s*\d')
_TEXT_CONTROLS = b"\t\n\r\f\b\x1b\x1a"
_CONTROLS = bytes(each for each in range(32) if each not in _TEXT_CONTROLS)
_MOST_CONTROLS = 0.02  # of a text's bytes


def detect(source: Source) -> str:
    """The name of the reader for a file. Raises ExtractionError where there is none."""
    head = source.head
    if not head:
        if source.suffix in _NO_TEXT_ENDINGS:
            raise ExtractionError(ExtractionFault.DAMAGED, "0 bytes")
        return _ENDINGS.get(source.suffix, "text")
    if head.startswith(_OLE):
        raise _ole_error(source)
    if head.startswith(_ZIP):
        return _zip_reader(source)
    if head.startswith(b"{\\rtf"):
        return "rtf"
    if head.startswith(_ARCHIVES) or head[_TAR_AT:].startswith(_TAR_MAGIC):
        return "archive"
    text = _sniffable(head)
    at = head[:_PDF_WITHIN].find(b"%PDF-")
    if at >= 0 and (text is None or source.suffix == ".pdf" or not head[:at].strip()):
        return "pdf"
    if (look := _look(head, source.size, is_text=text is not None)) is not None:
        raise ExtractionError(ExtractionFault.UNKNOWN, look)
    if text is None:
        raise ExtractionError(ExtractionFault.UNKNOWN, Look.BINARY)
    return _text_reader(source, text)


def _look(head: bytes, size: int, *, is_text: bool) -> Look | None:
    """What a file without text is, by its first bytes; a text may begin with words such as GGUF."""
    if head.startswith(b"MZ"):
        at = int.from_bytes(head[_PROGRAM_AT : _PROGRAM_AT + 4], "little")
        return Look.PROGRAM if 0 < at < size and b"\0" in head[:_PROGRAM_AT] else None
    if head[4:8] == b"ftyp":
        return _ISO_MEDIA.get(head[8:11], Look.VIDEO)
    if head.startswith(b"BM") and head[6:10] == b"\0\0\0\0":
        return Look.PICTURE
    for at, magic, look in _LOOKS:
        if head[at : at + len(magic)] != magic:
            continue
        if magic == b'{"' and not 2 <= int.from_bytes(head[:8], "little") < size:
            continue
        if at == 8 and magic != b'{"' and not head.startswith(b"RIFF"):
            continue
        if is_text and magic.isascii() and magic.strip().decode().isprintable():
            continue
        return look
    return None


def _zip_reader(source: Source) -> str:
    """The reader of a package: Office, OpenDocument, EPUB; else that of archives."""
    try:
        with source.open() as file, zipfile.ZipFile(file) as package:
            return _package_reader(package)
    except ExtractionError:
        raise
    except _DAMAGES:
        return _damaged_package_reader(source.head)


def _package_reader(package: zipfile.ZipFile) -> str:
    names = set(package.namelist())
    if "mimetype" in names:
        mime_type = _beginning(package, "mimetype")
        for prefix, reader in _MIME_TYPES:
            if mime_type.startswith(prefix):
                return reader
        if mime_type.startswith(b"application/vnd.oasis.opendocument"):
            raise ExtractionError(ExtractionFault.UNKNOWN, Look.DRAWING)
    if "[Content_Types].xml" in names:
        types = _beginning(package, "[Content_Types].xml")
        if _BINARY_SHEETS in types:
            raise ExtractionError(ExtractionFault.UNKNOWN, Look.OLD_SHEETS)
        for start, reader in _OFFICE_TYPES:
            if re.search(re.escape(start) + rb"[a-zA-Z.]{0,40}\.main\+xml", types):
                return reader
    if "META-INF/container.xml" in names and any(name.endswith(".opf") for name in names):
        return "epub"
    if any(name.endswith(".iwa") for name in names) or "Index.zip" in names:
        raise ExtractionError(ExtractionFault.UNKNOWN, Look.PAGES)
    return "archive"


def _beginning(package: zipfile.ZipFile, name: str) -> bytes:
    """The first bytes of a file in a package; of an encrypted one, none."""
    info = package.getinfo(name)
    if info.flag_bits & 1:
        return b""
    with package.open(info) as file:
        return file.read(_MOST_TYPES_BYTES)


def _damaged_package_reader(head: bytes) -> str:
    """The reader of a package that cannot be opened, by the first file in it."""
    if head[30:].startswith(b"mimetype"):
        for prefix, reader in _MIME_TYPES:
            if head[38:].startswith(prefix):
                return reader
    for folder, reader in ((b"word/", "docx"), (b"xl/", "xlsx"), (b"ppt/", "pptx")):
        if folder in head:
            return reader
    return "archive"


def _ole_error(source: Source) -> ExtractionError:
    """Why an OLE file is not read: it is encrypted, or of an Office before 2007."""
    look = Look.BINARY
    for name in _ole_streams(source):
        if name in _OLE_ENCRYPTED:
            return ExtractionError(ExtractionFault.PROTECTED, name)
        look = _OLE_STREAMS.get(name, look)
    return ExtractionError(ExtractionFault.UNKNOWN, look)


def _ole_streams(source: Source) -> Iterator[str]:
    """The names in the directory of an OLE file, as far as it can be followed."""
    header = source.head[:512].ljust(512, b"\0")
    shift = int.from_bytes(header[30:32], "little")
    if shift not in (9, 12):
        return
    size = 1 << shift
    table_sectors = struct.unpack("<109I", header[76:512])
    sector = int.from_bytes(header[48:52], "little")
    with source.open() as file:
        for _ in range(_OLE_MOST_SECTORS):
            file.seek((sector + 1) * size)
            entries = file.read(size)
            for at in range(0, len(entries) - 127, 128):
                length = int.from_bytes(entries[at + 64 : at + 66], "little")
                if 2 <= length <= 64:
                    yield entries[at : at + length - 2].decode("utf-16-le", "replace")
            table, place = divmod(sector, size // 4)
            if table >= len(table_sectors):
                return
            file.seek((table_sectors[table] + 1) * size + 4 * place)
            sector = int.from_bytes(file.read(4).ljust(4, b"\xff"), "little")
            if sector >= 0xFFFFFFFA:
                return


def _sniffable(head: bytes) -> bytes | None:
    """The beginning of a text in an encoding like ASCII; None if it is not a text."""
    sample = head[:_SNIFFED]
    if wide := wide_encoding(sample):
        return sample[wide.mark :].decode(wide.encoding, "ignore").encode("utf-8", "ignore")
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    return sample if controls <= _MOST_CONTROLS * len(sample) else None


def _text_reader(source: Source, text: bytes) -> str:
    """The reader of a text, by how it begins, then by the ending of its name."""
    if flat := _FLAT.match(_without_prologue(text)):
        for prefix, reader in _MIME_TYPES:
            if flat[1].startswith(prefix):
                return reader
    hint = _ENDINGS.get(source.suffix, "")
    is_open = not source.suffix or source.suffix in _NO_TEXT_ENDINGS
    if is_open or hint in ("html", "email", "subtitles"):
        if _HTML.match(_without_prologue(text)):
            return "html"
        if _SRT.match(text) or _STYLED_SUBTITLES.match(text) or text.startswith(b"WEBVTT"):
            return "subtitles"
        if _is_mail(text):
            headers = re.split(rb"\r?\n\r?\n", text, maxsplit=1)[0]
            return "html" if _WEB_ARCHIVE.search(headers) else "email"
    is_object = text.lstrip()[:1] == b"{"
    if is_object and (is_open or hint in ("json", "notebook")) and _is_notebook(source):
        return "notebook"
    if hint == "notebook":
        return "json" if is_object else "text"
    return hint or "text"


def _without_prologue(text: bytes) -> bytes:
    """A text without the XML declaration and the comments that it begins with."""
    text = text.lstrip()
    while text.startswith((b"<?xml", b"<!--")):
        end = b"-->" if text.startswith(b"<!--") else b"?>"
        text = text.partition(end)[2].lstrip()
    return text


def _is_mail(text: bytes) -> bool:
    """Whether a text begins with the headers of a message, perhaps after a mailbox's line."""
    lines = text.splitlines()
    if lines and lines[0].startswith(b"From "):
        del lines[0]
    found: set[bytes] = set()
    for line in lines:
        if not line.strip():
            break
        header = _MAIL_HEADER.match(line)
        if header is not None:
            found.add(header[1].lower())
        elif line[:1] not in (b" ", b"\t"):
            return False
    return len(found & _MAIL_NAMES) >= _MAIL_LEAST


def _is_notebook(source: Source) -> bool:
    """Whether a text that begins as an object of JSON has a notebook's keys, at its ends."""
    head = source.head
    with source.open() as file:
        file.seek(max(0, source.size - _TAIL))
        tail = file.read(_TAIL)
    return b'"cells"' in head + tail and bool(_NOTEBOOK.search(head) or _NOTEBOOK.search(tail))
