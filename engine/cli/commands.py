"""Command line of the engine: runs chat, complete, tokenize, logits, embed, serve and others."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# libgomp reads this when torch is loaded. Busy-waiting threads would slow down other programs.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if __name__ == "__main__":
    # Until `main` handles it, Ctrl-C ends the program without a traceback from `import torch`.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import torch

from engine.cli import options as options_of
from engine.cli.answer import chat, complete
from engine.cli.drafts import lookup_bench
from engine.cli.embed import embed, rerank
from engine.cli.files import read_text, read_texts
from engine.cli.loading import adapter_stack, load_model
from engine.cli.measure import bench, describe, logits_at, perplexity
from engine.cli.options import Options
from engine.cli.output import print_json, print_status
from engine.cli.quantize import quantize
from engine.cli.serve import serve
from engine.errors import EngineError, RequestError
from engine.frontend.tokenizer import vocabulary
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.gguf.reader import GGUFFile
from engine.loading.library import find_model
from engine.loading.loader import LoadedModel
from engine.machine.device import memory_error
from kernels.backends import choose, instruction_set_refusal

_GIGABYTE = 1e9
_LOOKUP_CONTEXT = 1_024  # of `bench --ngram`: its text has 300 tokens, or more with few words


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit status."""
    try:
        _use_utf8()
        options = options_of.parser(__doc__ or "", _COMMANDS).parse_args(arguments)
        _run(options)
        sys.stdout.flush()
    except EngineError as error:
        return _print_error(error)
    except BrokenPipeError:
        # The reader of stdout has exited. Python's flush at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        at = f" ({error.filename})" if error.filename else ""
        message = f"System error: {error.strerror or error}{at}."
        return _print_error(RequestError(message, "Check the path, the disk and the free memory."))
    except (MemoryError, RuntimeError) as error:
        out_of_memory = memory_error(error)
        if out_of_memory is None:
            raise
        return _print_error(out_of_memory)
    except KeyboardInterrupt:
        return 130
    return 0


def _use_utf8() -> None:
    """Print UTF-8 in any locale: a model's text may have any character."""
    if sys.stdout is None:  # closed by the parent process
        raise RequestError("The standard output is closed.", "Redirect it to a file instead.")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _print_error(error: EngineError) -> int:
    print_status(f"tokonoma: {error.sentence}")
    return 1


def _run(options: Options) -> None:
    chosen = os.environ.get("KERNELS", "") if options.backend == "auto" else options.backend
    try:
        choose(chosen)
    except ValueError as error:
        raise RequestError(str(error), "Give --backend or KERNELS another name.") from None
    if refused := instruction_set_refusal():
        raise RequestError(refused, "Set KERNELS_ISA to an available one, or unset it.")
    options.backend = chosen
    options.run(options)


# --- subcommands --------------------------------------------------------------------------------


def _tokenize(options: Options) -> None:
    with GGUFFile.open(find_model(options.model)) as file:
        tokenizer = vocabulary.find(file, options_of.tokenizer(options)).tokenizer()
        file.check()
    if options.batch is not None:
        for text in read_texts(Path(options.batch)):
            print_json(**_tokens(tokenizer, text, options))
        return
    text = options.prompt if options.file is None else read_text(Path(options.file))
    tokens = _tokens(tokenizer, text, options)
    if options.json:
        print_json(**tokens)
        return
    for token, piece in zip(tokens["token_ids"], tokens["pieces"], strict=True):
        print(f"{token:>7}  {piece!r}")


def _tokens(tokenizer: Tokenizer, text: str, options: Options) -> dict[str, list[int] | list[str]]:
    ids = tokenizer.encode(
        text, add_special=not options.no_bos, parse_special=not options.no_parse_special
    )
    return {
        "token_ids": ids,
        "pieces": [tokenizer.piece(token).decode("utf-8", "replace") for token in ids],
    }


def _logits(options: Options) -> None:
    model = load_model(options, ids_only=options.tokens is not None)
    ids = _ids(options, model)
    positions = _positions(options, len(ids))
    if options.top < 0:
        raise RequestError(f"--top is {options.top}.", "Give 0 for all logits, or more.")
    result: list[dict[str, Any]] = []
    session = model.new_session()
    session.set_stack(adapter_stack(options, model))
    for at, row in zip(positions, logits_at(session, ids, positions), strict=True):
        values, tokens = torch.sort(row, descending=True, stable=True)  # [V] each
        top = options.top or len(row)
        result.append(
            {"position": at, "token_ids": tokens[:top].tolist(), "logits": values[:top].tolist()}
        )
    if options.json:
        print_json(positions=result)
        return
    for row in result:
        print(f"after position {row['position']}:")
        for token, value in zip(row["token_ids"], row["logits"], strict=True):
            piece = model.tokenizer.piece(token).decode("utf-8", "replace")
            print(f"{token:>9} {value:>12.5f}  {piece!r}")


def _ids(options: Options, model: LoadedModel) -> list[int]:
    if options.tokens is None:
        ids = model.tokenizer.encode(options.prompt)
    else:
        ids = _numbers(options.tokens, "--tokens")
    if not ids:
        raise RequestError("The prompt is empty.", "Give -p with a text, or --tokens 1,2,3.")
    if bad := [token for token in ids if not 0 <= token < model.config.vocabulary]:
        raise RequestError(
            f"The token id {bad[0]} is not in this model's vocabulary of "
            f"{model.config.vocabulary:,}.",
            "Give ids from 0 up to one less than that.",
        )
    if len(ids) > model.plan.context:
        raise RequestError(
            f"{len(ids):,} tokens do not fit the context of {model.plan.context:,}.",
            "Give fewer tokens or a larger -c.",
        )
    return ids


def _positions(options: Options, length: int) -> list[int]:
    if options.all:
        return list(range(length))
    if options.positions is None:
        return [length - 1]
    positions = _numbers(options.positions, "--positions")
    if bad := [at for at in positions if not 0 <= at < length]:
        raise RequestError(
            f"There is no position {bad[0]} in a prompt of {length} tokens.",
            f"Give positions from 0 to {length - 1}.",
        )
    return positions


def _perplexity(options: Options) -> None:
    options.context = options.context or 512
    model = load_model(options)
    stack = adapter_stack(options, model)
    value, tokens = perplexity(model, read_text(Path(options.file)), options.context, stack)
    if options.json:
        print_json(perplexity=value, tokens=tokens)
    else:
        print(f"perplexity {value:.4f} over {tokens} tokens at context {options.context}")


def _info(options: Options) -> None:
    facts = describe(
        find_model(options.model),
        options.context,
        options_of.cache_type(options),
        options_of.tokenizer(options),
        options.backend,
        options_of.placement(options),
        options_of.memory(options),
        options_of.device(options),
    )
    if options.json:
        print_json(**facts)
        return
    for key, value in facts.items():
        if isinstance(value, list):
            print(f"{key}:" if value else f"{key}: nothing")
            for row in value:
                print(f"  {_row(row)}")
        elif isinstance(value, dict):
            print(f"{key}:")
            for name, entry in value.items():
                print(f"  {name}: {_shown(name, entry)}")
        else:
            print(f"{key}: {_shown(key, value)}")


def _row(row: Mapping[str, Any]) -> str:
    """One line of a list: a weight format, or a slow part."""
    if "format" not in row:
        return f"{row['part']}: {row['words']}"
    return (
        f"{row['format']:<6} {row['tensors']:>5} tensors {row['bytes']:>15,} bytes  {row['words']}"
    )


def _bench(options: Options) -> None:
    needed = options.depth + max(options.prompt, options.max_tokens)
    text = _LOOKUP_CONTEXT + options.max_tokens if options.ngram else 0
    options.context = options.context or max(needed, text)
    model = load_model(options, ids_only=not options.ngram)  # the prompt is random ids
    stack = adapter_stack(options, model)
    result = bench(
        model,
        prompt=options.prompt,
        generated=options.max_tokens,
        depth=options.depth,
        repetitions=options.repetitions,
        stack=stack,
    )
    if options.ngram:
        result |= lookup_bench(model, options.max_tokens, options.repetitions, stack)
    if options.json:
        print_json(model=model.name, **result)
        return
    print(f"{model.name}, {model.layout}")
    for key, value in result.items():
        print(
            f"  {key.replace('_', ' ')}: {value:.3f}"
            if isinstance(value, float)
            else f"  {key.replace('_', ' ')}: {value}"
        )


def _quantize(options: Options) -> None:
    """Quantize a model file, with progress on stderr."""
    printed = -1

    def progress(done: int, total: int) -> None:
        nonlocal printed
        if (percent := 100 * done // max(total, 1)) > printed:
            printed = percent
            if sys.stderr is not None:
                print(f"\r{percent:3} %", end="", file=sys.stderr, flush=True)

    summary = quantize(find_model(options.source), Path(options.target), options.type, progress)
    print_status("")
    print(summary)


_COMMANDS = {
    "chat": chat,
    "complete": complete,
    "embed": embed,
    "rerank": rerank,
    "tokenize": _tokenize,
    "logits": _logits,
    "perplexity": _perplexity,
    "info": _info,
    "bench": _bench,
    "quantize": _quantize,
    "serve": serve,
}


# --- input and output ---------------------------------------------------------------------------


def _numbers(text: str, option: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise RequestError(
            f"{option} {text!r} is not a list of numbers.", "Write them as 1,2,3."
        ) from None


def _shown(name: str, value: object) -> str:
    if name.endswith("bytes") and isinstance(value, int):
        return f"{value / _GIGABYTE:.2f} GB"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
