"""Virtualised list of the model library: only rows near the viewport have widgets.

Row heights depend on the wrapped text and the width, so a row is measured when it is first
realised and has an estimated height until then. A scroll anchor (the first visible row) keeps the
visible rows in place when a measured height differs from the estimate.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QAccessible, QFocusEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractScrollArea, QFrame, QWidget

from app.system.translation import tr
from app.ui.library.row import LibraryHeading, LibraryRow
from app.ui.library.row_values import DeferredView, HeadingView, RowView, View
from app.ui.widgets import accessibility

COLUMN = 860  # pixels: maximum width of a row
_SIDE = 24  # pixels left and right of the column
_TOP, _BOTTOM = -12, 32  # pixels; the negative top offsets the first heading's large padding
_ROW_ESTIMATE, _HEADING_ESTIMATE = 64, 62  # pixels: estimated heights
_OVERSCAN = 120  # pixels of overscan: rows so far outside the viewport have widgets too
_STEP = 44

RowWidget = LibraryRow | LibraryHeading


@dataclass(slots=True)
class _Measured:
    """A measured row height with the view and width it is valid for."""

    view: View
    width: int
    height: int


class LibraryList(QAbstractScrollArea):
    """Scroll area that shows row views from top to bottom in a centred column."""

    acted = Signal(object)  # Action
    seen_changed = Signal()  # the set of visible rows changed

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._views: tuple[View, ...] = ()
        self._tops: list[int] = [0]  # y of each row, then the end of the last one
        self._index_by_key: dict[str, int] = {}
        self._measured: dict[str, _Measured] = {}
        self._realised: dict[str, RowWidget] = {}
        self._pool: dict[type, list[RowWidget]] = {LibraryRow: [], LibraryHeading: []}
        self._seen: tuple[str, ...] = ()
        self._laying_out = False
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)
        self.verticalScrollBar().setSingleStep(_STEP)
        self.viewport().setAutoFillBackground(False)
        self.setAccessibleName(tr("Models"))
        roles = QAccessible.Role
        accessibility.register_role(LibraryList, roles.List)
        accessibility.register_role(LibraryRow, roles.ListItem)
        accessibility.register_role(LibraryHeading, roles.Heading)

    # --- content --------------------------------------------------------------------------------

    def set_views(self, views: Sequence[View]) -> None:
        """Replace the rows; the scroll anchor keeps the visible ones that remain in place."""
        anchor = self._anchor()
        focused, place = self._focused_row()
        self._views = tuple(views)
        self._index_by_key = {view.key: place for place, view in enumerate(self._views)}
        assert len(self._index_by_key) == len(self._views), "two rows of one key"
        for key in [key for key in self._measured if key not in self._index_by_key]:
            del self._measured[key]
        self._lay_out(anchor)
        if focused and focused not in self._index_by_key:
            self._focus_near(place)

    @property
    def seen(self) -> tuple[str, ...]:
        """The keys of the visible rows, from the top."""
        return self._seen

    def row(self, key: str) -> RowWidget | None:
        """The widget of a row; None for a row outside the viewport."""
        return self._realised.get(key)

    def scroll_to(self, key: str) -> None:
        """Scroll a row to the top of the viewport."""
        if key not in self._index_by_key:
            return
        for _ in range(3):  # scrolling replaces estimated heights by measured ones
            self.verticalScrollBar().setValue(self._tops[self._index_by_key[key]])

    # --- layout ---------------------------------------------------------------------------------

    def _column(self) -> tuple[int, int]:
        """The left edge and the width of the column."""
        whole = self.viewport().width()
        width = max(min(whole - 2 * _SIDE, COLUMN), 120)
        return max((whole - width) // 2, 0), width

    def _anchor(self) -> tuple[str, int] | None:
        """The scroll anchor: key of the first visible row and its y in the viewport."""
        offset = self.verticalScrollBar().value()
        if offset <= 0 or not self._views:
            return None
        place = self._index_at(offset)
        return self._views[place].key, self._tops[place] - offset

    def _lay_out(self, anchor: tuple[str, int] | None) -> None:
        """Compute all row positions, then realise, measure and place the visible rows."""
        if self._laying_out:
            return
        self._laying_out = True
        for _ in range(8):  # each pass replaces the visible estimates by measured heights
            self._compute_tops()
            self._scroll(anchor)
            if not self._realise():
                break
            anchor = anchor or self._anchor()
        self._laying_out = False
        self._emit_seen()

    def _compute_tops(self) -> None:
        _, width = self._column()
        top, tops = _TOP, [_TOP]
        for view in self._views:
            known = self._measured.get(view.key)
            exact = known is not None and known.width == width
            top += known.height if known is not None and exact else _estimated_height(view)
            tops.append(top)
        self._tops = tops

    def _scroll(self, anchor: tuple[str, int] | None) -> None:
        bar, page = self.verticalScrollBar(), self.viewport().height()
        bar.setPageStep(page)
        bar.setRange(0, max(self._tops[-1] + _BOTTOM - page, 0))
        if anchor is not None and anchor[0] in self._index_by_key:
            bar.setValue(self._tops[self._index_by_key[anchor[0]]] - anchor[1])

    def _realise(self) -> bool:
        """Give the visible rows widgets; True if a measured height differs from the estimate."""
        left, width = self._column()
        offset, page = self.verticalScrollBar().value(), self.viewport().height()
        first = self._index_at(offset - _OVERSCAN)
        last = self._index_at(offset + page + _OVERSCAN)
        wanted = [view.key for view in self._views[first : last + 1]]
        self._recycle_rows(frozenset(wanted))
        changed = False
        for key in dict.fromkeys([*wanted, *self._realised]):
            place = self._index_by_key[key]
            view, row = self._views[place], self._row_for(key)
            changed |= self._show(row, view, width)
            height = self._measured[key].height
            row.setGeometry(left, self._tops[place] - offset, width, height)
        return changed

    def _show(self, row: RowWidget, view: View, width: int) -> bool:
        known = self._measured.get(view.key)
        if isinstance(row, LibraryHeading):
            assert isinstance(view, HeadingView)
            row.show_view(view)
        else:
            assert not isinstance(view, HeadingView)
            row.show_view(_resolved(view))
        if known is not None and (known.view, known.width) == (view, width):
            return False
        height = row.height_for(width)
        self._measured[view.key] = _Measured(view, width, height)
        guess = (
            known.height if known is not None and known.width == width else _estimated_height(view)
        )
        return height != guess

    def _row_for(self, key: str) -> RowWidget:
        row = self._realised.get(key)
        if row is None:
            heading = isinstance(self._views[self._index_by_key[key]], HeadingView)
            spare = self._pool[LibraryHeading if heading else LibraryRow]
            row = spare.pop() if spare else self._make_row(heading)
            self._realised[key] = row
            row.show()
        return row

    def _make_row(self, heading: bool) -> RowWidget:
        row = LibraryHeading(self.viewport()) if heading else LibraryRow(self.viewport())
        row.acted.connect(self.acted)
        row.navigated.connect(self._navigate)
        row.entered_backwards.connect(self._focus_last_row, Qt.ConnectionType.QueuedConnection)
        return row

    def _recycle_rows(self, wanted: frozenset[str]) -> None:
        """Return widgets of invisible rows to the pool, except the one with the keyboard focus."""
        for key, row in list(self._realised.items()):
            view = self._views[self._index_by_key[key]] if key in self._index_by_key else None
            heading = isinstance(row, LibraryHeading)
            there = view is not None and isinstance(view, HeadingView) is heading
            if there and (key in wanted or row.focused() is not None):
                continue
            row.hide()
            self._pool[type(row)].append(row)
            del self._realised[key]

    def _index_at(self, y: int) -> int:
        """The index of the row at `y`, in content coordinates."""
        return min(max(bisect_right(self._tops, y) - 1, 0), max(len(self._views) - 1, 0))

    def _emit_seen(self) -> None:
        offset, page = self.verticalScrollBar().value(), self.viewport().height()
        first, last = self._index_at(offset), self._index_at(offset + page)
        seen = tuple(view.key for view in self._views[first : last + 1])
        if seen != self._seen:
            self._seen = seen
            self.seen_changed.emit()

    # --- keyboard -------------------------------------------------------------------------------

    def _focused_row(self) -> tuple[str, int]:
        """The key and index of the row with the keyboard focus; an empty key if there is none."""
        for key, row in self._realised.items():
            if row.focused() is not None:
                return key, self._index_by_key.get(key, 0)
        return "", 0

    def _navigate(self, key: int) -> None:
        """Move the focus: Left and Right inside a row, the other keys between rows."""
        focused, place = self._focused_row()
        if not focused:
            return
        page = max(self.viewport().height() // _ROW_ESTIMATE - 1, 1)
        steps = {
            Qt.Key.Key_Up: -1,
            Qt.Key.Key_Down: 1,
            Qt.Key.Key_PageUp: -page,
            Qt.Key.Key_PageDown: page,
            Qt.Key.Key_Home: -len(self._views),
            Qt.Key.Key_End: len(self._views),
        }
        if key in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            self._move_within_row(focused, 1 if key == Qt.Key.Key_Right else -1)
        elif (step := steps.get(Qt.Key(key))) is not None:
            self._move_between_rows(place, step)

    def _move_within_row(self, key: str, step: int) -> None:
        controls = self._realised[key].controls()
        at = next((i for i, each in enumerate(controls) if each.hasFocus()), 0)
        if 0 <= at + step < len(controls):
            controls[at + step].setFocus(Qt.FocusReason.TabFocusReason)

    def _move_between_rows(self, place: int, step: int) -> None:
        target = min(max(place + step, 0), len(self._views) - 1)
        direction = 1 if step > 0 else -1
        outward = range(target, len(self._views) if direction > 0 else -1, direction)
        back = range(target - direction, place, -direction)
        for each in (*outward, *back):
            if self._focus(each, last=False):
                return

    def _focus(self, place: int, *, last: bool) -> bool:
        """Scroll to a row and focus one of its controls; False if it has no controls."""
        if not _can_act(self._views[place]):
            return False
        self._ensure_visible(place)
        row = self._realised[self._views[place].key]
        controls = row.controls()
        controls[-1 if last else 0].setFocus(Qt.FocusReason.TabFocusReason)
        return True

    def _ensure_visible(self, place: int) -> None:
        bar, page = self.verticalScrollBar(), self.viewport().height()
        for _ in range(3):
            top, bottom = self._tops[place], self._tops[place + 1]
            if top < bar.value():
                bar.setValue(top - _STEP)
            elif bottom > bar.value() + page:
                bar.setValue(bottom - page + _STEP)
        self._lay_out(None)

    def _focus_near(self, place: int) -> None:
        """Focus the row nearest to the index of a removed row that had the focus."""
        after = range(min(place, len(self._views) - 1), len(self._views))
        for each in (*after, *range(place - 1, -1, -1)):
            if 0 <= each < len(self._views) and self._focus(each, last=False):
                return

    def _focus_last_row(self) -> None:
        for place in range(len(self._views) - 1, -1, -1):
            if self._focus(place, last=True):
                return

    def focusInEvent(self, arg__1: QFocusEvent) -> None:
        backward = arg__1.reason() is Qt.FocusReason.BacktabFocusReason
        places = range(len(self._views))
        start = self._index_at(self.verticalScrollBar().value())
        order = reversed(places) if backward else (*places[start:], *places[:start])
        for place in order:
            if self._focus(place, last=backward):
                return

    def focusNextPrevChild(self, next: bool) -> bool:
        """Tab through the controls of all rows, including unrealised ones, then leave the list."""
        focused, place = self._focused_row()
        if focused:
            controls = self._realised[focused].controls()
            at = [each.hasFocus() for each in controls].index(True) + (1 if next else -1)
            if 0 <= at < len(controls):
                controls[at].setFocus(Qt.FocusReason.TabFocusReason)
                return True
            places = range(place + 1, len(self._views)) if next else range(place - 1, -1, -1)
            for each in places:
                if self._focus(each, last=not next):
                    return True
        return self._focus_outside(next)

    def _focus_outside(self, forward: bool) -> bool:
        """Focus the next or previous widget of the focus chain outside the list."""
        reason = Qt.FocusReason.TabFocusReason if forward else Qt.FocusReason.BacktabFocusReason
        widget: QWidget = self
        while True:
            following = widget.nextInFocusChain() if forward else widget.previousInFocusChain()
            if following is None or following is self:
                return False
            widget = following
            tab = Qt.FocusPolicy.TabFocus
            takes = widget.focusPolicy() & tab == tab and widget.isVisible() and widget.isEnabled()
            if takes and not self.isAncestorOf(widget):
                widget.setFocus(reason)
                return True

    # --- Qt -------------------------------------------------------------------------------------

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        if not self._laying_out:
            self._lay_out(None)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._lay_out(self._anchor())


def _estimated_height(view: View) -> int:
    """The estimated height of a row that has not been measured."""
    return _HEADING_ESTIMATE if isinstance(view, HeadingView) else _ROW_ESTIMATE


def _resolved(view: RowView | DeferredView) -> RowView:
    return view if isinstance(view, RowView) else view.build()


def _can_act(view: View) -> bool:
    if isinstance(view, HeadingView):
        return bool(view.links)
    row = _resolved(view)
    return bool(row.action or row.icons or row.menu or row.link or row.links)
