"""Plans of pictures: sizes, tiles and rows that a picture becomes, by the kind of its encoder.

As the image processors of transformers do with the settings that the models' makers publish, which
most files do not state. Where those refuse a very long picture or exceed their own budget, the
longer side is shortened. All are functions of the picture's size: what it costs is known before.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.messages import Detail
from engine.vision.picture_task import Size
from engine.vision.projector_file import VisionConfig, refuse_projector


@dataclass(frozen=True, slots=True)
class Cut:
    """Pixels for the encoder: a picture after some resizes, cut into a grid of equal tiles."""

    sizes: tuple[Size, ...]  # after each resize, one after the other
    grid: tuple[int, int]  # lines and columns of tiles
    lines: int  # of rows of each tile, as in `Tile`
    columns: int
    count: int
    canvas: Size | None = None  # what is black beside and below the picture; None: nothing

    @property
    def tile(self) -> Size:
        """The size of a tile."""
        (width, height), (lines, columns) = self.canvas or self.sizes[-1], self.grid
        return Size(width // columns, height // lines)


@dataclass(frozen=True, slots=True)
class Plan:
    """How a picture is resized and cut, and how many rows it becomes."""

    filter: str  # of all resizes: "bilinear", "bicubic", "lanczos"
    tiles: Cut
    overview: Cut | None = None  # the whole picture beside several tiles

    @property
    def tokens(self) -> int:
        """Rows for the text model, without the tokens around them."""
        lines, columns = self.tiles.grid
        overview = 0 if self.overview is None else self.overview.count
        return overview + lines * columns * self.tiles.count


Make = Callable[[VisionConfig, Size, int], Plan]  # of a budget


@dataclass(frozen=True, slots=True)
class _Kind:
    """Makes plans for a kind of projector: within budgets of tokens, or of parts."""

    make: Make
    standard: Callable[[VisionConfig], int]  # the budget of the model's makers
    largest: int = 0  # that the models are made for; 0 or less than the standard one: that
    least: int = 1  # tokens of the low detail
    in_tokens: bool = True  # the unit of budgets; otherwise tiles, or parts of the longer side

    def most(self, config: VisionConfig) -> int:
        """The largest budget."""
        return max(self.largest, self.standard(config))

    def within(self, config: VisionConfig, size: Size, tokens: int) -> Plan:
        """The finest plan of at most so many tokens, or the one of the fewest."""
        if self.in_tokens:
            return self.make(config, size, min(tokens, self.most(config)))
        plans = (self.make(config, size, budget) for budget in range(self.most(config), 0, -1))
        coarser = self.make(config, size, 1)
        return next((plan for plan in plans if plan.tokens <= tokens), coarser)


def plan_picture(
    config: VisionConfig, width: int, height: int, detail: Detail | int = Detail.STANDARD
) -> Plan:
    """The plan of a picture of so many pixels, each side 1 at least.

    STANDARD is as the model's makers do; LOW has at most a quarter of the tokens which that would
    give this picture; HIGH has four times the budget, and a number is the most tokens: both as far
    as the models are made for. None of them changes what has one size only. Raises UnsupportedModel
    for a projector that there are no plans for.
    """
    kind = _KINDS.get(config.projector)
    if kind is None:
        raise refuse_projector(config.projector)
    size, standard = Size(width, height), kind.standard(config)
    match detail:
        case Detail.STANDARD:
            return kind.make(config, size, standard)
        case Detail.HIGH:
            budgets = min(4 * standard, kind.most(config)), standard
            plans = [kind.make(config, size, budget) for budget in budgets]
            return max(plans, key=lambda plan: plan.tokens)
        case Detail.LOW:
            quarter = kind.make(config, size, standard).tokens // 4
            return kind.within(config, size, max(quarter, kind.least))
        case int(tokens):
            return kind.within(config, size, tokens)


def _step(config: VisionConfig) -> int:
    """Pixels of a side of what becomes one row."""
    return config.patch * config.merge


def _cut(
    config: VisionConfig,
    *sizes: Size,
    grid: tuple[int, int] = (1, 1),
    with_breaks: bool = False,
) -> Cut:
    """Tiles whose squares of patches are one row each, perhaps with a row between lines."""
    step, last = _step(config), sizes[-1]
    lines, columns = last.height // grid[0] // step, last.width // grid[1] // step
    if config.queries:
        return Cut(sizes, grid, 1, config.queries, config.queries)
    count = lines * columns + (lines - 1 if with_breaks else 0)
    return Cut(sizes, grid, lines, columns, count)


def _whole(filter: str, config: VisionConfig, size: Size, *, with_breaks: bool = False) -> Plan:
    return Plan(filter, _cut(config, size, with_breaks=with_breaks))


def _shortened(size: Size, step: int, tokens: int) -> Size:
    """A size of whole steps, of which a side is shortened until there are so few squares."""
    columns, lines = size.width // step, size.height // step
    if columns * lines > tokens:
        columns, lines = (
            (max(1, tokens // lines), lines)
            if columns > lines
            else (columns, max(1, tokens // columns))
        )
    return Size(columns * step, lines * step)


def _fitted(size: Size, step: int, least: int, most: int, *, is_whole: bool) -> Size:
    """About this size, in whole steps, and of `least` to `most` squares of such sides.

    `is_whole`: a side of less than half a step counts as a step when it is compared with them.
    """
    width, height = size
    smallest, area = step if is_whole else 0, step**2
    wide, high = (max(smallest, round(side / step) * step) for side in size)
    if wide * high > most * area:
        factor = math.sqrt((height * width) / (most * area))
        wide, high = (max(step, math.floor(side / factor / step) * step) for side in size)
    elif wide * high < least * area:
        factor = math.sqrt(least * area / (height * width))
        wide, high = (math.ceil(side * factor / step) * step for side in size)
    return _shortened(Size(wide, high), step, most)


# Qwen3-VL and later: its published settings are 64 to 16,384 tokens, in pixels. Where the file states
# no other limit, a picture has a fourth of the most, as in llama.cpp: all would take minutes to read
# on a processor, gigabytes beside the model, and most of a usual context.
_QWEN_LEAST, _QWEN_MOST = 64, 4_096


def _qwen_standard(config: VisionConfig) -> int:
    return config.most_pixels // _step(config) ** 2 or _QWEN_MOST


def _qwen(config: VisionConfig, size: Size, budget: int) -> Plan:
    step = _step(config)
    least = config.least_pixels // step**2 or _QWEN_LEAST
    fitted = _fitted(size, step, min(least, budget), budget, is_whole=False)
    return _whole("bicubic", config, fitted)


def _gemma4(config: VisionConfig, size: Size, budget: int) -> Plan:
    """As many squares as the budget allows, also of small pictures."""
    step, (width, height) = _step(config), size
    factor = math.sqrt(budget * config.merge**2 * config.patch**2 / (height * width))
    wide, high = (math.floor(factor * side / step) for side in size)
    if not high:
        wide, high = min(max(1, width // height), budget), 1
    elif not wide:
        wide, high = 1, min(max(1, height // width), budget)
    return _whole("bicubic", config, Size(wide * step, high * step))


def _gemma3(config: VisionConfig, size: Size, budget: int) -> Plan:
    """One size, in which pictures of others are distorted."""
    del size, budget
    return _whole("bilinear", config, Size(config.image, config.image))


def _pixtral_standard(config: VisionConfig) -> int:
    return -(-config.image // _step(config))


def _pixtral(config: VisionConfig, size: Size, budget: int) -> Plan:
    """The picture itself, up to a length of its longer side; no side is cut, but whole steps."""
    step = _step(config)
    longest = min(budget * step, config.image)
    ratio = max(1.0, size.height / longest, size.width / longest)
    sides = (max(1, math.floor(side / ratio)) if ratio > 1 else side for side in size)
    wide, high = ((side - 1) // step + 1 for side in sides)
    return _whole("bicubic", config, Size(wide * step, high * step), with_breaks=True)


# LFM2-VL: 64 to 256 tokens, or 2 to 10 tiles of 512 pixels with 32 for a token, and an overview.
_LFM2_LEAST, _LFM2_MOST, _LFM2_TILES, _LFM2_SIDE = 64, 256, 10, 16
_LFM2_TOLERANCE = 2.0  # times the pixels of most tokens: larger pictures are divided


def _lfm2(config: VisionConfig, size: Size, budget: int) -> Plan:
    step, tile = _step(config), _LFM2_SIDE * _step(config)
    most = min(budget, _LFM2_MOST)
    fitted = _fitted(size, step, min(_LFM2_LEAST, most), most, is_whole=True)
    wide, high = (max(config.patch, round(side / step) * step) for side in size)
    most_tiles = min(_LFM2_TILES, (budget - _LFM2_MOST) // _LFM2_SIDE**2)
    if most_tiles < 2 or wide * high <= _LFM2_MOST * step**2 * _LFM2_TOLERANCE:
        return _whole("bilinear", config, fitted)
    columns, lines = _nearest_grid(size, 2, most_tiles, tile)
    whole = Size(columns * tile, lines * tile)
    tiles = _cut(config, whole, grid=(lines, columns))
    return Plan("bilinear", tiles, _cut(config, fitted))


def _nearest_grid(size: Size, least: int, most: int, tile: int) -> tuple[int, int]:
    """Columns and lines of `least` to `most` tiles whose ratio is nearest to the picture's.

    Of equally near ones the last that the picture fills by half.
    """
    grids = sorted(
        (
            (columns, lines)
            for columns in range(1, most + 1)
            for lines in range(-(-least // columns), most // columns + 1)
        ),
        key=lambda grid: grid[0] * grid[1],
    )
    best, nearest = (1, 1), math.inf
    for columns, lines in grids:
        distance = abs(size.width / size.height - columns / lines)
        is_filled = size.width * size.height > 0.5 * tile**2 * columns * lines
        if distance < nearest or (distance == nearest and is_filled):
            best, nearest = (columns, lines), distance
    return best


# SmolVLM2, Idefics 3: a longer side of 4 tiles, of up to 5 as its makers advise for fine text.
_IDEFICS3_TILES, _IDEFICS3_MOST = 4, 5
_IDEFICS3_LONGEST = 4_096


def _idefics3_standard(config: VisionConfig) -> int:
    return -(-config.longest // config.image) or _IDEFICS3_TILES


def _idefics3(config: VisionConfig, size: Size, budget: int) -> Plan:
    """Tiles of the size that the learned positions are for; small pictures are enlarged, too."""
    image = config.image
    is_standard = budget == _idefics3_standard(config)
    longest = config.longest if is_standard and config.longest else budget * image
    first = _longest_sides(size, min(longest, _IDEFICS3_LONGEST))
    second = _whole_tiles(first, image)
    grid = second.height // image, second.width // image
    tiles = _cut(config, first, second, grid=grid)
    if grid == (1, 1):
        return Plan("lanczos", tiles)
    return Plan("lanczos", tiles, _cut(config, first, second, Size(image, image)))


def _longest_sides(size: Size, longest: int) -> Size:
    """The size with this longer side, and an even other one of the same ratio."""
    ratio = size.width / size.height
    if size.width >= size.height:
        height = int(longest / ratio)
        return Size(longest, max(1, height + height % 2))
    width = int(longest * ratio)
    return Size(max(1, width + width % 2), longest)


def _whole_tiles(size: Size, tile: int) -> Size:
    """The size enlarged to whole tiles, the longer side first."""
    width, height = size
    ratio = width / height
    if width >= height:
        width = math.ceil(width / tile) * tile
        height = math.ceil(int(width / ratio) / tile) * tile
    else:
        height = math.ceil(height / tile) * tile
        width = math.ceil(int(height * ratio) / tile) * tile
    return Size(max(width, tile), max(height, tile))


# InternVL: 1 to 12 tiles, and of up to 24 as its makers evaluate documents.
_INTERNVL_TILES, _INTERNVL_MOST = 12, 24


def _internvl_standard(config: VisionConfig) -> int:
    return config.most_tiles or _INTERNVL_TILES


def _internvl(config: VisionConfig, size: Size, budget: int) -> Plan:
    """Tiles of the size that the learned positions are for, in which pictures are distorted."""
    image = config.image
    least = min(max(1, config.least_tiles), budget)
    columns, lines = _nearest_grid(size, least, budget, image)
    tiles = _cut(config, Size(columns * image, lines * image), grid=(lines, columns))
    if tiles.grid == (1, 1):
        return Plan("bicubic", tiles)
    return Plan("bicubic", tiles, _cut(config, Size(image, image)))


# GLM-4.1V and later: its published settings are 8 to 6,144 tokens, in pixels of two frames. Where
# the file states no other limit, a picture has two thirds of the most, as in llama.cpp.
_GLM4V_LEAST, _GLM4V_STANDARD, _GLM4V_MOST = 8, 4_096, 6_144


def _glm4v_standard(config: VisionConfig) -> int:
    return config.most_pixels // _step(config) ** 2 or _GLM4V_STANDARD


def _glm4v(config: VisionConfig, size: Size, budget: int) -> Plan:
    """Whole steps, to which smaller sides are enlarged first."""
    step = _step(config)
    if min(size) < step:
        factor = max(step / size.height, step / size.width)
        size = Size(*(int(side * factor) for side in size))
    least = config.least_pixels // step**2 or _GLM4V_LEAST
    fitted = _fitted(size, step, min(least, budget), budget, is_whole=False)
    return _whole("bicubic", config, fitted)


# MiniCPM-V: up to 9 tiles, and of up to 36 as its makers advise for fine text.
_MINICPM_TILES, _MINICPM_MOST = 9, 36
_MINICPM_LONG = 2  # times the area that a tile is meant for: no longer ones


def _minicpm(config: VisionConfig, size: Size, budget: int) -> Plan:
    """Tiles of about one area, of any ratio; a picture that is divided is seen as a whole, too."""
    grid = _minicpm_grid(config, size, budget)
    if grid is None:
        return _whole("bicubic", config, _minicpm_tile(config, *size))
    columns, lines = grid
    parts = (max(round(side / n), 1) for side, n in zip(size, grid, strict=True))
    tile = _minicpm_tile(config, *parts)
    tiles = _cut(config, Size(columns * tile.width, lines * tile.height), grid=(lines, columns))
    return Plan("bicubic", tiles, _cut(config, _minicpm_tile(config, *size)))


def _minicpm_grid(config: VisionConfig, size: Size, most: int) -> tuple[int, int] | None:
    """Columns and lines of tiles whose ratio is nearest to the picture's, as logarithms."""
    count = min(math.ceil(size.width * size.height / config.image**2), most)
    if count < 2:
        return None
    counts = (one for one in (count - 1, count, count + 1) if 1 < one <= most)
    grids = [(n // lines, lines) for n in counts for lines in range(1, n + 1) if n % lines == 0]
    ratio, best, nearest = math.log(size.width / size.height), (1, 1), math.inf
    for columns, lines in grids:
        distance = abs(ratio - math.log(columns / lines))
        if distance < nearest or (distance == nearest and lines > best[1]):
            best, nearest = (columns, lines), distance
    return best


def _minicpm_tile(config: VisionConfig, wide: float, high: float) -> Size:
    """About this ratio and the area that a tile is meant for, in whole steps."""
    step, ratio = _step(config), wide / high
    high = int(config.image / math.sqrt(ratio))
    sides = (int(high * ratio), high)
    whole = Size(*(max(round(side / step) * step, step) for side in sides))
    return _shortened(whole, step, _MINICPM_LONG * config.image**2 // step**2)


# Llama 4: 1 to 16 tiles.
_LLAMA4_TILES = 16


def _llama4(config: VisionConfig, size: Size, budget: int) -> Plan:
    """Tiles of one size that the picture fills from a corner on, enlarged to one tile at most."""
    image = config.image
    counts = range(1, budget + 1)
    grids = [Size(c, n // c) for n in counts for c in range(1, n + 1) if n % c == 0]
    scales = {
        grid: min(n * image / side for n, side in zip(grid, size, strict=True)) for grid in grids
    }
    # The least enlargement, or else the least reduction; of equal ones the fewest tiles.
    enlarged = [scale for scale in scales.values() if scale >= 1]
    scale = min(enlarged) if enlarged else max(scales.values())
    chosen = min(
        (grid for grid in grids if scales[grid] == scale), key=lambda g: g.width * g.height
    )
    canvas = Size(*(n * image for n in chosen))
    kept = _llama4_size(size, canvas, image)
    grid = chosen.height, chosen.width
    whole = _cut(config, canvas, grid=grid)
    tiles = replace(whole, sizes=(kept,), canvas=canvas)
    if grid == (1, 1):
        return Plan("bilinear", tiles)
    return Plan("bilinear", tiles, _cut(config, Size(image, image)))


def _llama4_size(size: Size, canvas: Size, image: int) -> Size:
    """The picture's own size or less, or that of a tile, within the canvas."""
    room = Size(*(min(max(side, image), most) for side, most in zip(size, canvas, strict=True)))
    wide, high = (some / side for some, side in zip(room, size, strict=True))
    if wide < high:
        return Size(room.width, max(1, min(math.floor(size.height * wide), room.height)))
    return Size(max(1, min(math.floor(size.width * high), room.width)), room.height)


_KINDS = {
    "qwen3vl_merger": _Kind(_qwen, _qwen_standard, _QWEN_MOST, _QWEN_LEAST),
    "gemma4v": _Kind(_gemma4, lambda _: 280, 1_120, 70),
    "gemma4uv": _Kind(_gemma4, lambda _: 280, 1_120, 70),
    "gemma3": _Kind(_gemma3, lambda _: 1),
    "pixtral": _Kind(_pixtral, _pixtral_standard, in_tokens=False),
    "lfm2": _Kind(_lfm2, lambda _: (_LFM2_TILES + 1) * _LFM2_MOST, least=_LFM2_LEAST),
    "idefics3": _Kind(_idefics3, _idefics3_standard, _IDEFICS3_MOST, in_tokens=False),
    "internvl": _Kind(_internvl, _internvl_standard, _INTERNVL_MOST, in_tokens=False),
    "glm4v": _Kind(_glm4v, _glm4v_standard, _GLM4V_MOST, _GLM4V_LEAST),
    "llama4": _Kind(_llama4, lambda _: _LLAMA4_TILES, in_tokens=False),
    "resampler": _Kind(_minicpm, lambda _: _MINICPM_TILES, in_tokens=False),
    "minicpmv4_6": _Kind(_minicpm, lambda _: _MINICPM_TILES, _MINICPM_MOST, in_tokens=False),
}
