"""Message tools of the transcript: which are visible, their positions and their actions.

`message_tools` defines and paints the tools; activating one copies text or emits a signal.
"""

from __future__ import annotations

from PySide6.QtCore import QMimeData, QObject, QPointF, QRectF, QTimer, Signal
from PySide6.QtGui import QGuiApplication

from app.domain.message import AnswerAgain
from app.domain.parts import ImagePart, clipboard_text
from app.ui.blocks.call_foot import CallFootView
from app.ui.blocks.code import CodeView
from app.ui.blocks.passage import PassageView
from app.ui.transcript.layout import TranscriptLayout
from app.ui.transcript.message import message_tools
from app.ui.transcript.message.kept_files import KeptFilesView
from app.ui.transcript.message.message_tools import Tool
from app.ui.transcript.message.message_view import MessageView
from app.ui.transcript.message.sections import Kind
from app.ui.transcript.message.tool_call import CallLook, ShownCall
from engine import Role

DONE = 1400  # milliseconds for which a used tool shows a tick


class Tools(QObject):
    """Activates message tools, and keeps which one shows a tick."""

    regenerate_requested = Signal(object, object)  # message, AnswerAgain
    variants_requested = Signal(object, object)  # index of a message, QRectF of the tool in it
    edit_requested = Signal(object)  # message
    instructions_requested = Signal()  # edit those of the chat
    save_requested = Signal(object)  # message, whose sections are a document
    marks_requested = Signal(object)  # answer, whose boxes are to be shown on its picture
    fork_requested = Signal(object)  # message, up to which the chat is copied
    continue_requested = Signal(object)  # message
    compare_requested = Signal(object)  # message, whose question is to be answered twice
    keep_requested = Signal(object)  # message, one of two compared answers
    stop_requested = Signal(object)  # message, an answer being written
    reopen_requested = Signal(object)  # message, whose comparison is shown again
    adapters_requested = Signal()  # the adapter icon of a message was clicked
    delete_requested = Signal(object)  # message
    details_requested = Signal(object)  # message
    speech_requested = Signal(object)  # id of a message: read it aloud, or stop reading it
    sibling_requested = Signal(object, int)  # message, -1 or +1
    pin_requested = Signal(int, bool)  # number of a passage: read it with later questions, or not
    strike_requested = Signal(object, int)  # question, number of a passage: leave it out, or not
    passages_changed = Signal(object, object)  # question, PassagesPart to answer it with again
    more_passages_requested = Signal(object)  # question
    no_passages_requested = Signal(object)  # answer, to be written without passages
    stop_call = Signal(object, str)  # message, call
    answer_again_from = Signal(object, str)  # message, call
    activity_requested = Signal()  # show all calls of tools
    kept_file_requested = Signal(object)  # KeptFile, which is to be saved

    def __init__(self, layout: TranscriptLayout) -> None:
        super().__init__(layout)
        self._layout = layout
        self.only_copy = False  # the text is no answer: nothing else can be done with it
        self.busy = False  # an answer is being generated
        self.can_read = False  # the system can read aloud
        self.reading: int | None = None  # message that is read aloud
        self._done: tuple[int, str] = (0, "")
        self._copied: CodeView | None = None
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._forget_done)

    def all(self, index: int) -> tuple[list[Tool], list[QRectF]]:
        """All tools of a message, visible or not, with their rectangles in message coordinates."""
        stack = self._layout.stack
        message = stack.views[index]
        if message.hidden_for_edit:
            return [], []
        last = index == len(stack) - 1
        if stack.place_in_pair(index):
            tools = message_tools.column_tools(message.message, busy=self.busy)
        else:
            tools = message_tools.tools_for(
                message.message,
                busy=self.busy,
                last=last,
                speech=self._speech(message.message.id),
                passages=self._passages(message),
                has_marks=self.has_marks(index),
            )
        if self.only_copy:
            tools = [tool for tool in tools if tool.name == "copy"]
        edge = stack.column if message.is_user else 0.0
        areas = message_tools.place(
            tools, self._layout.style, edge, message.tools_top, from_right=message.is_user
        )
        if QGuiApplication.isRightToLeft():
            width = stack.width(index)
            areas = [
                QRectF(width - area.right(), area.top(), area.width(), area.height())
                for area in areas
            ]
        return tools, areas

    @staticmethod
    def _passages(view: MessageView) -> str:
        """ "changed" if passages of a question are struck out and not sent; "listed" if shown.

        Also "listed" if there are none because a document is not indexed yet.
        """
        if view.passages_changed:
            return "changed"
        listed = any(row.kind is Kind.PASSAGES and not row.folded for row in view.rows)
        part = view.own_passages
        may_find = part is not None and not part.passages and part.missing > 0
        return "listed" if listed or may_find else ""

    def has_marks(self, index: int) -> bool:
        """Whether an answer names boxes or points, and there is a picture before it."""
        views = self._layout.stack.views
        return views[index].has_marks and any(
            isinstance(part, ImagePart) for view in views[:index] for part in view.message.parts
        )

    def _speech(self, message_id: int) -> str:
        if message_id == self.reading:
            return "silence"
        return "speak" if self.can_read else ""

    def shown(self, index: int) -> tuple[list[Tool], list[QRectF]]:
        """The visible tools of a message, with their rectangles in message coordinates."""
        stack = self._layout.stack
        message = stack.views[index]
        tools, areas = self.all(index)
        last = index == len(stack) - 1 and not message.is_user
        column = stack.place_in_pair(index) > 0
        if last or column or index in (self._layout.hovered, self._layout.focused):
            return tools, areas
        shown = [n for n, tool in enumerate(tools) if tool.lasting]
        return [tools[n] for n in shown], [areas[n] for n in shown]

    def done(self, message_id: int) -> str:
        """The name of a message's tool that shows a tick, or an empty text."""
        return self._done[1] if self._done[0] == message_id else ""

    def use(self, index: int, tool: Tool) -> None:
        """Activate a tool of a message."""
        message = self._layout.stack.views[index].message
        match tool.name:
            case "copy":
                self.copy(clipboard_text(message.parts))
                self._done = (message.id, "copy")
                self._timer.start(DONE)
                self._layout.message_changed.emit(index)
            case "regenerate":
                self.regenerate_requested.emit(message.id, AnswerAgain.SAME)
            case "variants":
                tools, areas = self.all(index)
                self.variants_requested.emit(index, areas[tools.index(tool)])
            case "save":
                self.save_requested.emit(message.id)
            case "show_marks":
                self.marks_requested.emit(message.id)
            case "fork":
                self.fork_requested.emit(message.id)
            case "edit" if message.role is Role.SYSTEM:
                self.instructions_requested.emit()
            case "edit":
                self.edit_requested.emit(message.id)
            case "adapter_badge":
                self.adapters_requested.emit()
            case "compare":
                self.compare_requested.emit(message.id)
            case "compared":
                self.reopen_requested.emit(message.id)
            case "keep":
                self.keep_requested.emit(message.id)
            case "stop":
                self.stop_requested.emit(message.id)
            case "continue" | "try_again":
                self.continue_requested.emit(message.id)
            case "info":
                self.details_requested.emit(message.id)
            case "again_with":
                part = self._layout.stack.views[index].own_passages
                self.passages_changed.emit(message.id, part)
            case "more_passages":
                self.more_passages_requested.emit(message.id)
            case "without_passages":
                self.no_passages_requested.emit(message.id)
            case "speak" | "silence":
                self.speech_requested.emit(message.id)
            case "delete":
                self.delete_requested.emit(message.id)
            case _:
                self.sibling_requested.emit(message.id, 1 if tool.name == "next" else -1)

    def use_button(self, index: int, part: int, name: str) -> None:
        """Activate a button in a block of a message."""
        view = self._layout.stack.views[index]
        block = view.parts[part].view
        call = view.sections[view.parts[part].section].call
        if isinstance(block, CodeView):
            self.copy_code(block)
        elif isinstance(block, KeptFilesView):
            file = block.file_of(name)
            if (image := file.image) is not None:
                self._layout.image_opened.emit(image)
            else:
                self.kept_file_requested.emit(file)
        elif isinstance(block, CallFootView) and name == "activity":
            self.activity_requested.emit()
        elif isinstance(block, CallFootView):
            self.answer_again_from.emit(view.message.id, call.id if call else "")
        elif isinstance(block, PassageView) and name == "pin":
            passage = block.passage
            self.pin_requested.emit(passage.number, not passage.pinned)
        elif isinstance(block, PassageView):
            self._layout.hold_top(index)
            self.strike_requested.emit(view.message.id, block.passage.number)

    def use_stop(self, index: int, row: int) -> None:
        """Stop the running call of a row."""
        view = self._layout.stack.views[index]
        call = view.rows[row].call if row < len(view.rows) else None
        if call is not None and call.look is CallLook.RUNNING:
            self.stop_call.emit(view.message.id, call.id)

    def call_at(self, index: int, point: QPointF) -> ShownCall | None:
        """The call whose card is at a viewport point, in a message."""
        inside = self._layout.local(index, point)
        rows = self._layout.stack.views[index].rows
        return next((row.call for row in rows if row.call and row.frame.contains(inside)), None)

    def copy_code(self, code: CodeView) -> None:
        """Copy a code block without its fences; its button shows a tick for `DONE` milliseconds."""
        self.copy(code.code)
        self._forget_done()
        self._copied = code
        code.copied = True
        self._timer.start(DONE)

    def _forget_done(self) -> None:
        self._done = (0, "")
        if self._copied:
            self._copied.copied = False
            self._copied = None
        self._layout.changed.emit()

    def copy(self, text: str, html: str = "") -> None:
        """Put text, and HTML if given, on the clipboard."""
        data = QMimeData()
        data.setText(text)
        if html:
            data.setHtml(html)
        QGuiApplication.clipboard().setMimeData(data)
