"""Pairs of a text model and its picture encoder: finding the file, whether they fit, their sight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from engine.errors import EngineError, ModelFileError, RequestError, UnsupportedModel
from engine.gguf.part import read_beginning
from engine.gguf.reader import GGUFFile
from engine.machine.device import memory_error
from engine.models.layers import Decoder
from engine.models.mixers import Attention
from engine.models.seeing import Seeing, interleaved_axes, sectioned_axes
from engine.processes.pool import ChildFault
from engine.vision.encoder import Encoder
from engine.vision.encoder_names import NAMED_EXACTLY, belonging, is_usual
from engine.vision.encoders import build_encoder
from engine.vision.projector_file import (
    ARCHITECTURE,
    VisionConfig,
    read_vision_config,
    refuse_projector,
)
from engine.vision.refusals import refused
from engine.vision.registry import ImageRegistry
from engine.vision.sight import Sight
from kernels.backend.backend import HOST, Backend
from kernels.ops import Spans

_MOST_FILES = 200
_START_BYTES = 4096  # of a file: its architecture is among the first keys
_OTHER_FILE = "Choose the mmproj file that is published beside this model."


@dataclass(frozen=True, slots=True)
class _Kind:
    """The text models that a kind of projector is made for, and how they read its rows."""

    architectures: frozenset[str]
    spans: Callable[[GGUFFile], Spans] | Spans = Spans.CAUSAL
    # Of RoPE by line and column: the axis of each of so many pairs of channels.
    axes: Callable[[GGUFFile, int], Tensor] | None = None


def _gemma4_spans(file: GGUFFile) -> Spans:
    """Of E2B and E4B, which have embeddings for single layers, every token sees only what is before it.

    No key says so; in transformers it is `use_bidirectional_attention`.
    """
    has_layer_rows = file.metadata.get("gemma4.embedding_length_per_layer_input", 0)
    return Spans.CAUSAL if has_layer_rows else Spans.WINDOWED


_KINDS = {
    "qwen3vl_merger": _Kind(
        frozenset(("qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe")), axes=interleaved_axes
    ),
    "gemma4v": _Kind(frozenset(("gemma4",)), _gemma4_spans),
    "gemma4uv": _Kind(frozenset(("gemma4",)), Spans.WINDOWED),
    "gemma3": _Kind(frozenset(("gemma3",)), Spans.WHOLE),
    "pixtral": _Kind(frozenset(("llama", "mistral3"))),
    "lfm2": _Kind(frozenset(("lfm2", "lfm2moe"))),
    "idefics3": _Kind(frozenset(("llama", "smollm3"))),
    "internvl": _Kind(frozenset(("llama", "qwen2", "qwen3", "qwen3moe"))),
    "glm4v": _Kind(frozenset(("glm4", "glm4moe")), axes=sectioned_axes),
    "resampler": _Kind(frozenset(("llama", "qwen2", "qwen3"))),
    "llama4": _Kind(frozenset(("llama4",))),
    # The rows of a picture have the places of tokens, whatever RoPE could do.
    "minicpmv4_6": _Kind(frozenset(("qwen35",))),
}


class EncoderFile:
    """The picture encoder of a file, whose weights are read when the first picture comes."""

    def __init__(self, path: Path, config: VisionConfig, backend: Backend) -> None:
        self.path, self.config = path, config
        self._backend = backend
        self._encoder: Encoder | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether its weights are in memory."""
        return self._encoder is not None

    def encode(self, pixels: Tensor, checkpoint: Callable[[], None] = lambda: None) -> Tensor:
        """As `Encoder.encode`; raises RequestError for pixels, and what reading the file raises."""
        try:
            if self._encoder is None:
                with GGUFFile.open(self.path) as file:
                    self._encoder = build_encoder(file, self._backend, checkpoint)
            return self._encoder.encode(pixels, checkpoint)
        except (MemoryError, RuntimeError) as error:
            if self._backend.device == HOST or memory_error(error) is None:
                raise
            raise refused(ChildFault.MEMORY) from error  # the model itself may go on
        except ValueError as error:
            raise RequestError(
                f"The picture encoder cannot read the picture: {error}.", "Leave the picture out."
            ) from error

    def unload(self) -> None:
        """Free its weights."""
        self._encoder = None


def refusal(config: VisionConfig, architecture: str, width: int) -> EngineError | None:
    """Why an encoder does not fit a text model of this architecture and width; None: it does."""
    kind = _KINDS.get(config.projector)
    if kind is None:
        return refuse_projector(config.projector)
    if architecture not in kind.architectures:
        return UnsupportedModel(
            f"The picture encoder ({config.projector}) is made for models of another kind than "
            f"this one ({architecture}).",
            _OTHER_FILE,
        )
    if config.output != width:
        return ModelFileError(
            f"The picture encoder belongs to a model of another size: its rows have "
            f"{config.output:,} columns, and this model reads {width:,}.",
            _OTHER_FILE,
        )
    return None


def may_fit(projector: str, output: int, architecture: str, width: int) -> bool:
    """Whether such an encoder may fit such a model; values that are not known are "" and 0."""
    kind = _KINDS.get(projector)
    if kind is None:
        return not projector
    is_made_for = not architecture or architecture in kind.architectures
    return is_made_for and (not output or not width or output == width)


def check_encoder(path: Path, architecture: str, width: int) -> VisionConfig:
    """What the file of an encoder states; raises EngineError if it does not fit such a model."""
    with GGUFFile.open(path) as file:
        config = read_vision_config(file)
    if (error := refusal(config, architecture, width)) is not None:
        raise error
    return config


def find_encoder(model: Path, architecture: str, width: int) -> Path | None:
    """The picture encoder beside a model's file that fits it: the one named for it, or the smallest.

    Files are judged by what they hold, and those that cannot be read are passed over. Other files
    than those with the usual name are only looked at if none of these fits, and not very many. One
    that is named for another model in the folder is never taken.
    """
    if not any(architecture in kind.architectures for kind in _KINDS.values()):
        return None
    try:
        beside = sorted(path for path in model.parent.glob("*.gguf") if path != model)
    except OSError:
        return None
    usual = [path for path in beside if is_usual(path.name)]
    others = [path for path in beside if path not in set(usual)]
    own = [path for path in usual if not _is_of_another(path.name, model, others)]
    for paths in (own, others):
        sizes = {path: _size_if_fitting(path, architecture, width) for path in paths[:_MOST_FILES]}
        fitting = [(-belonging(path.name, model.name), size, path) for path, size in sizes.items()]
        if any(sizes.values()):
            return min(one for one in fitting if one[1])[2]
    return None


def unused_encoder(model: Path, architecture: str, width: int) -> tuple[EngineError, bool] | None:
    """Why an encoder beside a model, which seems to be meant for it, is not used; whether it is
    damaged. None: there is no such file.

    It is named for the model, or is named as encoders are and there is no other model.
    """
    try:
        beside = sorted(path for path in model.parent.glob("*.gguf") if path != model)
    except OSError:
        return None
    usual = [path for path in beside if is_usual(path.name)]
    others = [path for path in beside if path not in set(usual)]
    least = 1 if others else 0
    meant = [path for path in usual[:_MOST_FILES] if belonging(path.name, model.name) >= least]
    for path in meant:
        if _is_of_another(path.name, model, others) or not path.is_file():
            continue
        try:
            with GGUFFile.open(path) as file:
                error = refusal(read_vision_config(file), architecture, width)
        except UnsupportedModel as unsupported:
            error = unsupported
        except EngineError as damaged:
            return damaged, True
        if error is not None:
            return error, False
    return None


def _is_of_another(encoder: str, model: Path, others: Sequence[Path]) -> bool:
    """Whether an encoder is named for one of the other models, and more exactly than for this."""
    here = belonging(encoder, model.name)
    if here == NAMED_EXACTLY:
        return False
    elsewhere = max((belonging(encoder, path.name) for path in others), default=0)
    return elsewhere == NAMED_EXACTLY or (here < 0 < elsewhere)


def _size_if_fitting(path: Path, architecture: str, width: int) -> int:
    """Bytes of a picture encoder for such a model, 0 of another file, which is not read whole."""
    try:
        if not path.is_file():  # a pipe would block
            return 0
        with path.open("rb") as raw:
            start = read_beginning(raw.read(_START_BYTES), path.name)
        if start.metadata.get("general.architecture") != ARCHITECTURE:
            return 0
        check_encoder(path, architecture, width)
        return path.stat().st_size
    except (EngineError, OSError):
        return 0


def build_sight(text: GGUFFile, decoder: Decoder, path: Path, backend: Backend) -> Sight:
    """The sight of a text model with the encoder of a file; no weights are read.

    Raises EngineError where the two do not fit, or a key of either is missing.
    """
    width = decoder.embedding.columns
    config = check_encoder(path, text.string("general.architecture"), width)
    kind = _KINDS[config.projector]
    axes = None if kind.axes is None else kind.axes(text, _pairs(decoder))
    spans = kind.spans if isinstance(kind.spans, Spans) else kind.spans(text)
    seeing = Seeing(width, axes, spans, len(config.deep))
    vocabulary = decoder.head.weight.shape[0]
    # Embeddings of single layers are those of the padding token where a picture is.
    pad = text.metadata.get("tokenizer.ggml.padding_token_id")
    pad = pad if isinstance(pad, int) and 0 <= pad < vocabulary else 0
    return Sight(seeing, ImageRegistry(vocabulary), EncoderFile(path, config, backend), pad)


def _pairs(decoder: Decoder) -> int:
    """Pairs of channels that RoPE rotates, in all layers that it does."""
    mixers = (block.attention for block in decoder.blocks)
    rotated = {one.rope.frequencies.numel() for one in mixers if isinstance(one, Attention)} - {0}
    if len(rotated) != 1:
        raise UnsupportedModel(
            "The model's layers rotate different numbers of channels, which pictures do not allow.",
            "Chat with the model by text.",
        )
    return rotated.pop()
