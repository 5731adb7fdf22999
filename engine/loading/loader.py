"""Model loader: checks a GGUF file, plans memory, loads weights and tokenizer, checks kernels."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.core.embedding import Embedder
from engine.core.runner import Runner
from engine.core.scheduler import MOST_RUNNING, Scheduler
from engine.core.session import Session
from engine.errors import Fault, FaultKind, ModelFileError, RequestError
from engine.frontend.template import ChatTemplate
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.frontend.tokenizer.vocabulary import find as find_vocabulary
from engine.frontend.tokenizer.vocabulary import find_or_ids
from engine.gguf.reader import GGUFFile
from engine.loading.device_choice import (
    AUTOMATIC,
    Choice,
    DeviceError,
    device_errors,
    free_memory,
    placed,
)
from engine.loading.device_choice import parts as device_parts
from engine.loading.format_name import format_name
from engine.loading.identity import Stamp, stamps
from engine.loading.library import model_name
from engine.loading.memory import MemoryPlan
from engine.loading.placement import (
    kernels_in_use,
    merged,
    place,
    plan,
    plan_without,
    refuse_division,
    slow_parts,
    words,
)
from engine.loading.pooling import pooling_of, rank_template
from engine.loading.preflight import check, identify, layout, parameters
from engine.loading.recommended_sampling import NOTHING, Recommendation, recommendation
from engine.loading.selfcheck import Faults, find_faults
from engine.loading.sight import encoder_of, find_eyes
from engine.machine.background import BackgroundTask
from engine.machine.device import physical_cores
from engine.messages import (
    Blindness,
    CacheType,
    DeviceFault,
    DevicePart,
    DeviceRefusal,
    Pooling,
    Sampling,
    SlowPart,
)
from engine.models import Build
from engine.models.computation import computation
from engine.models.config import Config
from engine.models.expert_streamer import ExpertStreamer
from engine.models.forward import Result
from engine.models.layer_streamer import LayerStreamer
from engine.models.layers import Decoder
from engine.models.weights import Weights
from engine.state.prefix_tree import PrefixTree
from engine.vision.encoder_memory import EncoderSizes
from engine.vision.pairing import EncoderFile
from engine.vision.sight import Sight
from kernels import backends
from kernels.backend.backend import HOST
from kernels.backend.placement import Placement

_BY_TEXT = ("full_attention",)  # ops that the interpreter runs for each text alone


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A loaded model: decoder, tokenizer and chat template, and facts for display."""

    path: Path
    name: str
    config: Config
    decoder: Decoder
    files: tuple[Stamp, ...]  # stamps of its files, from before they were read
    computation: str  # hash of how it computes, see `engine.models.computation`
    tokenizer: Tokenizer
    vocabulary: str  # its source; "": the metadata of the GGUF file
    template: ChatTemplate
    plan: MemoryPlan
    cache: CacheType
    layout: str  # description of the main weight format
    format: str  # as users know it: "Q4_1", "Q4_K_M"
    parameters: int
    file_bytes: int
    kernels: dict[str, str]  # op and format to the backend that runs it
    backends: str  # the placement for a status line: "cpu avx512 + reference"
    slow: tuple[SlowPart, ...]  # parts without a fast kernel
    seconds: float
    recommended: Recommendation = NOTHING  # by the file
    pooling: Pooling = Pooling.LAST  # of embeddings
    rank_template: str = ""  # of a query and a document; "": one follows the other
    runs_on: tuple[DevicePart, ...] = ()  # in the order of the layers
    moved: DeviceRefusal | None = None  # why it does not run, or not all, where it was asked to
    parallel: int = MOST_RUNNING  # answers that are generated at once
    sight: Sight | None = None  # of a model whose texts may have images
    encoder: EncoderFile | None = None  # that it sees with
    encoder_files: tuple[Stamp, ...] = ()  # stamps of its file, from before it was read
    blind: Blindness | None = None  # why it does not although there is an encoder

    @property
    def base(self) -> bool:
        """Whether the model probably only continues text: it was not trained to chat."""
        return self.template.base

    @property
    def sampling(self) -> Sampling | None:
        """The sampling that the file recommends; None if it recommends nothing usable."""
        return self.recommended.sampling if self.recommended.fields else None

    def new_runner(self) -> Runner:
        """A runner of this model over KV pages of the planned type."""
        return Runner(self.decoder, self.cache, sight=self.sight)

    def new_scheduler(self, budget_bytes: int = 1 << 62) -> Scheduler:
        """A scheduler of answers with this model; `budget_bytes` limits its KV pages."""
        runner = Runner(self.decoder, self.cache, draws=True, sight=self.sight)
        pool = runner.new_pool(budget_bytes)
        tree = PrefixTree(pool)
        return Scheduler(
            runner, pool, tree, self.tokenizer, self.plan.context, most_running=self.parallel
        )

    def new_embedder(self, scheduler: Scheduler | None = None) -> Embedder:
        """An embedder that reads with a scheduler, or with its own."""
        return self._embedder(Result.NORMED, scheduler)

    def new_ranker(self, scheduler: Scheduler | None = None) -> Embedder:
        """One that scores documents; raises RequestError for a model that cannot."""
        if self.decoder.ranking is None:
            raise RequestError("The model has no head that scores documents.", "Choose a reranker.")
        return self._embedder(Result.SCORES, scheduler)

    def _embedder(self, result: Result, scheduler: Scheduler | None) -> Embedder:
        runner = Runner(self.decoder, self.cache, result=result)
        # Native ops compute a row from that row alone; others are interpreted text by text.
        ops = (used for op, used in self.kernels.items() if op not in _BY_TEXT)
        equal = self.decoder.is_encoder and all(used.split()[0] == "cpu" for used in ops)
        scheduler = scheduler or self.new_scheduler()
        return Embedder(scheduler, runner, self.tokenizer, equal_ops=equal)

    def new_session(self) -> Session:
        """An empty session over this model's weights."""
        runner = self.new_runner()
        return Session(runner, runner.new_pool(), self.plan.context)


def load(
    path: Path,
    *,
    device: str = AUTOMATIC,
    backend: str = "",
    parts: Sequence[tuple[str, int]] = (),
    context: int = 0,
    threads: int | None = 0,
    cache: CacheType = CacheType.F32,
    embeddings: bool = False,
    tokenizer_file: Path | None = None,
    template: str = "",
    parallel: int = 0,
    ids_only: bool = False,
    sees: bool = False,
    encoder: Path | None = None,
    reclaimable: int = 0,
    kept: Mapping[str, int] | None = None,
    memory_bytes: int = 0,
    planned: Callable[[MemoryPlan], None] = lambda plan: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    checkpoint: Callable[[], None] = lambda: None,
    before_weights: Callable[[], None] = lambda: None,
) -> LoadedModel:
    """Load a model on a `device`, see `Load`, or on a backend, or split by layers in `parts`.

    A device that cannot be used, that fails, or whose memory runs out during the load is replaced
    by the processor; `moved` of the result says why. A backend or parts that were named are not,
    see `placement.place`. Raises ModelFileError, RequestError, OutOfMemory, or what `checkpoint`
    raises.

    `before_weights` is called after all checks, before memory is allocated: unload a model that is
    being replaced there. `reclaimable` is the number of bytes this frees, and `kept` what others may
    come to take of devices, see `placement.predict`. With `embeddings`, models
    that only make these or score documents are loaded too. If it `sees`, its texts may have
    pictures, for which it uses the `encoder`, or one beside its file. `tokenizer_file` is a `tokenizer.json`
    that replaces the vocabulary of the file, see `engine.frontend.tokenizer.vocabulary`; `template` and
    `parallel` are as in `Load`. With `ids_only` the
    model is given token ids and no text, so a file without a readable vocabulary is loaded too.

    The model takes at most `memory_bytes`, or 0: nine tenths of the free memory. Layers that do not
    fit are read from the file for every pass, of a mixture the experts it uses; `planned` is called
    with the plan, which says so.
    """
    if threads is not None:  # None: as they are, for a model beside another
        set_threads(threads)
    if not 0 <= parallel <= MOST_RUNNING:
        raise RequestError(
            f"{parallel} answers at once are not possible.", f"Give 1 to {MOST_RUNNING}."
        )
    # Decoding copies the weights, so the file can be closed afterwards.
    with GGUFFile.open(path) as file:
        build, config = identify(file, answers=not embeddings, ids_only=ids_only)
        explicit = bool(backend or parts or os.environ.get("KERNELS"))
        found_encoder = encoder_of(file, config, encoder) if sees and not ids_only else None
        loading = _Loading(
            file,
            config,
            build,
            tokenizer_file,
            template,
            parallel,
            ids_only,
            found_encoder,
            encoder is not None,
            context,
            cache,
            memory_bytes,
            kept,
            planned,
            progress,
            checkpoint,
            before_weights,
        )
        if explicit:
            placement = place(config.layers, backend, parts)
            refuse_division(file, config, placement)
            return loading.on(Choice(placement), reclaimable)

        choice = placed(
            file,
            config,
            device,
            context,
            cache,
            reclaimable,
            memory_bytes,
            kept,
            encoder=found_encoder,
        )
        try:
            return loading.on(choice, reclaimable)
        except DeviceError as error:
            refusal = error.refusal
        free_memory()  # of the device, before the processor has the model
        return loading.on(Choice(place(config.layers), refusal), reclaimable)


@dataclass(frozen=True, slots=True)
class _Loading:
    """A load of an open file; `on` may be called again when a device fails."""

    file: GGUFFile
    config: Config
    build: Build
    tokenizer_file: Path | None
    template: str
    parallel: int
    ids_only: bool
    encoder: EncoderSizes | None
    is_encoder_given: bool
    context: int
    cache: CacheType
    memory_bytes: int
    kept: Mapping[str, int] | None
    planned: Callable[[MemoryPlan], None]
    progress: Callable[[int, int], None]
    checkpoint: Callable[[], None]
    before_weights: Callable[[], None]

    def on(self, choice: Choice, reclaimable: int) -> LoadedModel:
        """Load the model with a placement. Raises DeviceError when a device of it fails."""
        with device_errors(choice.placement):
            return self._load(choice, reclaimable)
        raise AssertionError("a failed device raises")

    def _load(self, choice: Choice, reclaimable: int) -> LoadedModel:
        started, files = time.perf_counter(), stamps(self.file.paths)
        file, config, cache, placement = self.file, self.config, self.cache, choice.placement
        memory, storage = plan(
            file,
            config,
            placement,
            self.context,
            cache,
            reclaimable,
            self.memory_bytes,
            self.kept,
            encoder=self.encoder,
        )
        if self.ids_only:
            vocabulary = find_or_ids(file, self.tokenizer_file, config.vocabulary)
        else:
            vocabulary = find_vocabulary(file, self.tokenizer_file)
        check(file, config, self.build, vocabulary)
        self.checkpoint()
        self.planned(memory)
        self.before_weights()
        tokenizer = BackgroundTask(vocabulary.tokenizer, "tokenizer")

        def check_both() -> None:
            self.checkpoint()
            if tokenizer.failed:
                raise tokenizer.failed  # stop at once on a faulty vocabulary

        streamer = _streamer(file, placement, memory)
        weights = Weights(
            file, self.progress, check_both, placement=placement, storage=storage, streamer=streamer
        )
        decoder = self.build(file, weights, memory.context)
        weights.refuse_unused_tensors()
        faults = find_faults(config, decoder, weights, self.checkpoint)
        if faults.errors:
            _refuse_faulty_devices(placement, faults)
            memory, storage = plan_without(
                file,
                config,
                placement,
                self.context,
                cache,
                memory,
                faults.weights,
                faults.refused,
                encoder=self.encoder,
            )
            del decoder, streamer  # free their memory before weights are loaded in another storage
            weights = weights.reread(storage, _streamer(file, placement, memory))
            decoder = self.build(file, weights, memory.context)
            decoder = replace(decoder, refused=faults.refused)
        extra_ops = decoder.extra_ops
        found = tokenizer.result(self.checkpoint)
        template = ChatTemplate.from_metadata(file.metadata, found, self.template)
        eyes = find_eyes(
            file,
            decoder,
            found,
            self.encoder,
            has_room=memory.encoder_bytes > 0,
            is_given=self.is_encoder_given,
        )
        file.check(names=True)  # what stays in the files was opened by name
        known = kernels_in_use(file, placement, state_ops=extra_ops)
        kernels = kernels_in_use(file, placement, faults.concern, extra_ops)
        slow = (*slow_parts(known, storage, memory.offloading), *faults.slow)
        return LoadedModel(
            path=file.path,
            name=model_name(file.path),
            config=config,
            decoder=decoder,
            files=files,
            computation=computation(decoder),
            tokenizer=found,
            vocabulary=vocabulary.origin,
            template=template,
            plan=memory,
            cache=cache,
            layout=layout(file),
            format=format_name(file),
            parameters=parameters(file),
            file_bytes=file.file_bytes,
            kernels=merged(kernels),
            backends=words(placement, kernels),
            slow=slow or faults.op_by_op,  # which other slow parts explain
            seconds=time.perf_counter() - started,
            recommended=recommendation(file.metadata),
            pooling=pooling_of(file, Pooling.MEAN if decoder.is_encoder else Pooling.LAST),
            rank_template=rank_template(file),
            runs_on=device_parts(placement, memory),
            moved=choice.refusal,
            parallel=self.parallel or MOST_RUNNING,
            sight=eyes.sight,
            encoder=eyes.encoder,
            encoder_files=eyes.files,
            blind=eyes.blind,
        )


def _streamer(
    file: GGUFFile, placement: Placement, memory: MemoryPlan
) -> LayerStreamer | ExpertStreamer | None:
    """The streamer of what the plan keeps in the file; raises ModelFileError."""
    offloading = memory.offloading
    if offloading is None:
        return None
    backend = placement.layers[offloading.layers[0]]
    try:
        sizes = file.paths, offloading.layers, offloading.slot_bytes
        if offloading.expert_slots:
            return ExpertStreamer(*sizes, offloading.expert_slots, backend.memory)
        return LayerStreamer(*sizes, backend.memory)
    except OSError as error:
        raise ModelFileError(
            f"The model's file cannot be opened a second time: {error.strerror or error}.",
            "Check the disk that it lies on.",
            Fault(FaultKind.UNREADABLE, error.strerror or str(error)),
        ) from error


def _refuse_faulty_devices(placement: Placement, faults: Faults) -> None:
    """Raise DeviceError for a backend without a fallback: on other devices there is none."""
    for backend in placement.backends:
        kernels = [op for name, op, _ in faults.errors if name == backend.name]
        if kernels and backend.device != HOST:
            text = (
                f"The device of {backend.words} computes wrongly on this machine: {kernels[0]} "
                "differs from its definition."
            )
            raise DeviceError(DeviceRefusal(DeviceFault.COMPUTES_WRONGLY, text))


def set_threads(threads: int) -> None:
    """Set the number of kernel threads; 0: one per physical core. Raises RequestError."""
    if threads < 0 or threads > 1024:
        raise RequestError(
            f"The number of threads is {threads}.", "Give 0 for automatic, or up to 1024."
        )
    wanted = threads or physical_cores()
    try:
        backends.set_threads(wanted)
    except RuntimeError as error:
        raise RequestError(
            f"The system could not start {wanted} threads.", "Use fewer, or close other programs."
        ) from error
