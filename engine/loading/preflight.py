"""Preflight: checks of architecture and tensor shapes before any tensor data is read.

Used by the loader, the library page and the command line, so that all of them report the same
error for the same file.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from weakref import WeakKeyDictionary

import torch

from engine.errors import EngineError, Fault, FaultKind, ModelFileError, UnsupportedModel
from engine.frontend.tokenizer.vocabulary import Vocabulary
from engine.gguf.reader import GGUFFile
from engine.loading.memory import HybridPass, LayerGroup, ModelShape
from engine.loading.pooling import named_pooling, pooling_of, rank_template
from engine.models import Build, architecture, is_encoder
from engine.models.builder import RANKING
from engine.models.config import Config, read_config
from engine.models.forward import LOGITS, forward_program
from engine.models.layers import Decoder
from engine.models.mixers import attention_kinds
from engine.models.weights import Weights
from kernels.backend.backend import ENCODER_OPS
from kernels.backend.placement import Placement
from kernels.states.kv_pages import KVLayout
from kernels.states.layer_state import (
    ConvState,
    LayerShape,
    LayerState,
    RecurrentState,
    SharedState,
)
from kernels.weights.formats import Format, by_name

# `general.type` of GGUF files that are not models: description and remedy.
_OTHER_KINDS = {
    "adapter": ("an adapter, which changes a model", "Open its model, then add it as an adapter."),
    "mmproj": (
        "the image or audio encoder of a model (mmproj), without its language model",
        "Choose the file of the model itself.",
    ),
    "imatrix": ("an importance matrix, used to quantize models", "Choose the file of a model."),
}

_shapes: WeakKeyDictionary[GGUFFile, ModelShape] = WeakKeyDictionary()  # of files that are open


def identify(
    file: GGUFFile, *, answers: bool = True, ids_only: bool = False
) -> tuple[Build, Config]:
    """The builder and the configuration of the model.

    Raises ModelFileError for a file that is not a model, UnsupportedModel for an unknown one and,
    where the model must answer, for one that only makes embeddings or scores documents. With
    `ids_only`, the logits of a model are wanted, which one that scores documents has too.
    """
    refuse_other_kinds(file.metadata, len(file.tensors))
    build = architecture(file)
    if answers:
        _refuse_without_answers(file, ids_only)
    return build, read_config(file)


def _refuse_without_answers(file: GGUFFile, ids_only: bool) -> None:
    if f"{RANKING}.weight" in file.tensors and not ids_only:
        raise UnsupportedModel(
            "The model only scores how well documents answer a query; it cannot chat.",
            "Choose a model that was made to chat, or use this one with `rerank`.",
            Fault(FaultKind.OTHER_TYPE, "reranker"),
        )
    refuse_embedder(is_encoder(file) or (makes_vectors(file) and not ids_only))


def makes_vectors(file: GGUFFile) -> bool:
    """Whether a model was made to turn texts into vectors: by its layers, or the pooling it names."""
    if f"{RANKING}.weight" in file.tensors:
        return False
    return is_encoder(file) or named_pooling(file) not in ("", "rank")


def refuse_embedder(embedder: bool) -> None:
    """Raise UnsupportedModel for a model that was made to turn texts into vectors."""
    if embedder:
        raise UnsupportedModel(
            "The model only turns texts into vectors (embeddings); it cannot chat.",
            "Choose a model that was made to chat, or use this one with `embed`.",
            Fault(FaultKind.OTHER_TYPE, "embeddings"),
        )


def check(file: GGUFFile, config: Config, build: Build, vocabulary: Vocabulary) -> None:
    """Check everything except tensor values and token texts.

    Raises ModelFileError or UnsupportedModel naming the faulty key or tensor.
    """
    vocabulary.check(config)
    pooling_of(file)
    rank_template(file)
    outline(file, config, build)


def outline(file: GGUFFile, config: Config, build: Build) -> Decoder:
    """Build the model with placeholder weights to check all shapes; raises as `check` does."""
    weights = Weights(file, read=False)
    decoder = build(file, weights, config.context)
    weights.refuse_unused_tensors()
    return decoder


def shape(file: GGUFFile, config: Config) -> ModelShape:
    """The sizes that determine memory use.

    Of a file that is refused they are those of llama's layers: its error is reported by `check`.
    """
    plain = _plain_shape(file, config)
    if plain.is_encoder:
        return plain
    if file not in _shapes:
        try:
            _shapes[file] = _outlined(plain, outline(file, config, architecture(file)))
        except EngineError:
            _shapes[file] = plain
    return _shapes[file]


def _outlined(plain: ModelShape, decoder: Decoder) -> ModelShape:
    """The shape with what the blocks of the model say of themselves."""
    each = [block.states for block in decoder.blocks]
    # Layers that run several times are blocks once for each.
    times = [each[at :: plain.layers] for at in range(plain.layers)]
    states = tuple(tuple(one for some in own for one in some) for own in times)
    weights = max(block.weights for block in decoder.blocks)
    shape = replace(plain, states=states, block_weights=weights)
    usual = LayerShape(plain.kv_heads, plain.head_width)
    own = [state for some in states for state in some if not isinstance(state, SharedState)]
    if len(own) == len(each) and all(
        isinstance(one, LayerShape) and replace(one, window=0) == usual for one in own
    ):
        return shape
    kinds = [kind for block in decoder.blocks for kind in attention_kinds(block.attention)]
    layout = KVLayout(decoder.layer_states, torch.float32)
    widths = forward_program(decoder, layout).widths
    fixed = [state.shape for state in own if not isinstance(state, LayerShape)]
    hybrid = HybridPass(
        attentions=tuple(dict.fromkeys(kinds)),
        token_floats=sum(widths.values()) - widths[LOGITS],
        state_floats=max(map(math.prod, fixed), default=0),
    )
    return replace(shape, hybrid=hybrid)


def states_of(groups: Iterable[LayerGroup]) -> tuple[tuple[LayerState, ...], ...]:
    """What each layer remembers, group by group: their order makes no difference to the sizes."""
    found: list[tuple[LayerState, ...]] = []
    for group in groups:
        states: list[LayerState] = []
        if group.kv_heads:
            states.append(LayerShape(group.kv_heads, group.head_width))
        if group.convolution:
            states.append(ConvState(*group.convolution))
        if group.recurrence:
            states.append(RecurrentState(*group.recurrence))
        found += [tuple(states)] * group.layers
    return tuple(found)


def _plain_shape(file: GGUFFile, config: Config) -> ModelShape:
    main = main_format(file)
    reads_whole = is_encoder(file)
    # Layers that run several times remember keys and values of each.
    looped = (LayerShape(config.kv_heads, config.head_width),) * config.loops
    states = ((),) * config.layers if reads_whole else ()
    return ModelShape(
        architecture=config.architecture,
        layers=config.layers,
        width=config.width,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_width=config.head_width,
        feed_forward=config.feed_forward,
        vocabulary=config.vocabulary,
        context=config.context,
        format=main.name if main else "",
        parameters=parameters(file),
        experts=config.experts,
        experts_per_token=config.experts_per_token,
        states=(looped,) * config.layers if config.loops > 1 else states,
        is_encoder=reads_whole,
    )


def extra_ops(file: GGUFFile, config: Config, placement: Placement) -> dict[str, tuple[str, ...]]:
    """By backend, the ops that only some models have, of a model that was not built."""
    if is_encoder(file):
        return {one.name: ENCODER_OPS for one in placement.backends}
    found: dict[str, dict[str, None]] = {}
    for states, backend in zip(shape(file, config).states, placement.layers, strict=False):
        for state in states:
            if isinstance(state, ConvState | RecurrentState):
                op = "short_conv" if isinstance(state, ConvState) else "recurrence"
                found.setdefault(backend.name, {})[op] = None
    return {name: tuple(ops) for name, ops in found.items()}


def main_format(file: GGUFFile) -> Format | None:
    """The format of most bytes in the matrices of the blocks; None if there are none."""
    sizes: Counter[str] = Counter()
    for info in file.tensors.values():
        if len(info.shape) > 1 and info.name.startswith("blk."):
            sizes[info.format.name] += info.size_bytes
    return by_name(sizes.most_common(1)[0][0]) if sizes else None


def layout(file: GGUFFile) -> str:
    """Description of the main format."""
    main = main_format(file)
    return main.words if main else ""


def parameters(file: GGUFFile) -> int:
    """The parameter count: elements of all tensors."""
    return sum(math.prod(info.shape) for info in file.tensors.values())


def refuse_other_kinds(metadata: Mapping[str, object], tensors: int) -> None:
    """Raise ModelFileError for a GGUF file of so many tensors whose keys say it is no model."""
    kind = metadata.get("general.type", "model")
    if kind == "model" and metadata.get("general.architecture") == "clip":
        kind = "mmproj"  # in files older than the key general.type
    if isinstance(kind, str) and kind in _OTHER_KINDS:
        what, remedy = _OTHER_KINDS[kind]
        raise ModelFileError(f"The file is {what}.", remedy, Fault(FaultKind.OTHER_TYPE, kind))
    if not tensors:
        raise ModelFileError(
            "The file holds a vocabulary and no model: it has no tensors.",
            "Choose the file of a complete model.",
            Fault(FaultKind.OTHER_TYPE, "vocabulary"),
        )
