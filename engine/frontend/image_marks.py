"""Image marks: the texts around the rows of a picture in a prompt, by the kind of projector.

They are those that transformers' processors write, and the models were trained with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from engine.errors import UnsupportedModel
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.vision.picture import Picture, Tile

Pieces = Sequence[str | Tile]  # parts of a prompt in order: text, and rows of pictures


@dataclass(frozen=True, slots=True)
class ImageMarks:
    """The texts of one kind of model."""

    placeholder: str  # that its chat templates write for a picture
    outside: tuple[str, str] = ("", "")  # that they write before and after it
    opens: str = ""  # before all rows; may have the `number` of the picture in the prompt, from 0
    ends: str = ""  # after all rows
    whole: str = ""  # before the rows of a picture that is not divided
    tile: str = ""  # before those of a part, with its `line` and `column`
    tile_end: str = ""  # after those of a part
    next_tile: str = ""  # between parts of a line
    line_end: str = ""  # after the last part of a line
    next_line: str = ""  # between lines of parts
    overview: str = ""  # before those of the whole picture beside its parts
    whole_end: str = ""  # after those of the whole picture, divided or not
    overview_first: bool = False  # the whole picture stands before its parts
    needed: tuple[str, ...] = ()  # texts that must be tokens

    def pieces(self, picture: Picture, number: int, *, outer: bool = False) -> list[str | Tile]:
        """The texts and rows of a picture in a prompt, instead of its placeholder.

        `number`: of the pictures before it in the prompt. `outer`: instead of the placeholder with
        the texts `outside` around it.
        """
        before, after = self.outside if outer else ("", "")
        opens = before + self.opens.format(number=number)
        return joined((opens, *self._rows(picture), self.ends + after))

    @property
    def shown(self) -> str:
        """The placeholder with the texts `outside` around it."""
        return self.placeholder.join(self.outside)

    def refuse_vocabulary(self, tokenizer: Tokenizer) -> None:
        """Raise UnsupportedModel if a text that must be a token is none."""
        missing = [text for text in self.needed if tokenizer.token_id(text) is None]
        if missing:
            raise UnsupportedModel(
                f"The model's vocabulary has no token {missing[0]}, so it was not made for the "
                "picture encoder.",
                "Choose the model that the mmproj file was published with.",
            )

    def _rows(self, picture: Picture) -> Iterator[str | Tile]:
        if len(picture.tiles) == 1 and picture.overview is None:
            yield from (self.whole, picture.tiles[0], self.whole_end)
            return
        overview: list[str | Tile] = []
        if picture.overview is not None:
            overview = [self.overview, picture.overview, self.whole_end]
        if self.overview_first:
            yield from overview
        lines, columns = picture.grid
        for number, tile in enumerate(picture.tiles):
            line, column = divmod(number, columns)
            yield self.tile.format(line=line + 1, column=column + 1)
            yield from (tile, self.tile_end)
            if column == columns - 1:
                yield self.line_end + (self.next_line if line < lines - 1 else "")
            else:
                yield self.next_tile
        if not self.overview_first:
            yield from overview


_FAKE = "<fake_token_around_image>"
_GEMMA4 = ImageMarks(
    "<|image|>", opens="<|image>", ends="<image|>", needed=("<|image>", "<image|>")
)
_MINICPM = ImageMarks(
    "<|image_pad|>",
    opens="<image_id>{number}</image_id>",
    whole="<image>",
    whole_end="</image>",
    tile="<slice>",
    tile_end="</slice>",
    next_line="\n",
    overview="<image>",
    overview_first=True,
    needed=("<image>", "</image>", "<slice>", "</slice>", "<image_id>", "</image_id>"),
)
_MARKS = {
    "qwen3vl_merger": ImageMarks(
        "<|image_pad|>",
        outside=("<|vision_start|>", "<|vision_end|>"),
        needed=("<|vision_start|>", "<|vision_end|>"),
    ),
    "gemma4v": _GEMMA4,
    "gemma4uv": _GEMMA4,
    "gemma3": ImageMarks(
        "<start_of_image>",
        opens="\n\n<start_of_image>",
        ends="<end_of_image>\n\n",
        needed=("<start_of_image>", "<end_of_image>"),
    ),
    # The encoder's rows have the breaks between lines, but not what ends the last one.
    "pixtral": ImageMarks("[IMG]", ends="[IMG_END]", needed=("[IMG_END]",)),
    "lfm2": ImageMarks(
        "<image>",
        opens="<|image_start|>",
        ends="<|image_end|>",
        tile="<|img_row_{line}_col_{column}|>",
        overview="<|img_thumbnail|>",
        needed=("<|image_start|>", "<|image_end|>"),
    ),
    "idefics3": ImageMarks(
        "<image>",
        ends=_FAKE,
        whole=f"{_FAKE}<global-img>",
        tile=f"{_FAKE}<row_{{line}}_col_{{column}}>",
        line_end="\n",
        overview=f"\n{_FAKE}<global-img>",
        needed=(_FAKE,),
    ),
    # The parts and the whole picture stand beside each other without a mark.
    "internvl": ImageMarks(
        "<IMG_CONTEXT>",
        outside=("", "\n"),
        opens="<img>",
        ends="</img>",
        needed=("<img>", "</img>"),
    ),
    "glm4v": ImageMarks(
        "<|image|>",
        outside=("<|begin_of_image|>", "<|end_of_image|>"),
        needed=("<|begin_of_image|>", "<|end_of_image|>"),
    ),
    "llama4": ImageMarks(
        "<|image|>",
        opens="<|image_start|>",
        whole="<|image|>",
        next_tile="<|tile_x_separator|>",
        line_end="<|tile_y_separator|>",
        overview="<|image|>",
        ends="<|image_end|>",
        needed=(
            *("<|image_start|>", "<|image_end|>", "<|image|>"),
            *("<|tile_x_separator|>", "<|tile_y_separator|>"),
        ),
    ),
    "minicpmv4_6": _MINICPM,
    # Its templates know no pictures.
    "resampler": replace(_MINICPM, placeholder="(<image>./</image>)", outside=("", "\n")),
}


def image_marks(projector: str) -> ImageMarks:
    """The marks of models with this kind of projector, one that `engine.vision.pairing` knows."""
    return _MARKS[projector]


def joined(pieces: Pieces) -> list[str | Tile]:
    """The same pieces, texts beside each other as one and without empty ones."""
    made: list[str | Tile] = []
    for is_text, group in groupby(pieces, lambda one: isinstance(one, str)):
        if not is_text:
            made += group
        elif text := "".join(one for one in group if isinstance(one, str)):
            made.append(text)
    return made
