"""Words for attached files: what they are, how long, what is wrong, what the model reads."""

from __future__ import annotations

from collections.abc import Sequence

from app.domain.documents import DocumentKind, DocumentWarning, PageUnit, Reads, Warned
from app.domain.page_ranges import write_ranges
from app.domain.parts import FilePart, ImagePart, Part, SectionPart
from app.system.translation import number, tr, trn
from engine import Detail

LONG_CHARACTERS = 2_000  # a longer pasted text is attached
MANY_LINES = 30  # a shorter text is measured in characters
_FIRST_WORDS = 60  # characters
_MOST_NAMED = 40  # characters of the names of chosen pages


def is_long(text: str) -> bool:
    """Whether a pasted text is attached, rather than put into the text field."""
    return len(text) > LONG_CHARACTERS or text.count("\n") >= MANY_LINES


def kind_words(kind: str) -> str:
    """What a file is, for those who do not see its icon; "" if that is not known."""
    names: dict[str, str] = {
        DocumentKind.TEXT: tr("text"),
        DocumentKind.CODE: tr("code"),
        DocumentKind.MARKDOWN: "Markdown",
        DocumentKind.TABLE: tr("table"),
        DocumentKind.JSON: "JSON",
        DocumentKind.LOG: tr("log"),
        DocumentKind.HTML: tr("web page"),
        DocumentKind.EPUB: tr("e-book"),
        DocumentKind.PDF: tr("PDF"),
        DocumentKind.WORD: tr("text document"),
        DocumentKind.SLIDES: tr("slides"),
        DocumentKind.SHEETS: tr("spreadsheet"),
        DocumentKind.EMAIL: tr("e-mail"),
        DocumentKind.NOTEBOOK: tr("notebook"),
        DocumentKind.SUBTITLES: tr("subtitles"),
        DocumentKind.ARCHIVE: tr("archive, only its list of files"),
    }
    return names.get(kind, "")


def pages_words(unit: PageUnit, count: int) -> str:
    """How many pages, such as "12 pages"; "" in a document of one text."""
    return {
        PageUnit.NONE: "",
        PageUnit.PAGE: trn("{count} page", "{count} pages", count),
        PageUnit.SHEET: trn("{count} sheet", "{count} sheets", count),
        PageUnit.SLIDE: trn("{count} slide", "{count} slides", count),
        PageUnit.CHAPTER: trn("{count} chapter", "{count} chapters", count),
        PageUnit.MESSAGE: trn("{count} message", "{count} messages", count),
    }[unit]


def length_words(part: FilePart) -> str:
    """How long a file is: its pages or, in a document of one text, lines or characters."""
    if part.pages:
        return pages_words(part.unit, len(part.pages))
    lines = part.text.strip("\n").count("\n") + 1
    if lines >= MANY_LINES:
        return trn("{count} line", "{count} lines", lines)
    return tr("{count} characters", count=number(len(part.text)))


def tokens_words(tokens: int, *, approximate: bool = False) -> str:
    """A number of tokens, perhaps an estimate."""
    if approximate:
        return trn("about {count} token", "about {count} tokens", tokens)
    return trn("{count} token", "{count} tokens", tokens)


def file_words(part: FilePart) -> str:
    """A file in one line: its name or how it begins, its length, what of it the model reads."""
    length, reads = length_words(part), reads_words(part)
    if not part.name:
        lines = (line.strip() for line in part.text.splitlines())
        first = next(filter(None, lines), "")[:_FIRST_WORDS]
        return tr("Pasted text, {size}: {first}…", size=length, first=first)
    words = tr("{name}, {size}", name=part.name, size=length)
    return tr("{words} · {more}", words=words, more=reads) if reads else words


def attachment_words(part: Part) -> str:
    """An attached text or image in one line."""
    if isinstance(part, FilePart):
        return file_words(part)
    return image_words(part) if isinstance(part, ImagePart) else ""


def image_words(image: ImagePart) -> str:
    """The name of a picture, and its size in pixels."""
    name, size = image.name or tr("Pasted picture"), size_words(image)
    return tr("{name}, {size}", name=name, size=size) if size else name


def image_name(image: ImagePart) -> str:
    """What a picture is called where it is not seen: its description, or else name and size."""
    return image.description or image_words(image)


def detail_words(detail: Detail | int) -> str:
    """How finely a model sees a picture; the tokens say it of a number."""
    if not isinstance(detail, Detail):
        return ""
    return {
        Detail.LOW: tr("Low detail"),
        Detail.STANDARD: tr("Standard detail"),
        Detail.HIGH: tr("High detail"),
    }[detail]


def size_words(image: ImagePart) -> str:
    """The size of a picture in pixels; "" if it is not known."""
    width, height = image.width, image.height
    if not width or not height:
        return ""
    return tr("{width} × {height}", width=width, height=height)  # noqa: RUF001


def reads_words(part: FilePart) -> str:
    """What the model reads of a file; "" if that is all of it."""
    match part.reads:
        case Reads.WHOLE:
            return ""
        case Reads.PASSAGES:
            return tr("passages that fit the question")
        case Reads.SUMMARY | Reads.REWRITE:
            return tr("all of it, part by part")
        case Reads.TABLES:
            return tr("its tables, by query")
        case Reads.PAGES:
            return chosen_words(part.unit, part.chosen, [page.label for page in part.pages])


def chosen_words(unit: PageUnit, chosen: Sequence[int], labels: Sequence[str]) -> str:
    """The chosen pages, such as "pages 1-3, 7", or how many if their names are long."""
    if len(chosen) == len(labels):
        return pages_words(unit, len(chosen))
    names = write_ranges(chosen, labels)
    if not names or len(names) > _MOST_NAMED:
        count = number(len(chosen))
        return tr("{count} of {all}", count=count, all=pages_words(unit, len(labels)))
    return _named(unit, len(chosen), names)


def _named(unit: PageUnit, count: int, names: str) -> str:
    pages = trn("page {pages}", "pages {pages}", count, pages=names)
    return {
        PageUnit.SHEET: trn("sheet {pages}", "sheets {pages}", count, pages=names),
        PageUnit.SLIDE: trn("slide {pages}", "slides {pages}", count, pages=names),
        PageUnit.CHAPTER: trn("chapter {pages}", "chapters {pages}", count, pages=names),
        PageUnit.MESSAGE: trn("message {pages}", "messages {pages}", count, pages=names),
    }.get(unit, pages)


def section_words(section: SectionPart) -> str:
    """Of what a model made a section of its answer, such as "report.pdf, part 3 of 14 · pages 5-7"."""
    first, last = number(section.start + 1), number(section.end)
    if section.level:
        words = tr("Parts {first} to {last} together", first=first, last=last)
    else:
        words = tr(
            "{name}, part {number} of {count}",
            name=section.name, number=number(section.number), count=number(section.count),
        )  # fmt: skip
    more = (
        [_named(PageUnit(section.unit), section.page_count, section.pages)] if section.pages else []
    )
    if not section.text:
        more.append(tr("the model wrote nothing"))
    elif section.cut:
        more.append(tr("not complete"))
    for each in more:
        words = tr("{words} · {more}", words=words, more=each)
    return words


def warning_words(warned: Warned) -> str:
    """What the user should know of the text of a file."""
    count = len(warned.pages)
    match warned.warning:
        case DocumentWarning.SCANNED if count:
            return trn(
                "{count} page is a picture without text",
                "{count} pages are pictures without text",
                count,
            )
        case DocumentWarning.SCANNED:
            return tr("Pictures without text")
        case DocumentWarning.DAMAGED if count:
            return trn(
                "{count} page is damaged and was left out",
                "{count} pages are damaged and were left out",
                count,
            )
        case DocumentWarning.DAMAGED:
            return tr("Damaged: only a part could be read")
        case DocumentWarning.CUT:
            return tr("Too long: the end is left out")
        case DocumentWarning.EMPTY:
            return tr("No text in it")
        case DocumentWarning.UNSURE_ENCODING:
            return tr("Some characters may be wrong")
