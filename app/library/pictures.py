"""Picture encoders of a repository: which of them suit a model, and which is downloaded with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from app.net.hub import HubFile, Piece, Source
from app.state.library import Memory, Offer
from engine import BeginningFacts, belonging, encoder_fits

WORK_BYTES = 200_000_000  # that pictures take beside the weights of their encoder, at most
_MOST_SHARE = 0.9  # of the available memory, for a model with its encoder
_LAYOUTS = ("F16", "Q8_0", "BF16", "F32")  # in order of preference: fast, small, exact enough


def encoders_for(
    model: HubFile,
    encoders: Sequence[tuple[HubFile, str]],
    models: Sequence[str],
    read: Mapping[Source, BeginningFacts],
) -> tuple[Piece, ...]:
    """The encoders that suit a model, the preferred one first: named for it, near it, by layout.

    `encoders` are those of the repository with their layouts, `models` the files of its models.
    What has been read of the files must agree; one that is named for another model never suits.
    """
    facts = read.get(model.source, BeginningFacts())

    def suits(encoder: HubFile) -> bool:
        here = belonging(encoder.file, model.file)
        is_of_another = here < 0 and any(belonging(encoder.file, each) > 0 for each in models)
        known = read.get(encoder.source)
        return not is_of_another and (known is None or encoder_fits(known, facts))

    def place(one: tuple[HubFile, str]) -> tuple[int, int, int, int, str]:
        encoder, layout = one
        rank = _LAYOUTS.index(layout) if layout in _LAYOUTS else len(_LAYOUTS)
        near = _distance(encoder.file, model.file)
        return -belonging(encoder.file, model.file), near, rank, encoder.size_bytes, encoder.file

    return tuple(
        Piece(encoder.file, encoder.size_bytes, encoder.sha256)
        for encoder, _ in sorted((one for one in encoders if suits(one[0])), key=place)
    )


class PictureChoices:
    """Which encoder the user wants with a model; without a choice the first, if there is room."""

    def __init__(self) -> None:
        self._chosen: dict[tuple[str, str], str] = {}  # (repository, model) to encoder; "": none

    def choose(self, source: Source, encoder: str) -> None:
        """Download a model with this encoder of its repository, or with none."""
        self._chosen[source.repository, source.file] = encoder

    def applied(self, offer: Offer, encoders: Sequence[Piece]) -> Offer:
        """The offer of a model in a list of files, with the encoder that is chosen for it."""
        if not encoders:
            return offer
        wanted = self._wanted(offer.source, encoders[0], _with_encoder(offer.memory, encoders[0]))
        chosen = next((each for each in encoders if each.file == wanted), None)
        if chosen is not None:
            memory = _with_encoder(offer.memory, chosen)
            offer = replace(offer, source=replace(offer.source, encoder=chosen), memory=memory)
        return replace(offer, encoders=tuple(encoders))

    def applied_to_one(self, offer: Offer, encoder: Piece, both: Memory | None) -> Offer:
        """The offer of a recommended model, whose one encoder has about the size of `encoder`.

        `both` is the memory with it. The exact size and the hash come from the hub's list.
        """
        if self._wanted(offer.source, encoder, both) == encoder.file:
            source = replace(offer.source, encoder=Piece(encoder.file))
            offer = replace(offer, source=source, memory=both)
        return replace(offer, encoders=(encoder,))

    def _wanted(self, source: Source, first: Piece, both: Memory | None) -> str:
        """The file of the encoder that is chosen, else of the first if there is room for it."""
        usual = first.file if both is None or has_room(both) else ""
        return self._chosen.get((source.repository, source.file), usual)


def has_room(memory: Memory) -> bool:
    """Whether a model and its encoder fit in memory."""
    return memory.needed_bytes <= _MOST_SHARE * memory.available_bytes


def _with_encoder(memory: Memory | None, encoder: Piece) -> Memory | None:
    """The least memory of a model and its encoder, of which only the sizes are known."""
    if memory is None:
        return None
    needed = memory.needed_bytes + encoder.size_bytes
    return replace(memory, needed_bytes=needed, encoder_bytes=encoder.size_bytes)


def _distance(encoder: str, model: str) -> int:
    """How far an encoder is from a model: 0 in its folder, 1 above it, 2 elsewhere."""
    folder, place = PurePosixPath(encoder).parent, PurePosixPath(model).parent
    return 0 if folder == place else 1 if place.is_relative_to(folder) else 2
