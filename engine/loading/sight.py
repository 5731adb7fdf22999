"""Sight of a model that is being loaded: its picture encoder, and whether it can use it here."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.errors import EngineError
from engine.frontend.image_marks import image_marks
from engine.frontend.image_prompt import Pictures
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.gguf.reader import GGUFFile
from engine.loading.identity import Stamp, stamps
from engine.messages import Blindness, BlindReason
from engine.models.config import Config
from engine.models.layers import Decoder
from engine.vision.encoder_memory import EncoderSizes, encoder_beside, read_encoder_sizes
from engine.vision.pairing import EncoderFile, build_sight, check_encoder, unused_encoder
from engine.vision.picture_reader import PictureReader
from engine.vision.sight import Sight

_NO_ROOM = Blindness(BlindReason.MEMORY, "there is no room for its picture encoder in the memory.")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Eyes:
    """What a model sees with, or why it does not although there is an encoder."""

    sight: Sight | None = None
    encoder: EncoderFile | None = None
    files: tuple[Stamp, ...] = ()  # of the encoder, from before it was read
    blind: Blindness | None = None


def encoder_of(file: GGUFFile, config: Config, given: Path | None = None) -> EncoderSizes | None:
    """The encoder that is given, or that is beside the model's file; None: there is none.

    Raises EngineError for a given one that does not fit the model.
    """
    if given is None:
        return encoder_beside(file.paths[0], config.architecture, config.width)
    check_encoder(given, config.architecture, config.width)
    return read_encoder_sizes(given)


def find_eyes(
    file: GGUFFile,
    decoder: Decoder,
    tokenizer: Tokenizer,
    encoder: EncoderSizes | None,
    *,
    has_room: bool,
    is_given: bool,
) -> Eyes:
    """The sight of a model with an encoder, for which there is room by the model's plan, or not.

    Raises EngineError for a given encoder that does not fit. Reads no weights.
    """
    if encoder is None:
        return Eyes(blind=_unused(file, decoder))
    try:
        files = _stamps(encoder.path)
        sight = build_sight(file, decoder, encoder.path, decoder.placement.layers[0])
        opened = sight.encoder
        assert isinstance(opened, EncoderFile)
        image_marks(encoder.config.projector).refuse_vocabulary(tokenizer)
    except EngineError as error:
        if is_given:
            raise
        log.info("%s is not used: %s", encoder.path.name, error)
        return Eyes(blind=Blindness(BlindReason.ENCODER, _continued(error)))
    if not has_room:
        return Eyes(blind=_NO_ROOM)
    return Eyes(sight, opened, files)


def encoder_in_words(
    encoder: EncoderSizes | None,
    tokenizer: Callable[[], Tokenizer],
    *,
    has_room: bool,
) -> str:
    """Whether a model would see pictures: "with mmproj.gguf", or "no" and why, if it is known."""
    if encoder is None:
        return "no"
    try:
        image_marks(encoder.config.projector).refuse_vocabulary(tokenizer())
    except EngineError as error:
        return f"no: {_continued(error)}"
    return f"with {encoder.path.name}" if has_room else f"no: {_NO_ROOM.sentence}"


def pictures_of(sight: Sight | None, encoder: EncoderFile | None) -> Pictures | None:
    """What reads pictures for the prompts of a model; None: it does not see."""
    if sight is None or encoder is None:
        return None
    config = encoder.config
    marks = image_marks(config.projector)
    return Pictures(marks, sight.registry, lambda: PictureReader(config))


def _stamps(path: Path) -> tuple[Stamp, ...]:
    """The stamp of a file; none of one that is missing, which is reported when it is read."""
    try:
        return stamps([path])
    except OSError:
        return ()


def _unused(file: GGUFFile, decoder: Decoder) -> Blindness | None:
    """Why the encoder beside a model is not used; None: there is none that seems to be its own."""
    architecture = file.string("general.architecture")
    found = unused_encoder(file.paths[0], architecture, decoder.embedding.columns)
    if found is None:
        return None
    error, is_damaged = found
    log.info("The picture encoder beside %s is not used: %s", file.paths[0].name, error)
    reason = BlindReason.DAMAGED if is_damaged else BlindReason.ENCODER
    return Blindness(reason, _continued(error))


def _continued(error: EngineError) -> str:
    """The sentence of an error behind others."""
    sentence = str(error)
    return sentence[:1].lower() + sentence[1:]
