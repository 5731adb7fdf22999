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

from engine.cli import options as options_of
from engine.cli.answer import chat, complete
from engine.cli.describe import describe
from engine.cli.embed import embed, rerank
from engine.cli.files import read_text, read_texts
from engine.cli.measure import bench, logits, perplexity
from engine.cli.options import Options
from engine.cli.output import print_json, print_status
from engine.cli.profile import profile
from engine.cli.program import show_program
from engine.cli.quantize import quantize
from engine.cli.serve import serve
from engine.errors import EngineError, RequestError
from engine.frontend.tokenizer import vocabulary
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.gguf.reader import GGUFFile
from engine.loading.library import find_model
from engine.machine.device import memory_error
from kernels.backends import choose, instruction_set_refusal

_GIGABYTE = 1e9


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


def _info(options: Options) -> None:
    if options.program:
        show_program(options)
        return
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
    (profile if options.profile else bench)(options)


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
    "logits": logits,
    "perplexity": perplexity,
    "info": _info,
    "bench": _bench,
    "quantize": _quantize,
    "serve": serve,
}


def _shown(name: str, value: object) -> str:
    if name.endswith("bytes") and isinstance(value, int):
        return f"{value / _GIGABYTE:.2f} GB"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
