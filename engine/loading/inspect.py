"""Model inspection for the library page: metadata and memory prediction without loading weights.

Call its functions on a worker thread: their first call imports torch, hence the local imports.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import EngineError, Fault, FaultKind
from engine.loading.library import model_name
from engine.loading.memory import NO_OFFLOADING, MemoryPlan, ModelShape, refusal
from engine.messages import DEFAULT_CACHE, CacheType, DevicePart, DeviceRefusal, Sampling

if TYPE_CHECKING:
    from engine.gguf.reader import GGUFFile

# Of these a beginning is proof; any other error may come from a server that sent something else.
_CERTAIN = (FaultKind.OTHER_TYPE, FaultKind.ARCHITECTURE, FaultKind.FORMAT, FaultKind.NOT_A_MODEL)
_OTHER_VERSIONS = (b"\1\0\0\0", b"\0\0\0\2", b"\0\0\0\3")  # of 2023, and big-endian files


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Metadata and predicted memory of a model file; fields a faulty file lacks stay empty."""

    path: Path  # of the first part of a split model
    name: str
    architecture: str = ""
    layout: str = ""  # description of the main weight format
    format: str = ""  # as users know it: "Q4_1", "Q4_K_M"
    parameters: int = 0
    file_bytes: int = 0  # of all parts
    context_model: int = 0  # tokens: the training context
    context: int = 0  # tokens assumed by the memory figures below
    memory_bytes: int = 0  # predicted peak: sum of the next three, and of `encoder_bytes`
    weights_bytes: int = 0  # including the vocabulary
    cache_bytes: int = 0
    scratch_bytes: int = 0
    available_bytes: int = 0
    most_context: int = 0  # tokens that fit in memory, up to the training context
    fits: bool = False
    embeds: bool = (
        False  # it turns texts into vectors, and runs; `problem` says that it cannot chat
    )
    problem: str = ""  # one sentence why the model cannot run; "" if it can
    remedy: str = ""
    fault: Fault | None = None  # `problem` as a code with parameters
    has_template: bool = False
    sampling: Sampling | None = None  # that the file recommends
    sampling_fields: tuple[str, ...] = ()  # of `sampling` that the file sets
    layers: int = 0
    offloaded_layers: int = 0  # that do not fit in memory, see `ModelLoaded`
    offloaded_bytes: int = 0
    offloaded_seconds: float = 0.0
    runs_on: tuple[DevicePart, ...] = ()  # in the order of the layers
    moved: DeviceRefusal | None = None  # why it would not run, or not all, where it is asked to
    speedup: float = 0.0  # predicted, relative to the processor alone; 0: it runs there
    encoder: Path | None = None  # the file of its picture encoder; None: it takes no pictures
    encoder_bytes: int = 0  # of `memory_bytes`, for that encoder and what pictures take


@dataclass(frozen=True, slots=True)
class BeginningFacts:
    """What a file is, as far as its first bytes show; "" and None where they do not."""

    is_model: bool = False  # its keys say that it is a model of an architecture that runs
    formats_run: bool = False  # every tensor has a format that runs
    format: str = ""  # of most of its matrices, such as "Q4_K"; "" until all are known
    problem: str = ""  # one sentence why it cannot chat
    remedy: str = ""
    fault: Fault | None = None  # `problem` as a code
    architecture: str = ""
    projector: str = ""  # kind of a picture encoder's; "" of other files
    width: int = 0  # of a model, or of the rows of a picture encoder


@dataclass(frozen=True, slots=True)
class EmbedderFacts:
    """What is needed of a model file that turns texts into vectors, to use it."""

    path: Path  # of the first part of a split model
    name: str  # as the library shows it
    title: str  # that its metadata name, which tells how texts are to be given; "" without
    architecture: str
    context: int  # tokens that it was trained for
    file_bytes: int
    weights: str  # changes with the contents of the file: vectors of others are not comparable


def inspect_model(
    path: Path,
    context: int = 0,
    cache: CacheType = DEFAULT_CACHE,
    *,
    reclaimable: int = 0,
    memory_bytes: int = 0,
    device: str = "",
) -> ModelFacts:
    """Facts of a model file with `context` tokens; 0: the usual one of this computer.

    Reads only the header, which takes milliseconds, and of the first model too large for the memory
    some megabytes, to measure the disk. A bad file raises nothing: `problem` describes
    the error. `path` may be any part of a split model. `reclaimable` bytes are in use by the
    currently loaded model and would be freed. The model takes at most `memory_bytes`, if that is
    not 0. `device` is that of `Load`.
    """
    from engine.gguf.reader import GGUFFile

    facts = ModelFacts(path, model_name(path), file_bytes=_size_bytes(path))
    try:
        with GGUFFile.open(path) as file:
            facts = _with_metadata(facts, file)
            made = _with_plan(facts, file, context, cache, reclaimable, memory_bytes, device)
            file.check()
            return made
    except EngineError as error:
        return _with_error(facts, error)


def inspect_embedder(path: Path) -> EmbedderFacts | None:
    """Facts of a model file that was made to turn texts into vectors; None of any other file.

    Reads the header and some megabytes, which takes milliseconds; a bad file raises nothing.
    """
    from engine.gguf.reader import GGUFFile
    from engine.loading.identity import sampled_sha256
    from engine.loading.preflight import identify, makes_vectors

    with suppress(EngineError, OSError), GGUFFile.open(path) as file:
        if not makes_vectors(file):
            return None
        _, config = identify(file, answers=False)
        title = file.string("general.name", "")
        weights = sampled_sha256(file.paths)
        file.check()
        return EmbedderFacts(
            file.paths[0],
            model_name(path),
            title,
            config.architecture,
            config.context,
            file.file_bytes,
            weights,
        )
    return None


def model_encoder(path: Path) -> Path | None:
    """The picture encoder beside a model's file that is used with it; a bad file raises nothing."""
    from engine.gguf.reader import GGUFFile
    from engine.loading.preflight import identify
    from engine.vision.pairing import find_encoder

    with suppress(EngineError, OSError), GGUFFile.open(path) as file:
        _, config = identify(file, answers=False)
        return find_encoder(file.paths[0], config.architecture, config.width)
    return None


def inspect_beginning(data: bytes, name: str) -> BeginningFacts:
    """Facts of the file `name` from its first bytes, which may end anywhere; never raises.

    Damage is not reported: the whole file is checked when it has arrived.
    """
    from engine.gguf.part import read_beginning
    from engine.loading.preflight import refuse_embedder, refuse_other_kinds
    from engine.models import ENCODERS, builder_of

    facts = BeginningFacts()
    try:
        start = read_beginning(data, name)
        metadata = start.metadata
        architecture = metadata.get("general.architecture")
        if not isinstance(architecture, str) and not start.complete:
            return facts
        if isinstance(architecture, str):
            facts = _with_kind(facts, architecture, metadata)
        several = metadata.get("split.count", 1) != 1  # the first part may have keys only
        refuse_other_kinds(metadata, 1 if several else start.tensor_count)
        if isinstance(architecture, str):
            builder_of(architecture)
            key = f"{architecture}.attention.causal"
            encodes = metadata.get(key, architecture not in ENCODERS) is False
            refuse_embedder(encodes or metadata.get(f"{architecture}.pooling_type") in (1, 2, 3))
            facts = replace(facts, is_model=True)
    except EngineError as error:
        if error.fault.kind not in _CERTAIN and data[4:8] not in _OTHER_VERSIONS:
            return facts
        return replace(facts, problem=str(error), remedy=error.remedy, fault=error.fault)
    if start.complete:
        return replace(facts, formats_run=True, format=start.main_format)
    return facts


def encoder_fits(encoder: BeginningFacts, model: BeginningFacts) -> bool:
    """Whether a picture encoder may be used with a model, as far as their beginnings show."""
    from engine.vision.pairing import may_fit

    return may_fit(encoder.projector, encoder.width, model.architecture, model.width)


def predict_memory(
    shape: ModelShape, context: int = 0, cache: CacheType = DEFAULT_CACHE, *, reclaimable: int = 0
) -> MemoryPlan:
    """Memory plan for a model that is not downloaded, computed as in `inspect_model`.

    All weights count as `shape.format`, a format or a quantization mix such as "Q4_K_M".
    """
    from engine.loading.placement import predict_shape

    return predict_shape(shape, context, cache, reclaimable)


def supported_architectures() -> frozenset[str]:
    """The values of `general.architecture` whose models can chat in this version."""
    from engine.models import ARCHITECTURES

    return frozenset(ARCHITECTURES)


def _with_kind(
    facts: BeginningFacts, architecture: str, metadata: Mapping[str, object]
) -> BeginningFacts:
    """What tells which picture encoders and models fit one another."""
    from engine.vision.projector_file import ARCHITECTURE

    if architecture == ARCHITECTURE:
        names = ("clip.vision.projector_type", "clip.projector_type")
        kinds = [name for key in names if isinstance(name := metadata.get(key), str) and name]
        facts = replace(facts, projector=kinds[0] if kinds else "")
        width = metadata.get("clip.vision.projection_dim")
    else:
        width = metadata.get(f"{architecture}.embedding_length")
    width = width if isinstance(width, int) else 0
    return replace(facts, architecture=architecture, width=width)


def _with_metadata(facts: ModelFacts, file: GGUFFile) -> ModelFacts:
    """Facts that are also available for a file that cannot be run."""
    from engine.frontend.template import has_template
    from engine.loading.format_name import format_name
    from engine.loading.preflight import main_format, parameters
    from engine.loading.recommended_sampling import recommendation

    main, recommended = main_format(file), recommendation(file.metadata)
    return replace(
        facts,
        path=file.paths[0],
        architecture=file.string("general.architecture", ""),
        layout=main.words if main else "",
        format=format_name(file),
        parameters=parameters(file),
        file_bytes=file.file_bytes,
        has_template=has_template(file.metadata),
        sampling=recommended.sampling if recommended.fields else None,
        sampling_fields=recommended.fields,
    )


def _with_plan(
    facts: ModelFacts,
    file: GGUFFile,
    context: int,
    cache: CacheType,
    reclaimable: int,
    limit: int,
    device: str,
) -> ModelFacts:
    from engine.frontend.tokenizer.vocabulary import find
    from engine.loading.device_choice import parts, placed, speedup
    from engine.loading.identity import stamps
    from engine.loading.measured import read_weights
    from engine.loading.placement import predict
    from engine.loading.preflight import check, identify, makes_vectors, refuse_embedder
    from engine.vision.encoder_memory import encoder_beside

    build, config = identify(file, answers=False)
    if not (embeds := makes_vectors(file)):
        identify(file)
    encoder = encoder_beside(file.paths[0], config.architecture, config.width)
    choice = placed(file, config, device, context, cache, reclaimable, limit, encoder=encoder)
    placement = choice.placement
    plan, _ = predict(
        file, config, placement, context, cache, reclaimable, limit=limit, encoder=encoder
    )
    with suppress(OSError):
        if measured := read_weights(stamps(file.paths)):
            plan = plan.with_weights(measured)
    offloading = plan.offloading or NO_OFFLOADING
    facts = replace(
        facts,
        layers=config.layers,
        offloaded_layers=len(offloading.layers),
        offloaded_bytes=offloading.token_bytes,
        offloaded_seconds=offloading.token_seconds,
        context_model=config.context,
        context=plan.context,
        memory_bytes=plan.total_bytes,
        weights_bytes=plan.weights_bytes,
        cache_bytes=plan.cache_bytes,
        scratch_bytes=plan.scratch_bytes,
        encoder=encoder.path if encoder is not None and plan.encoder_bytes else None,
        encoder_bytes=plan.encoder_bytes,
        available_bytes=plan.available_bytes,
        most_context=plan.most_context,
        fits=plan.fits,
        runs_on=parts(placement, plan),
        moved=choice.refusal,
        speedup=speedup(placement, plan),
    )
    try:
        check(file, config, build, find(file))
    except EngineError as error:  # takes precedence over a lack of memory
        return _with_error(facts, error)
    if refused := refusal(plan, context):
        return _with_error(facts, refused)
    try:
        refuse_embedder(embeds)
    except EngineError as error:
        return _with_error(replace(facts, embeds=True), error)
    return facts


def _with_error(facts: ModelFacts, error: EngineError) -> ModelFacts:
    return replace(facts, problem=str(error), remedy=error.remedy, fault=error.fault)


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
