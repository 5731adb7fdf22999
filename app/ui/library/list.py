"""The list of the page of models: makes widgets only for the rows that can be seen.

Rows are as high as their words need, which is known only once they were shown at a width; until
then a row counts with a guess, and what can be seen stays where it is when a guess was wrong.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QAccessible, QFocusEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractScrollArea, QFrame, QWidget

from app.ui.library.row import LibraryHeading, LibraryRow
from app.ui.library.row_values import HeadingView, LaterView, RowView, View
from app.ui.theme.palette import LIGHT, Palette
from app.ui.widgets import accessibility

COLUMN = 860  # pixels: the widest a row gets
_SIDE = 24  # pixels beside the column
_TOP, _BOTTOM = -12, 32  # pixels; the first heading's own space above is large
_ROW, _HEADING = 64, 62  # pixels: the guesses
_AHEAD = 120  # pixels beyond the edge that are ready already
_STEP = 44

RowWidget = LibraryRow | LibraryHeading


@dataclass(slots=True)
class _Measured:
    """How high a row was, and for which view and width that holds."""

    view: View
    width: int
    height: int


class LibraryList(QAbstractScrollArea):
    """Shows views one under the other, in a centred column."""

    acted = Signal(object)  # Action
    seen_changed = Signal()  # other rows can be seen

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._views: tuple[View, ...] = ()
        self._tops: list[int] = [0]  # one more than there are views: the last is the end
        self._places: dict[str, int] = {}
        self._measured: dict[str, _Measured] = {}
        self._live: dict[str, RowWidget] = {}
        self._spare: dict[type, list[RowWidget]] = {LibraryRow: [], LibraryHeading: []}
        self._palette = LIGHT
        self._seen: tuple[str, ...] = ()
        self._laying_out = False
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)
        self.verticalScrollBar().setSingleStep(_STEP)
        self.viewport().setAutoFillBackground(False)
        self.setAccessibleName("Models")
        roles = QAccessible.Role
        accessibility.register_role(LibraryList, roles.List)
        accessibility.register_role(LibraryRow, roles.ListItem)
        accessibility.register_role(LibraryHeading, roles.Heading)

    # --- what is shown --------------------------------------------------------------------------

    def set_views(self, views: Sequence[View]) -> None:
        """Show these; what can be seen and is still there stays where it is."""
        anchor = self._anchor()
        focused, place = self._focused_place()
        self._views = tuple(views)
        self._places = {view.key: place for place, view in enumerate(self._views)}
        assert len(self._places) == len(self._views), "two rows of one key"
        for key in [key for key in self._measured if key not in self._places]:
            del self._measured[key]
        self._lay_out(anchor)
        if focused and focused not in self._places:
            self._focus_near(place)

    @property
    def seen(self) -> tuple[str, ...]:
        """The keys of the rows that can be seen, from the top."""
        return self._seen

    def row(self, key: str) -> RowWidget | None:
        """The widget of a row, while it can be seen."""
        return self._live.get(key)

    def scroll_to(self, key: str) -> None:
        """Bring a row to the top."""
        if key not in self._places:
            return
        for _ in range(3):  # guesses on the way turn into heights
            self.verticalScrollBar().setValue(self._tops[self._places[key]])

    def apply_palette(self, palette: Palette) -> None:
        """Apply the colours of a theme."""
        self._palette = palette
        for row in self._all_rows():
            row.apply_palette(palette)

    # --- layout ---------------------------------------------------------------------------------

    def _column(self) -> tuple[int, int]:
        """Where the column begins, and how wide it is."""
        whole = self.viewport().width()
        width = max(min(whole - 2 * _SIDE, COLUMN), 120)
        return max((whole - width) // 2, 0), width

    def _anchor(self) -> tuple[str, int] | None:
        """The first row that can be seen, and how far it is above the edge."""
        offset = self.verticalScrollBar().value()
        if offset <= 0 or not self._views:
            return None
        place = self._place_at(offset)
        return self._views[place].key, self._tops[place] - offset

    def _lay_out(self, anchor: tuple[str, int] | None) -> None:
        """Compute all places, then make, measure and place what can be seen."""
        if self._laying_out:
            return
        self._laying_out = True
        for _ in range(8):  # each round turns guesses that can be seen into heights
            self._compute_tops()
            self._scroll(anchor)
            if not self._realise():
                break
            anchor = anchor or self._anchor()
        self._laying_out = False
        self._tell_seen()

    def _compute_tops(self) -> None:
        _, width = self._column()
        top, tops = _TOP, [_TOP]
        for view in self._views:
            known = self._measured.get(view.key)
            exact = known is not None and known.width == width
            top += known.height if known is not None and exact else _guess(view)
            tops.append(top)
        self._tops = tops

    def _scroll(self, anchor: tuple[str, int] | None) -> None:
        bar, page = self.verticalScrollBar(), self.viewport().height()
        bar.setPageStep(page)
        bar.setRange(0, max(self._tops[-1] + _BOTTOM - page, 0))
        if anchor is not None and anchor[0] in self._places:
            bar.setValue(self._tops[self._places[anchor[0]]] - anchor[1])

    def _realise(self) -> bool:
        """Give the rows that can be seen widgets; True when a height was not as guessed."""
        left, width = self._column()
        offset, page = self.verticalScrollBar().value(), self.viewport().height()
        first = self._place_at(offset - _AHEAD)
        last = self._place_at(offset + page + _AHEAD)
        wanted = [view.key for view in self._views[first : last + 1]]
        self._put_away(frozenset(wanted))
        changed = False
        for key in dict.fromkeys([*wanted, *self._live]):
            place = self._places[key]
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
            row.show_view(_made(view))
        if known is not None and (known.view, known.width) == (view, width):
            return False
        height = row.height_for(width)
        self._measured[view.key] = _Measured(view, width, height)
        guess = known.height if known is not None and known.width == width else _guess(view)
        return height != guess

    def _row_for(self, key: str) -> RowWidget:
        row = self._live.get(key)
        if row is None:
            heading = isinstance(self._views[self._places[key]], HeadingView)
            spare = self._spare[LibraryHeading if heading else LibraryRow]
            row = spare.pop() if spare else self._made(heading)
            self._live[key] = row
            row.show()
        return row

    def _made(self, heading: bool) -> RowWidget:
        row = LibraryHeading(self.viewport()) if heading else LibraryRow(self.viewport())
        row.apply_palette(self._palette)
        row.acted.connect(self.acted)
        row.navigated.connect(self._navigate)
        row.entered_backwards.connect(self._enter_at_the_end, Qt.ConnectionType.QueuedConnection)
        return row

    def _put_away(self, wanted: frozenset[str]) -> None:
        """Take the widgets of rows that cannot be seen, but never the one with the keyboard."""
        for key, row in list(self._live.items()):
            view = self._views[self._places[key]] if key in self._places else None
            heading = isinstance(row, LibraryHeading)
            there = view is not None and isinstance(view, HeadingView) is heading
            if there and (key in wanted or row.focused() is not None):
                continue
            row.hide()
            self._spare[type(row)].append(row)
            del self._live[key]

    def _place_at(self, y: int) -> int:
        """The place of the view at a height of the whole list."""
        return min(max(bisect_right(self._tops, y) - 1, 0), max(len(self._views) - 1, 0))

    def _tell_seen(self) -> None:
        offset, page = self.verticalScrollBar().value(), self.viewport().height()
        first, last = self._place_at(offset), self._place_at(offset + page)
        seen = tuple(view.key for view in self._views[first : last + 1])
        if seen != self._seen:
            self._seen = seen
            self.seen_changed.emit()

    def _all_rows(self) -> Iterator[RowWidget]:
        yield from self._live.values()
        for spare in self._spare.values():
            yield from spare

    # --- keyboard -------------------------------------------------------------------------------

    def _focused_place(self) -> tuple[str, int]:
        """The row with the keyboard: its key and place; no key when none has it."""
        for key, row in self._live.items():
            if row.focused() is not None:
                return key, self._places.get(key, 0)
        return "", 0

    def _navigate(self, key: int) -> None:
        """Up, Down and their kin go from row to row, Left and Right along one."""
        focused, place = self._focused_place()
        if not focused:
            return
        page = max(self.viewport().height() // _ROW - 1, 1)
        steps = {
            Qt.Key.Key_Up: -1,
            Qt.Key.Key_Down: 1,
            Qt.Key.Key_PageUp: -page,
            Qt.Key.Key_PageDown: page,
            Qt.Key.Key_Home: -len(self._views),
            Qt.Key.Key_End: len(self._views),
        }
        if key in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            self._step_along(focused, 1 if key == Qt.Key.Key_Right else -1)
        elif (step := steps.get(Qt.Key(key))) is not None:
            self._step_rows(place, step)

    def _step_along(self, key: str, step: int) -> None:
        controls = self._live[key].controls()
        at = next((i for i, each in enumerate(controls) if each.hasFocus()), 0)
        if 0 <= at + step < len(controls):
            controls[at + step].setFocus(Qt.FocusReason.TabFocusReason)

    def _step_rows(self, place: int, step: int) -> None:
        target = min(max(place + step, 0), len(self._views) - 1)
        direction = 1 if step > 0 else -1
        outward = range(target, len(self._views) if direction > 0 else -1, direction)
        back = range(target - direction, place, -direction)
        for each in (*outward, *back):
            if self._focus(each, last=False):
                return

    def _focus(self, place: int, *, last: bool) -> bool:
        """Give the keyboard to a row, scrolled to where it can be seen; False if it takes none."""
        if not _can_act(self._views[place]):
            return False
        self._bring_in(place)
        row = self._live[self._views[place].key]
        controls = row.controls()
        controls[-1 if last else 0].setFocus(Qt.FocusReason.TabFocusReason)
        return True

    def _bring_in(self, place: int) -> None:
        bar, page = self.verticalScrollBar(), self.viewport().height()
        for _ in range(3):
            top, bottom = self._tops[place], self._tops[place + 1]
            if top < bar.value():
                bar.setValue(top - _STEP)
            elif bottom > bar.value() + page:
                bar.setValue(bottom - page + _STEP)
        self._lay_out(None)

    def _focus_near(self, place: int) -> None:
        """The row with the keyboard is gone: the one in its place takes over."""
        after = range(min(place, len(self._views) - 1), len(self._views))
        for each in (*after, *range(place - 1, -1, -1)):
            if 0 <= each < len(self._views) and self._focus(each, last=False):
                return

    def _enter_at_the_end(self) -> None:
        for place in range(len(self._views) - 1, -1, -1):
            if self._focus(place, last=True):
                return

    def focusInEvent(self, arg__1: QFocusEvent) -> None:
        backward = arg__1.reason() is Qt.FocusReason.BacktabFocusReason
        places = range(len(self._views))
        start = self._place_at(self.verticalScrollBar().value())
        order = reversed(places) if backward else (*places[start:], *places[:start])
        for place in order:
            if self._focus(place, last=backward):
                return

    def focusNextPrevChild(self, next: bool) -> bool:
        """Tab goes through all rows, also those that have no widget yet, then on to what follows."""
        focused, place = self._focused_place()
        if focused:
            controls = self._live[focused].controls()
            at = [each.hasFocus() for each in controls].index(True) + (1 if next else -1)
            if 0 <= at < len(controls):
                controls[at].setFocus(Qt.FocusReason.TabFocusReason)
                return True
            places = range(place + 1, len(self._views)) if next else range(place - 1, -1, -1)
            for each in places:
                if self._focus(each, last=not next):
                    return True
        return self._leave(next)

    def _leave(self, forward: bool) -> bool:
        """Give the keyboard to what comes after or before the whole list."""
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


def _guess(view: View) -> int:
    """How high a row is likely to be."""
    return _HEADING if isinstance(view, HeadingView) else _ROW


def _made(view: RowView | LaterView) -> RowView:
    return view if isinstance(view, RowView) else view.made()


def _can_act(view: View) -> bool:
    if isinstance(view, HeadingView):
        return bool(view.links)
    row = _made(view)
    return bool(row.action or row.icons or row.menu or row.link or row.links)
