"""Facts of models for the page that lists them, found without loading or disturbing anything.

Both functions are for a thread beside the window and the engine: the first call imports torch,
which is why that is done inside them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import EngineError
from engine.loading.library import model_name
from engine.loading.memory import MemoryPlan, ModelShape, refusal
from engine.messages import DEFAULT_CACHE, CacheType

if TYPE_CHECKING:
    from engine.gguf.reader import GGUFFile


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of a model file; whatever a faulty file does not tell stays empty."""

    path: Path  # of the first part, where there are several
    name: str
    architecture: str = ""
    layout: str = ""  # the main format in words
    format: str = ""  # its name, such as "Q4_1"
    parameters: int = 0
    file_bytes: int = 0  # of all parts
    context_model: int = 0  # tokens it was trained for
    context: int = 0  # tokens the figures below are for
    memory_bytes: int = 0  # predicted peak: the three below together
    weights_bytes: int = 0  # with the vocabulary
    cache_bytes: int = 0
    scratch_bytes: int = 0
    available_bytes: int = 0
    most_context: int = 0  # tokens that would fit, up to the model's own
    fits: bool = False
    problem: str = ""  # one sentence: why it cannot be run; empty: it can
    remedy: str = ""
    has_template: bool = False


def inspect_model(
    path: Path, context: int = 0, cache: CacheType = DEFAULT_CACHE, *, reclaimable: int = 0
) -> ModelFacts:
    """What a file is and would take with `context` tokens; 0: as many of the model's own as fit.

    Reads the header only, some milliseconds of work, and raises nothing for a bad file: `problem`
    says what is wrong. Any part of a split model stands for the whole. `reclaimable` bytes are in
    use by the model that is loaded now, and would be free.
    """
    from engine.gguf.reader import GGUFFile

    facts = ModelFacts(path, model_name(path), file_bytes=_size_bytes(path))
    try:
        with GGUFFile.open(path) as file:
            facts = _described(facts, file)
            return _planned(facts, file, context, cache, reclaimable)
    except EngineError as error:
        return replace(facts, problem=str(error), remedy=error.remedy)


def predict_memory(
    shape: ModelShape, context: int = 0, cache: CacheType = DEFAULT_CACHE, *, reclaimable: int = 0
) -> MemoryPlan:
    """What a model that is not on this machine would take, by the arithmetic of `inspect_model`.

    All its weights count as of `shape.format`, a format or a recipe such as "Q4_K_M".
    """
    from engine.loading.preflight import predict_shape

    return predict_shape(shape, context, cache, reclaimable)


def _described(facts: ModelFacts, file: GGUFFile) -> ModelFacts:
    """What even a file that cannot be run says of itself."""
    from engine.chat.template import has_template
    from engine.loading.preflight import main_format, parameters

    main = main_format(file)
    return replace(
        facts,
        path=file.paths[0],
        architecture=file.string("general.architecture", ""),
        layout=main.words if main else "",
        format=main.name if main else "",
        parameters=parameters(file),
        file_bytes=file.file_bytes,
        has_template=has_template(file.metadata),
    )


def _planned(
    facts: ModelFacts, file: GGUFFile, context: int, cache: CacheType, reclaimable: int
) -> ModelFacts:
    from engine.loading.preflight import check, identify, predict
    from engine.tokenizer.vocabulary import find

    build, config = identify(file)
    plan = predict(file, config, context, cache, reclaimable)
    facts = replace(
        facts,
        context_model=config.context,
        context=plan.context,
        memory_bytes=plan.total_bytes,
        weights_bytes=plan.weights_bytes,
        cache_bytes=plan.cache_bytes,
        scratch_bytes=plan.scratch_bytes,
        available_bytes=plan.available_bytes,
        most_context=plan.most_context,
        fits=plan.fits,
    )
    try:
        check(file, config, build, find(file))
    except EngineError as error:  # more to the point than that it is too large as well
        return replace(facts, problem=str(error), remedy=error.remedy)
    refused = refusal(plan, context)
    return replace(facts, problem=str(refused), remedy=refused.remedy) if refused else facts


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
