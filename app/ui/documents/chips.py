"""Chips of what a message is answered from, in lines that scroll where they are many."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QAccessible, QPixmap, QResizeEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QSizePolicy, QWidget

from app.state.attachments import Attachment
from app.state.collections import ShownCollection
from app.system.translation import tr, trn
from app.ui.documents.chip import HEIGHT, AttachmentChip, Item
from app.ui.pictures.thumbnails import Thumbnails
from app.ui.widgets import accessibility
from app.ui.widgets.wrap import WrapLayout

_GAP = 6  # pixels between chips
_MOST = 3 * (HEIGHT + _GAP) - _GAP  # pixels: lines shown at once; more scroll


class Chips(QScrollArea):
    """One chip per item; Tab stops at one of them, from which the arrow keys go to the others."""

    opened = Signal(object)  # the item
    removed = Signal(object)
    retried = Signal(int)  # id of the attachment
    reloaded = Signal(int)
    undo_requested = Signal()  # by its key
    menu_requested = Signal(object)  # AttachmentChip of a picture
    left = Signal()  # the last chip was removed while it had the focus

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        accessibility.register_role(Chips, QAccessible.Role.List)
        self.chips: list[AttachmentChip] = []
        self._thumbnails: Thumbnails | None = None
        self._stop = 0  # index of the chip at which Tab stops
        self._news: list[AttachmentChip] = []  # to be announced once all files are read
        self._inside = QWidget()
        self._wrap = WrapLayout(self._inside, _GAP, centred=False)
        self.setWidget(self._inside)
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        policy = QSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)
        self.setAccessibleName(tr("Files and collections"))
        self.viewport().setAutoFillBackground(False)
        self._inside.setAutoFillBackground(False)
        self.hide()

    @property
    def items(self) -> list[Item]:
        """What the chips show, in order."""
        return [chip.item for chip in self.chips]

    def use_thumbnails(self, thumbnails: Thumbnails) -> None:
        """Show pictures of which there is only the kept file by these."""
        self._thumbnails = thumbnails
        thumbnails.changed.connect(self._show_kept)
        self._show_kept()

    def _show_kept(self, sha256: str = "") -> None:
        """Show the thumbnails of pictures, or of the one with this hash, where they are there."""
        for chip in self.chips if self._thumbnails is not None else ():
            part = chip.kept_picture
            if part is not None and sha256 in ("", part.sha256):
                found = self._thumbnails.of(part) if self._thumbnails else None
                if isinstance(found, QPixmap):
                    chip.show_kept(part.sha256, found)

    def order_tabs(self, before: Sequence[QWidget], after: Sequence[QWidget]) -> None:
        """Put all that can take the focus into the order of Tab, between other widgets."""
        inside: list[QWidget] = []
        for chip in self.chips:
            chip.set_in_tabs(is_in=True)  # Qt leaves others where they are
            inside += (chip, chip.again_button, chip.remove_button)
        for first, second in pairwise((*before, *inside, *after)):
            QWidget.setTabOrder(first, second)
        self._set_stop(self._stop)

    def show_items(self, items: Sequence[Item]) -> bool:
        """Show these items; a chip that stays keeps its focus. Returns whether others have chips."""
        chips_before = self.chips
        focused = next(((n, each) for n, each in enumerate(self.chips) if _has_focus(each)), None)
        before = {_key(chip.item): chip for chip in self.chips}
        self.chips = [before.pop(_key(item), None) or self._made(item) for item in items]
        for chip in before.values():
            chip.hide()
            chip.deleteLater()
        is_changed = self.chips != chips_before
        while is_changed and self._wrap.takeAt(0) is not None:
            pass
        for chip, item in zip(self.chips, items, strict=True):
            if chip.item != item and chip.show_item(item):
                self._news.append(chip)
            if is_changed:
                self._wrap.addWidget(chip)
                chip.show()
        self._show_kept()
        self.setVisible(bool(items))
        self._set_stop(min(self._stop, len(items) - 1))
        self._fit_bar()
        self.updateGeometry()
        if focused is not None and focused[1] not in self.chips:
            self._focus(min(focused[0], len(items) - 1))
        self._announce()
        return is_changed

    def _announce(self) -> None:
        """Say which files were read, and what is wrong; of many that are right, how many."""
        if any(chip.is_reading for chip in self.chips):
            return
        news = [chip for chip in self.chips if chip in self._news]
        self._news = []
        right = [chip for chip in news if not chip.warns]
        is_many = len(right) > 1
        words = [chip.accessibleName() for chip in news if chip.warns or not is_many]
        if is_many:
            words.append(trn("{count} file", "{count} files", len(right)))
        if words:
            accessibility.announce(self, "\n".join(words))

    def _made(self, item: Item) -> AttachmentChip:
        chip = AttachmentChip(item, self._inside)
        chip.opened.connect(lambda: self.opened.emit(chip.item))
        chip.removed.connect(lambda: self.removed.emit(chip.item))
        chip.retried.connect(lambda: self.retried.emit(_id(chip.item)))
        chip.reloaded.connect(lambda: self.reloaded.emit(_id(chip.item)))
        chip.undo_requested.connect(self.undo_requested)
        chip.menu_requested.connect(lambda: self.menu_requested.emit(chip))
        chip.moved.connect(partial(self._move, chip))
        chip.focused.connect(lambda: self._set_stop(self.chips.index(chip)))
        return chip

    def _move(self, chip: AttachmentChip, step: int) -> None:
        self._focus(min(max(self.chips.index(chip) + step, 0), len(self.chips) - 1))

    def _focus(self, at: int) -> None:
        if at < 0:
            self.left.emit()
            return
        self._set_stop(at)
        self.chips[at].setFocus(Qt.FocusReason.TabFocusReason)
        self.ensureWidgetVisible(self.chips[at], 0, 0)

    def _set_stop(self, at: int) -> None:
        self._stop = max(at, 0)
        for n, chip in enumerate(self.chips):
            chip.set_in_tabs(is_in=n == self._stop)

    # --- size -----------------------------------------------------------------------------------

    def hasHeightForWidth(self) -> bool:
        """It is as high as its lines, up to the most."""
        return True

    def heightForWidth(self, arg__1: int) -> int:
        return min(self._wrap.heightForWidth(max(arg__1, 1)), _MOST) + _GAP

    def _fit_bar(self) -> None:
        """Show the scroll bar where it is needed; Qt would keep one that takes the room itself."""
        policies = Qt.ScrollBarPolicy
        fits = self._wrap.heightForWidth(max(self.width(), 1)) <= _MOST
        self.setVerticalScrollBarPolicy(
            policies.ScrollBarAlwaysOff if fits else policies.ScrollBarAlwaysOn
        )

    def resizeEvent(self, arg__1: QResizeEvent) -> None:
        self._fit_bar()
        super().resizeEvent(arg__1)

    def sizeHint(self) -> QSize:
        return QSize(200, self.heightForWidth(self.width()))

    def minimumSizeHint(self) -> QSize:
        return QSize(0, HEIGHT + _GAP)


def _id(item: Item) -> int:
    return item.id if isinstance(item, Attachment) else 0


def _key(item: Item) -> object:
    """What tells an item from the others while its state changes."""
    match item:
        case Attachment():
            return item.id
        case ShownCollection():
            return ShownCollection, item.collection.id


def _has_focus(chip: AttachmentChip) -> bool:
    focus = chip.window().focusWidget() or chip.window()
    return focus is chip or chip.isAncestorOf(focus)
