"""Signals carry ids of conversations and messages whole: the `int` of a Qt signal has 32 bits."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from PySide6.QtCore import QMetaMethod, QObject, Signal

import app

# Signals with an `int` that is no such id. Those with an id are `Signal(object)`.
SMALL = {
    "AdapterList.moved(int,int)",  # indexes, as in the next ones
    "AdapterList.removed(int)",
    "AdapterList.strength_changed(int,double)",
    "AdapterList.switched(int,bool)",
    "AdapterSection.moved(int,int)",
    "AdapterSection.removed(int)",
    "AdapterSection.strength_changed(int,double)",
    "AdapterSection.switched(int,bool)",
    "AdapterRow.stepped(int)",  # places
    "EmbeddedGrid.wanted(PyObject,int)",  # pixels
    "Handle.dragged_to(int)",  # pixels
    "Handle.stepped(int)",
    "WaitingMessages.edit_requested(int)",  # counted from 1 in each run, as in the next two
    "WaitingMessages.remove_requested(int)",
    "WaitingMessages.send_requested(int)",
    "_ListPart.navigated(int)",  # key
    "QuestionsView.agreed(int)",  # counted from 1 in each run, as in the next two
    "QuestionsView.answered(int,PyObject)",
    "QuestionsView.page_requested(int,QString)",
    "LibraryPage.cancel_requested(int)",  # of a download: counted from 1 in each run
    "LibraryPage.pause_requested(int)",
    "LibraryPage.resume_requested(int)",
    "LibraryPage.retry_requested(int)",
    "AnswerPlot.selected(int)",  # index
    "_Line.stepped(int)",
    "Keys.moved(int,QString)",  # index
    "TranscriptLayout.hover_changed(int)",  # index
    "TranscriptLayout.message_changed(int)",
    "AttachmentChip.moved(int)",  # places
    "Chips.reloaded(int)",  # of an attachment: counted from 1 in each run
    "Chips.retried(int)",
    "Composer.file_reloaded(int)",
    "Composer.file_removed(int)",
    "Composer.file_restored(PyObject,int)",
    "Composer.file_retried(int)",
    "DocumentCard.pages_chosen(int,PyObject)",
    "DocumentCard.pages_wanted(int,PyObject,PyObject)",
    "DocumentCard.pictures_chosen(int,PyObject,PyObject)",
    "DocumentCard.pictures_wanted(PyObject,PyObject,int)",  # pixels
    "DocumentCard.reads_chosen(int,PyObject)",
    "DocumentText.page_changed(int)",  # index
    "DocumentViewer.page_pictures_requested(PyObject,PyObject,int)",
    "DocumentViewer.pages_chosen(int,PyObject)",
    "DocumentViewer.pictures_attached(PyObject,PyObject,int)",
    "DocumentViewer.pictures_wanted(PyObject,PyObject,int)",  # pixels
    "DocumentViewer.reads_chosen(int,PyObject)",
    "Editing.file_reloaded(int)",
    "Editing.file_removed(int)",
    "Editing.file_restored(PyObject,PyObject,int)",  # the last is an index
    "Editing.file_retried(int)",
    "MessageEditor.file_removed(int)",
    "MessageEditor.file_restored(PyObject,int)",  # the last is an index
    "PageList.opened(int)",  # index
    "PictureCanvas.moved(int)",  # places
    "PictureCard.wanted(PyObject,int)",  # pixels
    "FitLine.detail_requested(int,PyObject)",  # an attachment
    "PictureViewer.described(int,QString)",  # an attachment
    "PictureViewer.detail_chosen(int,PyObject)",
    "PictureViewer.details_wanted(int)",
    "PictureViewer.wanted(PyObject,int)",
    "Thumbnails.wanted(PyObject,int)",
    "CallsView.more_requested(int)",  # how many calls are read
    "Tools.sibling_requested(PyObject,int)",  # -1 or +1
    "Transcript.sibling_requested(PyObject,int)",
    "Tools.pin_requested(int,bool)",  # number of a passage in a chat
    "Transcript.pin_requested(int,bool)",
    "Tools.strike_requested(PyObject,int)",  # number of a passage in a chat
    "Transcript.strike_requested(PyObject,int)",
    "Transcript.zoom_requested(int)",  # steps
    "Window.zoom_requested(int)",
}


class Emitter(QObject):
    """Has a signal of each kind that ids are sent with."""

    one = Signal(object)
    with_text = Signal(object, str)
    several = Signal(list)


def test_only_small_numbers_are_sent_as_int() -> None:
    assert set(int_signals()) == SMALL


def test_ids_arrive_whole() -> None:
    emitter, found = Emitter(), list[object]()
    for signal in (emitter.one, emitter.several):
        signal.connect(found.append)
    emitter.with_text.connect(lambda number, text: found.append((number, text)))
    emitter.one.emit(1 << 52)
    emitter.several.emit([1 << 52, 1])
    emitter.with_text.emit(1 << 52, "x")
    assert found == [1 << 52, [1 << 52, 1], (1 << 52, "x")]


def int_signals() -> Iterator[str]:
    """Class and signature of every signal of the app with an `int`."""
    for module in pkgutil.walk_packages(app.__path__, "app."):
        importlib.import_module(module.name)
    for kind in below(QObject):
        if not kind.__module__.startswith("app."):
            continue
        described = kind.staticMetaObject
        for number in range(described.methodOffset(), described.methodCount()):
            method = described.method(number)
            types = [bytes(each.data()).decode() for each in method.parameterTypes()]
            if method.methodType() == QMetaMethod.MethodType.Signal and "int" in types:
                yield f"{kind.__name__}.{bytes(method.methodSignature().data()).decode()}"


def below(kind: type[QObject]) -> Iterator[type[QObject]]:
    """Every subclass, also of subclasses."""
    for each in kind.__subclasses__():
        yield each
        yield from below(each)
