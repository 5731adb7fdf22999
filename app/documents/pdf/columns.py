"""Reading order of a page: its columns one after the other, and tables of aligned columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from app.documents.intervals import clusters
from app.documents.pdf.geometry import Fragment, direction
from app.documents.pdf.paragraphs import joined, lines_of, paragraphs
from app.documents.tables import markdown_table

DEEPEST = 4  # columns within columns
NARROWEST = 7.0  # points between columns
Span = tuple[float, float]
_SENTENCE_ENDS = (*".!?:;…|", "。")


@dataclass(frozen=True, slots=True)
class _Group:
    """Bands of fragments that share gaps between columns; without gaps, one column."""

    bands: list[list[Fragment]]
    gaps: list[Span]

    @property
    def items(self) -> list[Fragment]:
        return [item for band in self.bands for item in band]


def reading_order(items: Sequence[Fragment]) -> list[str]:
    """The paragraphs and Markdown tables of a page, as they are read."""
    if not items:
        return []
    return _blocks(items, min(item.x0 for item in items), max(item.x1 for item in items), 0)


def _blocks(items: Sequence[Fragment], left: float, right: float, depth: int) -> list[str]:
    bands = clusters(
        items,
        (item.middle - 0.3 * item.height if item.rows is None else item.y0 for item in items),
        (item.middle + 0.3 * item.height if item.rows is None else item.y1 for item in items),
    )
    made: list[str] = []
    flow: list[Fragment] = []
    for group in _groups(bands, left, right):
        blocks = _across(group, left, right, depth) if group.gaps and depth < DEEPEST else None
        if blocks is None:
            flow.extend(group.items)
            continue
        made.extend(_flow(flow))
        flow = []
        made.extend(blocks)
    made.extend(_flow(flow))
    return made


def _flow(items: list[Fragment]) -> list[str]:
    """The paragraphs and tables of one column."""
    made: list[str] = []
    lines: list[Fragment] = []
    for line in lines_of(items):
        if line.rows is None:
            lines.append(line)
            continue
        made.extend(paragraphs(lines))
        lines = []
        made.append(markdown_table(line.rows))
    return made + paragraphs(lines)


def _gaps(band: list[Fragment], left: float, right: float) -> list[Span]:
    """Where nothing stands in a band."""
    made: list[Span] = []
    reach = left
    for item in sorted(band, key=lambda item: item.x0):
        if item.x0 - reach >= NARROWEST:
            made.append((reach, item.x0))
        reach = max(reach, item.x1)
    if right - reach >= NARROWEST:
        made.append((reach, right))
    return made


def _common(some: list[Span], others: list[Span]) -> list[Span]:
    made: list[Span] = []
    for start, end in some:
        for first, last in others:
            low, high = max(start, first), min(end, last)
            if high - low >= NARROWEST:
                made.append((low, high))
    return made


def _inner(gaps: list[Span], first: float, last: float) -> list[Span]:
    """The gaps with text on both sides."""
    return [gap for gap in gaps if gap[0] >= first and gap[1] <= last]


def _groups(bands: list[list[Fragment]], left: float, right: float) -> list[_Group]:
    """Bands one below the other, as many together as share gaps between columns."""
    all_gaps = [_gaps(band, left, right) for band in bands]
    ends = [(min(item.x0 for item in band), max(item.x1 for item in band)) for band in bands]
    made: list[_Group] = []
    done = at = 0  # bands before these are in a group; are looked at
    while at < len(bands):
        first, last = ends[at]
        gaps = _inner(all_gaps[at], first, last)
        end, sided = at + 1, 1
        while gaps and end < len(bands) and not _is_far(bands[end - 1], bands[end]):
            low, high = min(first, ends[end][0]), max(last, ends[end][1])
            common = _inner(_common(gaps, all_gaps[end]), low, high)
            if not common or (len(common) < len(gaps) and end - at >= 3):
                break
            is_sided = bool(_inner(common, *ends[end]))
            if not is_sided and len(common) > len(gaps):
                break  # it stands between the columns
            sided += is_sided
            gaps, first, last, end = common, low, high, end + 1
        if not gaps or sided < 2:
            at += 1
            continue
        if end < len(bands):
            end = _tail(bands, ends, gaps, at, end)
        start = _head(bands, all_gaps, gaps, done, at)
        if start > done:
            made.append(_Group(bands[done:start], []))
        made.append(_Group(bands[start:end], gaps))
        done = at = end
    if done < len(bands):
        made.append(_Group(bands[done:], []))
    return made


def _head(
    bands: list[list[Fragment]], all_gaps: list[list[Span]], gaps: list[Span], done: int, at: int
) -> int:
    """Where a group begins: with bands on one side that are nearer to it than to others."""
    while (
        at > done
        and len(_common(gaps, all_gaps[at - 1])) == len(gaps)
        and not _is_far(bands[at - 1], bands[at])
        and (
            at - 1 == done
            or _step(bands[at - 1], bands[at]) <= 1.1 * _step(bands[at - 2], bands[at - 1])
        )
    ):
        at -= 1
    return at


def _tail(
    bands: list[list[Fragment]], ends: list[Span], gaps: list[Span], start: int, end: int
) -> int:
    """Where a group ends that others follow: before bands on one side that stand off."""
    last = end
    while last > start + 1 and not _inner(gaps, *ends[last - 1]):
        last -= 1
    usual = median(_step(*pair) for pair in pairwise(bands[start:last])) if last > start + 1 else 0
    for i in range(last, end):
        if _step(bands[i - 1], bands[i]) > 1.5 * usual:
            return i
    return end


def _step(band: list[Fragment], after: list[Fragment]) -> float:
    return min(item.middle for item in after) - max(item.middle for item in band)


def _is_far(band: list[Fragment], after: list[Fragment]) -> bool:
    space = min(item.y0 for item in after) - max(item.y1 for item in band)
    return space > 5 * max(12.0, min(item.height for item in after))


def _across(group: _Group, left: float, right: float, depth: int) -> list[str] | None:
    """The columns of a group one after the other, or its table; None: it is one column."""
    edges = [(start + end) / 2 for start, end in group.gaps]
    columns = _columns(group.items, edges)
    if len(columns) > 1 and _is_line_numbers(columns):
        rest = [item for column in columns[1:] for item in column]
        return _blocks(rest, *_bounds(rest, left, right), depth + 1)
    labels = [_is_labels(column) for column in columns[:-1]]
    if any(labels):  # numbers or bullets before their texts
        edges = [edge for edge, label in zip(edges, labels, strict=True) if not label]
        columns = _columns(group.items, edges)
    if len(columns) < 2:
        return None
    rows = _rows(group.bands, edges)
    full = sum(sum(map(bool, row)) >= 2 for row in rows)
    long = all(len(lines_of(column)) >= 3 for column in columns)
    if _is_text(columns) or (long and 2 * full < len(rows)):
        bounds = [left, *edges, right]
        parts = [
            _blocks(column, *_bounds(column, bounds[i], bounds[i + 1]), depth + 1)
            for i, column in enumerate(columns)
        ]
        if direction(" ".join(item.text for item in group.items)) < 0:
            parts.reverse()
        return _continued(parts)
    if full < (3 if len(columns) == 2 else 2) or any(item.rows for item in group.items):
        return None
    if direction(" ".join(map(" ".join, rows))) < 0:
        rows = [row[::-1] for row in rows]
    start = next(i for i, row in enumerate(rows) if sum(map(bool, row)) >= 2)
    titles = [" ".join(filter(None, row)) for row in rows[:start]]
    return [*titles, markdown_table(rows[start:])]


def _bounds(column: list[Fragment], left: float, right: float) -> Span:
    return (max(left, min(item.x0 for item in column)), min(right, max(item.x1 for item in column)))


def _columns(items: Sequence[Fragment], edges: list[float]) -> list[list[Fragment]]:
    made: list[list[Fragment]] = [[] for _ in range(len(edges) + 1)]
    for item in items:
        middle = (item.x0 + item.x1) / 2
        made[sum(edge < middle for edge in edges)].append(item)
    return [column for column in made if column]


def _is_labels(column: list[Fragment]) -> bool:
    """Whether a column has only numbers or bullets, as those of a list."""
    return all(
        item.rows is None
        and len(item.words) == 1
        and len(item.words[0].text) <= 5
        and not item.words[0].text.isalpha()
        and not item.words[0].text.isdigit()
        for item in column
    )


def _is_line_numbers(columns: list[list[Fragment]]) -> bool:
    """Whether the first column counts the lines of running text beside it."""
    numbers = [item.text for item in lines_of(columns[0])]
    lines = lines_of(columns[1])
    if len(numbers) < 5 or not all(number.isdecimal() for number in numbers):
        return False
    steps = {int(after) - int(before) for before, after in pairwise(numbers)}
    wide = max(line.x1 for line in lines) - min(line.x0 for line in lines)
    is_full = median(line.x1 - line.x0 for line in lines) > 0.85 * wide
    return len(steps) == 1 and steps < {1, 5, 10} and is_full and len(lines) >= len(numbers)


def _is_text(columns: list[list[Fragment]]) -> bool:
    """Whether columns are running text, not cells of a table."""
    filled = 0
    for column in columns:
        lines = lines_of(column)
        wide = max(line.x1 for line in lines) - min(line.x0 for line in lines)
        letters = median(len(line.text) for line in lines)
        share = median(line.x1 - line.x0 for line in lines) / max(wide, 1.0)
        filled += any(line.rows for line in lines) or (
            (len(lines) >= 3 or any(line.text[:1].islower() for line in lines[1:]))
            and letters >= 14
            and (share >= 0.6 or letters >= 30)
        )
    return filled == len(columns) or (filled >= 2 and filled == len(columns) - 1)


def _rows(bands: list[list[Fragment]], edges: list[float]) -> list[list[str]]:
    """The rows of a table of aligned columns."""
    rows: list[list[list[str]]] = []
    last = 0.0
    for band in bands:
        for line in clusters(
            band,
            (item.middle - 0.1 * item.height for item in band),
            (item.middle + 0.1 * item.height for item in band),
        ):
            cells: list[list[str]] = [[] for _ in range(len(edges) + 1)]
            for item in sorted(line, key=lambda item: item.x0):
                cells[sum(edge < (item.x0 + item.x1) / 2 for edge in edges)].append(item.text)
            close = line[0].y0 - last < 0.25 * line[0].height
            last = max(item.y1 for item in line)
            if rows and close and not cells[0] and sum(map(bool, cells)) < sum(map(bool, rows[-1])):
                for whole, more in zip(rows[-1], cells, strict=True):  # a cell of several lines
                    whole.extend(more)
            else:
                rows.append(cells)
    return [[joined(cell) for cell in row] for row in rows]


def _continued(parts: list[list[str]]) -> list[str]:
    """Columns as one text; a sentence that goes on in the next column is not parted."""
    made: list[str] = []
    for part in parts:
        blocks = [block for block in part if block]
        if made and blocks and blocks[0][:1].islower() and not made[-1].endswith(_SENTENCE_ENDS):
            made[-1] = joined([made[-1], blocks.pop(0)])
        made.extend(blocks)
    return made
