"""Scenes of attached files: chips, what the prompt costs, the card of a file, rows, the "@" list."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QBuffer, QByteArray, QPointF, Qt
from PySide6.QtGui import QImage, QImageWriter, QLinearGradient, QPainter
from PySide6.QtTest import QTest

from app.domain.documents import (
    Document,
    DocumentKind,
    DocumentWarning,
    Page,
    PageUnit,
    Reads,
    Warned,
)
from app.domain.message import MessageState
from app.domain.model_ref import Local
from app.domain.parts import FilePart, ImagePart, Part, TextPart
from app.downloads import catalog
from app.state.attachments import (
    Attachment,
    AttachmentPhase,
    AttachmentsState,
    FitEstimate,
    KnownFile,
    LongerContext,
    OtherModel,
)
from app.state.chat import Notice
from app.state.encoder import EncoderView
from app.state.indexing import IndexingView
from app.state.library import Offer
from app.store.store import Store
from app.ui.documents.chip import AttachmentChip
from engine import FinishReason, Role
from scenes_chat import NAME, Scene, ready
from stage import Stage, flush, until

_TEXT = (
    "The harbour was rebuilt in 1926, after the storm. Its walls are nine metres high, and a light"
    " burns on each of them.\n\nThe council paid for it with a tax on fish.\n"
)


def _document(pages: int) -> Document:
    made = (Page(str(n), f"{n}. The harbour\n\n{_TEXT * (1 + n % 3)}") for n in range(1, pages + 1))
    return Document(DocumentKind.PDF, tuple(made), PageUnit.PAGE)


def _part(name: str, document: Document, *warnings: Warned) -> FilePart:
    return FilePart(
        name,
        document.text,
        kind=document.kind,
        unit=document.unit,
        pages=document.starts,
        warnings=warnings,
        path=f"/home/ada/{name}",
        size_bytes=1_240_000,
    )


REPORT = _part(
    "Annual report of the harbour authority 1926 (final version, corrected).pdf",
    _document(12),
    Warned(DocumentWarning.SCANNED, ("4", "5", "9")),
)
MINUTES = _part("minutes.pdf", _document(40))
SHEETS = _part(
    "fish tax.xlsx",
    Document(
        DocumentKind.SHEETS,
        (Page("1925", "| Month | Tax |\n|---|---|\n| May | 120 |"), Page("1926", "| a | b |")),
        PageUnit.SHEET,
    ),
)
NOTES = FilePart("notes.md", _TEXT * 20, kind=DocumentKind.MARKDOWN, path="/home/ada/notes.md")


def _ready(number: int, part: FilePart | ImagePart, tokens: int, **more: object) -> Attachment:
    phase = AttachmentPhase.READY
    return replace(Attachment(number, part.name, part.path, phase, part, tokens), **more)


CHIPS = (
    _ready(1, REPORT, 4300),
    _ready(2, SHEETS, 310),
    Attachment(3, "letters.docx", "/home/ada/letters.docx", progress=0.4),
    Attachment(
        4,
        "plans.pdf",
        "/home/ada/plans.pdf",
        AttachmentPhase.FAILED,
        fault="plans.pdf is protected by a password.",
        remedy="Save it without the password.",
    ),
    _ready(5, NOTES, 820, changed=True),
    _ready(6, replace(MINUTES, reads=Reads.PAGES, chosen=(0, 1, 2, 6)), 1240),
)


def _attach(stage: Stage, *files: Attachment, fit: FitEstimate | None = None) -> None:
    ready(stage)
    stage.controller.fit._shown = AttachmentsState()  # else the real estimate would come later
    stage.states.attachments.set(stage.state.current, files)
    stage.states.attachments.set_fit(fit)
    flush()


def files(stage: Stage) -> None:
    """A chip of each kind and state; the keyboard is at the third one."""
    _attach(stage, *CHIPS)
    stage.window.composer.insert("What did the harbour cost, and who paid for it?")
    chips = stage.window.composer.chips.chips
    chips[2].setFocus()
    flush()


def _painting() -> bytes:
    """A landscape, as PNG."""
    image = QImage(192, 128, QImage.Format.Format_RGB32)
    painter, sky = QPainter(image), QLinearGradient(QPointF(0, 0), QPointF(0, 128))
    sky.setColorAt(0.0, Qt.GlobalColor.darkBlue)
    sky.setColorAt(0.7, Qt.GlobalColor.yellow)
    sky.setColorAt(0.71, Qt.GlobalColor.darkGreen)
    painter.fillRect(image.rect(), sky)
    painter.end()
    buffer = QBuffer()
    buffer.open(QBuffer.OpenModeFlag.WriteOnly)
    QImageWriter(buffer, QByteArray(b"PNG")).write(image)
    return bytes(buffer.data().data())


def files_pictures(stage: Stage) -> None:
    """Pictures among files: a file's with its tokens, a pasted one, and one that cannot be read."""
    lake = ImagePart("lake in the evening.jpg", "", "/home/ada/lake.jpg", 4032, 3024)
    pasted = ImagePart("", "", "", 1280, 800)
    more = {"thumbnail": _painting()}
    failed = Attachment(4, "photo.heic", "/home/ada/photo.heic", AttachmentPhase.FAILED,
        fault="photo.heic is a picture in a format that cannot be read.",
        remedy="Save it as JPEG or PNG, and attach that.")  # fmt: skip
    _attach(
        stage,
        _ready(1, lake, 1024, **more),
        replace(_ready(2, pasted, 0, **more), tokens=None),
        _ready(3, NOTES, 820),
        failed,
    )
    stage.window.composer.insert("Where was this taken?")


def files_many(stage: Stage) -> None:
    names = (f"chapter {n}.md" for n in range(1, 31))
    _attach(stage, *(_ready(n, replace(NOTES, name=name), 820) for n, name in enumerate(names, 1)))


def files_narrow(stage: Stage) -> None:
    files(stage)
    stage.window.resize(460, 700)
    for _ in range(3):  # the text wraps, and the chips with it
        flush()


FITS = FitEstimate(5900, 8192, 1024, 5100, 4900, 4.2)


def files_fit(stage: Stage) -> None:
    """The quiet line."""
    _attach(stage, _ready(1, REPORT, 4300), _ready(2, SHEETS, 310), _ready(3, NOTES, 490), fit=FITS)


TOO_LONG = FitEstimate(
    121_000,
    8192,
    1024,
    120_310,
    longer_context=LongerContext(131_072, 14_600_000_000, fits=False),
    models=(OtherModel(Local(Path("/models/qwen.gguf")), "Qwen3 4B", 262_144),),
)


def files_too_long(stage: Stage) -> None:
    """The card with four ways, of which one is not there."""
    _attach(stage, _ready(1, MINUTES, 120_000), _ready(2, SHEETS, 310), fit=TOO_LONG)
    stage.window.composer.insert("What did the harbour cost?")
    flush()


INDEXED = _ready(1, replace(MINUTES, reads=Reads.PASSAGES), 120_000)
INDEXING = IndexingView(documents=40, documents_done=14, fraction=0.5, passages=900)


def _index(stage: Stage, view: IndexingView) -> None:
    _attach(stage, INDEXED, _ready(2, SHEETS, 310), fit=FITS)
    stage.window.composer.insert("What did the harbour cost?")
    chat = stage.window.chat

    def is_shown() -> bool:
        stage.states.indexing.set_view(view)  # the real index is done with it at once
        return chat.indexing_line.isVisible() and chat.search_model_line.isVisible()

    until(is_shown)
    stage.states.indexing.set_view = lambda _: None  # type: ignore[method-assign]  of the real one
    flush()


def files_indexing(stage: Stage) -> None:
    """Documents are being indexed, in a chat that reads passages; a search model is offered."""
    _index(stage, INDEXING)


def files_indexing_paused(stage: Stage) -> None:
    """Indexing waits for an answer."""
    _index(stage, replace(INDEXING, paused=True))


def files_search_model(stage: Stage) -> None:
    """The offer of a model that finds passages by their meaning."""
    _attach(stage, INDEXED, _ready(2, SHEETS, 310), fit=FITS)
    stage.window.composer.insert("What did the harbour cost?")
    first = catalog.load_embedders()[0]
    stage.states.encoder.set_view(EncoderView(searched=True, offer=Offer(first.source, first.name)))
    flush()


def files_changed(stage: Stage) -> None:
    """Sent files have changed on disk since; the offer to attach them again."""
    files_sent(stage)
    names = ("harbour report.pdf", "fish tax.xlsx")
    stage.states.attachments.set_outdated(tuple(KnownFile(each, path=f"/{each}") for each in names))
    flush()


def files_forgotten(stage: Stage) -> None:
    """All fits, without an earlier file."""
    fit = replace(FITS, cached_tokens=0, forgotten=("old minutes.pdf", "letters.docx"))
    _attach(stage, _ready(1, REPORT, 4300), fit=fit)


def file_card(stage: Stage) -> None:
    """The card of a file that is not sent, with chosen pages and something found."""
    part = replace(REPORT, reads=Reads.PAGES, chosen=(0, 1, 2, 6))
    _attach(stage, _ready(1, part, 1240))
    stage.window.attaching.viewer.show_attachment(1)
    card = stage.window.attaching.viewer.card
    assert card is not None
    card.search.field.setText("tax on fish")
    flush()
    flush()


def file_page_pictures(stage: Stage) -> None:
    """The card of a file that has more pages than can be attached as pictures."""
    _attach(stage, _ready(1, replace(MINUTES, sha256="b" * 64), 120_000))
    stage.window.attaching.viewer.show_attachment(1)
    card = stage.window.attaching.viewer.card
    assert card is not None
    card.picture_button.click()
    flush()


def file_scan(stage: Stage) -> None:
    """The notice about a scan, of which the pages can be attached."""
    pages = tuple(Page(str(n), "") for n in range(1, 41))
    scan = _part("survey 1926.pdf", Document(DocumentKind.PDF, pages, PageUnit.PAGE),
        Warned(DocumentWarning.SCANNED))  # fmt: skip
    stage.controller.document_pictures._sees = lambda _: True
    _attach(stage, _ready(1, replace(scan, sha256="b" * 64), 0))


def file_passage(stage: Stage) -> None:
    """The card of a sent file, at a passage."""
    ready(stage)
    start = MINUTES.text.index("The harbour was", len(MINUTES.text) // 2)
    stage.window.attaching.viewer.show_document(MINUTES, start, start + 117)
    flush()


QUESTION: tuple[Part, ...] = (
    replace(REPORT, name="harbour report.pdf"),
    replace(MINUTES, reads=Reads.PAGES, chosen=(0, 1, 2, 6)),
    replace(SHEETS, reads=Reads.PASSAGES),
    TextPart("What did the harbour cost, and who paid for it?"),
)


def files_sent(stage: Stage) -> None:
    """Rows of files in a question."""
    store = Store.open(stage.folder / "conversations.sqlite")
    chat = store.create_conversation("The harbour").id
    own = store.add_message(chat, None, Role.USER, QUESTION).id
    answer = (TextPart("A tax on fish paid for it: 120 crowns in May alone."),)
    said = store.add_message(chat, own, Role.ASSISTANT, answer, MessageState.STREAMING, NAME).id
    store.finish(said, MessageState.COMPLETE, error=None, generated_tokens=30, seconds=2.0)
    store.close()
    ready(stage)
    stage.controller.open_conversation(chat)
    stage.wait_until_idle()


def long_document(stage: Stage) -> None:
    """An answer that reads a long document part by part, with one of its sections unfolded."""
    ready(stage)
    text = "\n\n".join(f"{_TEXT} {n}" for n in range(400))
    asked = FilePart("catalogue.pdf", text, kind="pdf", reads=Reads.SUMMARY)
    stage.controller.send((asked, TextPart("Summarise this document.")))
    stage.drain()
    for n in range(3):
        until(lambda: bool(stage.engine.unfinished))
        stage.engine.write(f"- The *{n + 1}.* part says who pays, and what for.\n- Nobody paid.")
        stage.engine.finish()
        stage.drain()
    until(lambda: bool(stage.engine.unfinished))
    view = stage.window.transcript.stack.views[-1]
    view.unfolded.add(1)
    view.read_again()
    flush()


def long_document_asked(stage: Stage) -> None:
    """A long document before it is sent: its parts, and the time they take."""

    long = replace(_part("catalogue.pdf", _document(120)), reads=Reads.SUMMARY)
    fit = FitEstimate(43, 8192, 1024, parts=14, part_tokens=81_400, part_seconds=312)
    _attach(stage, _ready(1, long, 81_400), fit=fit)
    stage.window.composer.insert("Summarise this document. Keep names and numbers.")
    flush()


def long_document_saved(stage: Stage) -> None:
    """A document that was rewritten part by part and saved, though not all parts are complete."""
    ready(stage)
    text = "\n\n".join(f"{_TEXT} {n}" for n in range(60))
    asked = FilePart("catalogue.pdf", text, kind="pdf", reads=Reads.REWRITE)
    stage.controller.send((asked, TextPart("Rewrite this document in plain language.")))
    stage.drain()
    while stage.state.busy:
        until(lambda: bool(stage.engine.unfinished) or not stage.state.busy)
        for each in stage.engine.unfinished:
            stage.engine.write("Who pays, pays.", request=each.request)
            stage.engine.finish(FinishReason.LENGTH, request=each.request)
            stage.drain()
    notice = Notice(
        "Saved as /home/ada/catalogue 2.docx.", "1 part is not complete.", "Show in folder"
    )
    stage.state.set_notice("saved", notice)
    flush()


def wait_for_counts(stage: Stage) -> None:
    """Wait until the chips of files say how many tokens they have, which come one by one.

    A pasted text, which has no name, says its lines only.
    """

    def are_counted() -> bool:
        items = [chip.item for chip in stage.window.findChildren(AttachmentChip)]
        files = [each for each in items if isinstance(each, Attachment) and each.name]
        return all(each.tokens is not None and not each.approximate for each in files)

    flush()
    until(are_counted)
    flush()


def files_edited(stage: Stage) -> None:
    """The editor of that question, with its files as chips."""
    files_sent(stage)
    stage.window.transcript.edit_message(stage.state.messages[0].id)
    wait_for_counts(stage)


def files_found(stage: Stage) -> None:
    """Find in a chat whose files have what is looked for."""
    files_sent(stage)
    stage.window.chat.open_find()
    stage.window.chat.find_bar.field.setText("fish")
    for _ in range(3):
        flush()


def file_names(stage: Stage) -> None:
    """The list behind "@"."""
    ready(stage)
    stage.window.composer.setFocus()
    QTest.keyClicks(stage.window.composer.editor, "Compare it with @")
    stage.wait_until_idle()  # the app looks for files itself
    here = [KnownFile("minutes.pdf", kind="pdf"), KnownFile("fish tax.xlsx", kind="sheets")]
    other = [KnownFile("letters.docx", path="/home/ada/letters.docx", kind="word")]
    stage.window.attaching.list.show_files(here, other)
    flush()


def files_dragged(stage: Stage) -> None:
    ready(stage)
    stage.window.drop_area.show_for([Path(f"/home/ada/{name}") for name in ("a.pdf", "b.md", "c")])
    flush()


SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        *(files, files_pictures, files_many, files_narrow, files_fit, files_too_long),
        files_forgotten,
        *(files_indexing, files_indexing_paused, files_search_model, files_changed),
        *(
            file_card,
            file_page_pictures,
            file_scan,
            file_passage,
            files_sent,
            long_document,
            long_document_asked,
            long_document_saved,
            files_edited,
            files_found,
            file_names,
            files_dragged,
        ),
    )
}
