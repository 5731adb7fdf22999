"""The headless command line: chat, complete, tokenize, logits, perplexity, info, bench."""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

# libgomp reads this when torch is loaded: spinning threads stall a busy desktop.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if __name__ == "__main__":
    # Until `main` has a say, Ctrl-C ends the program without a page from inside torch.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import torch

from engine.chat import prompt_ids
from engine.device import memory_error
from engine.errors import EngineError, RequestError
from engine.generate import Answer
from engine.gguf import GGUFFile
from engine.library import find_model
from engine.loader import LoadedModel, load
from engine.measure import bench, describe, logits_at, perplexity
from engine.messages import Finished, Role, Sampling, Text, Turn
from engine.tokenizer import Tokenizer
from kernels import ops

if TYPE_CHECKING:
    from argparse import _SubParsersAction  # pyright: ignore[reportPrivateUsage]

Options = argparse.Namespace
_GIGABYTE = 1e9


class Parser(argparse.ArgumentParser):
    """Refuses a bad option with one sentence and a remedy instead of a page of usage."""

    def error(self, message: str) -> NoReturn:
        sentence = message[:1].upper() + message[1:].rstrip(".")
        raise RequestError(f"{sentence}.", f"Run `{self.prog} --help` for the options.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit status."""
    try:
        _print_any_text()
        options = _parser().parse_args(arguments)
        _run(options)
        sys.stdout.flush()
    except EngineError as error:
        return _refuse(error)
    except BrokenPipeError:
        # Whoever read our output has left; there is nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        at = f" ({error.filename})" if error.filename else ""
        what = f"The system refused: {error.strerror or error}{at}."
        return _refuse(RequestError(what, "Check the path, the disk and the free memory."))
    except (MemoryError, RuntimeError) as error:
        refusal = memory_error(error)
        if refusal is None:
            raise
        return _refuse(refusal)
    except KeyboardInterrupt:
        return 130
    return 0


def _print_any_text() -> None:
    """UTF-8 whatever the locale: what a model says cannot be known beforehand."""
    if sys.stdout is None:  # closed by whoever started us
        raise RequestError("There is no standard output to print to.", "Send it to a file instead.")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _refuse(error: EngineError) -> int:
    _tell(f"tokonoma: {error.sentence}")
    return 1


def _tell(line: str) -> None:
    """One line for people; `print` would put it among the answer if stderr were closed."""
    if sys.stderr is not None:
        print(line, file=sys.stderr)


def _run(options: Options) -> None:
    chosen = os.environ.get("KERNELS", "") if options.backend == "auto" else options.backend
    if chosen and chosen not in ops.BACKENDS:
        raise RequestError(
            f"There are no kernels called {chosen!r} in this build.",
            f"Set KERNELS to one of these, or unset it: {', '.join(ops.BACKENDS)}.",
        )
    with ops.only(chosen) if chosen else nullcontext():
        options.run(options)


# --- subcommands --------------------------------------------------------------------------------


def _chat(options: Options) -> None:
    model = _load(options)
    system = (Turn(Role.SYSTEM, options.system),) if options.system else ()
    text = model.template.render((*system, Turn(Role.USER, options.prompt)))
    _answer(options, model, prompt_ids(model.tokenizer, text))


def _complete(options: Options) -> None:
    model = _load(options)
    _answer(options, model, model.tokenizer.encode(options.prompt))


def _answer(options: Options, model: LoadedModel, prompt: list[int]) -> None:
    """Stream an answer to stdout; with --json, print one object at its end.

    Ctrl-C ends the answer early; what there is of it is printed all the same.
    """
    pieces: list[str] = []
    finished: Finished | None = None
    with _interruptible() as interrupted:
        answer = Answer(
            model.new_session(),
            model.tokenizer,
            prompt,
            _sampling(options),
            max_tokens=options.max_tokens,
            cancelled=interrupted,
        )
        for event in answer.events():
            if isinstance(event, Text):
                pieces.append(event.text)
                if not options.json:
                    print(event.text, end="", flush=True)
            elif isinstance(event, Finished):
                finished = event
    assert finished is not None
    _report(options, model, "".join(pieces), answer.tokens, finished)
    if interrupted():
        raise KeyboardInterrupt


def _report(
    options: Options, model: LoadedModel, text: str, tokens: list[int], finished: Finished
) -> None:
    """What an answer came to: one JSON object, or a line on stderr for people."""
    speed = finished.generated_tokens / finished.decode_seconds if finished.decode_seconds else 0.0
    if options.json:
        _print_json(
            text=text,
            token_ids=tokens,
            prompt_tokens=finished.prompt_tokens,
            generated_tokens=finished.generated_tokens,
            finish_reason=finished.reason.value,
            prefill_seconds=finished.prefill_seconds,
            decode_seconds=finished.decode_seconds,
            decode_tokens_per_second=speed,
            backend=model.backends,
        )
        return
    print()
    _tell(
        f"[{finished.prompt_tokens} prompt + {finished.generated_tokens} generated tokens, "
        f"{speed:.1f} tokens/s, {finished.reason.value}]"
    )


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Tells whether Ctrl-C was pressed; pressed a second time, it ends the program at once."""
    pressed = threading.Event()

    def note(*_: object) -> None:
        pressed.set()
        signal.signal(signal.SIGINT, before)

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, note)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def _tokenize(options: Options) -> None:
    with GGUFFile.open(find_model(options.model)) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    if options.batch is not None:
        for text in _batch(Path(options.batch)):
            _print_json(**_tokens(tokenizer, text, options))
        return
    text = options.prompt if options.file is None else _read(Path(options.file))
    tokens = _tokens(tokenizer, text, options)
    if options.json:
        _print_json(**tokens)
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
    model = _load(options)
    ids = _ids(options, model)
    positions = _positions(options, len(ids))
    if options.top < 0:
        raise RequestError(f"--top is {options.top}.", "Give 0 for the whole row, or more.")
    result: list[dict[str, Any]] = []
    for at, row in zip(positions, logits_at(model.new_session(), ids, positions), strict=True):
        values, tokens = torch.sort(row, descending=True, stable=True)  # [V] each
        top = options.top or len(row)
        result.append(
            {"position": at, "token_ids": tokens[:top].tolist(), "logits": values[:top].tolist()}
        )
    if options.json:
        _print_json(positions=result)
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
    value, tokens = perplexity(_load(options), _read(Path(options.file)), options.context)
    if options.json:
        _print_json(perplexity=value, tokens=tokens)
    else:
        print(f"perplexity {value:.4f} over {tokens} tokens at context {options.context}")


def _info(options: Options) -> None:
    facts = describe(find_model(options.model), options.context)
    if options.json:
        _print_json(**facts)
        return
    for key, value in facts.items():
        if isinstance(value, list):
            print(f"{key}:")
            for row in value:
                print(
                    f"  {row['format']:<6} {row['tensors']:>5} tensors {row['bytes']:>15,} bytes  {row['words']}"
                )
        elif isinstance(value, dict):
            print(f"{key}:")
            for name, entry in value.items():
                print(f"  {name}: {_words(name, entry)}")
        else:
            print(f"{key}: {_words(key, value)}")


def _bench(options: Options) -> None:
    options.context = options.context or options.depth + max(options.prompt, options.max_tokens)
    model = _load(options)
    result = bench(
        model,
        prompt=options.prompt,
        generated=options.max_tokens,
        depth=options.depth,
        repetitions=options.repetitions,
    )
    if options.json:
        _print_json(model=model.name, **result)
        return
    print(f"{model.name}, {model.layout}")
    for key, value in result.items():
        print(
            f"  {key.replace('_', ' ')}: {value:.3f}"
            if isinstance(value, float)
            else f"  {key.replace('_', ' ')}: {value}"
        )


# --- options ------------------------------------------------------------------------------------


def _parser() -> Parser:
    parser = Parser(prog="python -m engine", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    chat = _command(commands, "chat", _chat, "one turn through the model's own chat template")
    chat.add_argument("-p", "--prompt", required=True, help="what to say")
    chat.add_argument("-S", "--system", default="", help="the system prompt")
    complete = _command(commands, "complete", _complete, "raw continuation of a text")
    complete.add_argument("-p", "--prompt", required=True, help="the text to continue")
    for answering in (chat, complete):
        _add_sampling(answering)

    tokenize = _command(commands, "tokenize", _tokenize, "text to token ids")
    source = tokenize.add_mutually_exclusive_group(required=True)
    source.add_argument("-p", "--prompt", help="the text")
    source.add_argument("-f", "--file", help="a file that holds the text")
    source.add_argument(
        "--batch", help="a JSON file with an array of texts; prints one object each"
    )
    tokenize.add_argument("--no-bos", action="store_true", help="add no begin and end tokens")
    tokenize.add_argument("--no-parse-special", action="store_true", help="control tokens are text")

    logits = _command(commands, "logits", _logits, "raw logits, highest first")
    prompt = logits.add_mutually_exclusive_group(required=True)
    prompt.add_argument("-p", "--prompt", help="the text")
    prompt.add_argument("--tokens", help="token ids instead: 1,2,3")
    logits.add_argument("--top", type=int, default=10, help="how many a position; 0: the whole row")
    which = logits.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="after every position")
    which.add_argument("--positions", help="after these positions: 0,7")

    score = _command(commands, "perplexity", _perplexity, "perplexity of a text")
    score.add_argument("-f", "--file", required=True, help="the text")
    _command(commands, "info", _info, "what a file holds and what it needs")
    speed = _command(commands, "bench", _bench, "prefill and decode speed")
    speed.add_argument("-p", dest="prompt", type=int, default=512, help="prompt tokens")
    speed.add_argument("-n", dest="max_tokens", type=int, default=128, help="generated tokens")
    speed.add_argument("-d", dest="depth", type=int, default=0, help="tokens already in the cache")
    speed.add_argument("-r", dest="repetitions", type=int, default=3, help="repetitions")
    return parser


def _command(
    commands: _SubParsersAction[Parser], name: str, run: Callable[[Options], None], words: str
) -> Parser:
    """A subcommand with the options all of them share."""
    parser = commands.add_parser(name, help=words, description=words, allow_abbrev=False)
    parser.set_defaults(run=run)
    parser.add_argument("-m", "--model", required=True, help="a path, a model's name, or `starter`")
    parser.add_argument("-c", "--context", type=int, default=0, help="tokens; 0: the model's own")
    parser.add_argument("-t", "--threads", type=int, default=0, help="0: one per physical core")
    parser.add_argument("--backend", default="auto", choices=("auto", *ops.BACKENDS))
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _add_sampling(parser: Parser) -> None:
    default = Sampling()
    for flag, name, kind, words in (
        ("--temp", "temperature", float, "0: always the most likely"),
        ("--top-k", "top_k", int, "0: off"),
        ("--top-p", "top_p", float, "1: off"),
        ("--min-p", "min_p", float, "0: off"),
        ("--typical", "typical_p", float, "1: off"),
        ("--repeat-penalty", "repeat_penalty", float, "1: off"),
        ("--frequency-penalty", "frequency_penalty", float, "0: off"),
        ("--presence-penalty", "presence_penalty", float, "0: off"),
        ("--seed", "seed", int, "-1: a fresh one"),
    ):
        parser.add_argument(flag, dest=name, type=kind, default=getattr(default, name), help=words)
    parser.add_argument("-n", "--max-tokens", type=int, default=0, help="0: until the model ends")


def _sampling(options: Options) -> Sampling:
    fields = {name: getattr(options, name) for name in asdict(Sampling()) if hasattr(options, name)}
    return Sampling(**fields)


# --- input and output ---------------------------------------------------------------------------


def _load(options: Options) -> LoadedModel:
    return load(find_model(options.model), context=options.context, threads=options.threads)


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")  # line ends stay as they are
    except UnicodeDecodeError:
        raise RequestError(f"The file {path} is not UTF-8 text.", "Convert it first.") from None
    except OSError as error:
        raise RequestError(
            f"The file {path} cannot be read: {error.strerror}.", "Check the path."
        ) from None


def _batch(path: Path) -> list[str]:
    try:
        texts = json.loads(_read(path).removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        texts = None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise RequestError(
            f"The file {path} is not a JSON array of texts.", 'Write ["one", "two"].'
        )
    return texts


def _numbers(text: str, option: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise RequestError(
            f"{option} {text!r} is not a list of numbers.", "Write them as 1,2,3."
        ) from None


def _print_json(**fields: object) -> None:
    print(json.dumps(fields, ensure_ascii=False), flush=True)


def _words(name: str, value: object) -> str:
    if name.endswith("bytes") and isinstance(value, int):
        return f"{value / _GIGABYTE:.2f} GB"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    status = main()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(status)
