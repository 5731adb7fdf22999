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
from engine.models.layers import Decoder
from engine.vision.pairing import EncoderFile, build_sight, check_encoder, find_encoder
from engine.vision.picture_reader import PictureReader
from engine.vision.sight import Sight
from kernels.backend.backend import HOST
from kernels.backend.placement import Placement

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Eyes:
    """What a model sees with, or why it does not although there is an encoder."""

    sight: Sight | None = None
    encoder: EncoderFile | None = None
    blind: str = ""  # a sentence, without a capital letter at its beginning


def find_eyes(
    file: GGUFFile, decoder: Decoder, tokenizer: Tokenizer, given: Path | None = None
) -> Eyes:
    """The sight of a model with a `given` encoder, or with one beside its file.

    Raises EngineError for a given encoder that does not fit. Reads no weights.
    """
    if decoder.is_encoder or decoder.ranking is not None:
        return Eyes()
    width = decoder.embedding.columns
    path = given or find_encoder(file.path, file.string("general.architecture"), width)
    if path is None:
        return Eyes()
    try:
        sight = build_sight(file, decoder, path, decoder.placement.head)
        encoder = sight.encoder
        assert isinstance(encoder, EncoderFile)
        image_marks(encoder.config.projector).refuse_vocabulary(tokenizer)
    except EngineError as error:
        if given is not None:
            raise
        log.info("%s is not used: %s", path.name, error)
        return Eyes(blind=_continued(error))
    if blind := _elsewhere(decoder.placement):
        return Eyes(blind=blind)
    return Eyes(sight, encoder)


def encoder_in_words(
    file: GGUFFile,
    architecture: str,
    width: int,
    placement: Placement,
    tokenizer: Callable[[], Tokenizer],
) -> str:
    """Whether a model would see pictures: "with mmproj.gguf", or "no" and why, if it is known."""
    path = find_encoder(file.path, architecture, width)
    if path is None:
        return "no"
    try:
        marks = image_marks(check_encoder(path, architecture, width).projector)
        marks.refuse_vocabulary(tokenizer())
    except EngineError as error:
        return f"no: {_continued(error)}"
    blind = _elsewhere(placement)
    return f"no: {blind}" if blind else f"with {path.name}"


def pictures_of(sight: Sight | None, encoder: EncoderFile | None) -> Pictures | None:
    """What reads pictures for the prompts of a model; None: it does not see."""
    if sight is None or encoder is None:
        return None
    config = encoder.config
    marks = image_marks(config.projector)
    return Pictures(marks, sight.registry, lambda: PictureReader(config))


def _elsewhere(placement: Placement) -> str:
    """Why pictures cannot be read where a model is placed; "": they can."""
    names = [one.words for one in placement.backends if one.device != HOST]
    return f"it runs on {names[0]}, and only the processor reads pictures." if names else ""


def _continued(error: EngineError) -> str:
    """The sentence of an error behind others."""
    sentence = str(error)
    return sentence[:1].lower() + sentence[1:]
