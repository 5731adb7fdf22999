"""Program of a model: what `info --program` prints of its instructions and lowered operations."""

from __future__ import annotations

from engine.cli import options as options_of
from engine.cli.options import Options
from engine.cli.output import print_json
from engine.loading.library import find_model
from engine.loading.loader import LoadedModel, load
from engine.models.forward import Result, forward_program
from kernels.backend.listing import placed_text
from kernels.programs.program import Program


def show_program(options: Options) -> None:
    """Load the model as an answer would, and print its program."""
    model = loaded(options)
    text = placed_text(program_of(model), model.decoder.placement, model.decoder.refused)
    if options.json:
        print_json(program=text.splitlines())
        return
    print(f"{model.name}, {model.backends}\n\n{text}")


def loaded(options: Options) -> LoadedModel:
    """The model of the command line, of any type; raises EngineError."""
    return load(
        find_model(options.model),
        device=options_of.device(options),
        backend=options.backend,
        parts=options_of.placement(options),
        context=options.context,
        threads=options.threads,
        cache=options_of.cache_type(options),
        embeddings=True,
        tokenizer_file=options_of.tokenizer(options),
        ids_only=True,
        memory_bytes=options_of.memory(options),
    )


def program_of(model: LoadedModel) -> Program:
    """The program without adapters that the model runs: of an encoder up to the last norm."""
    layout = model.new_runner().layout
    result = Result.NORMED if model.decoder.is_encoder else Result.LOGITS
    return forward_program(model.decoder, layout, result=result)
