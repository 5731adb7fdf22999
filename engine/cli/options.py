"""Command line parser: the options of every subcommand and their conversion to engine types.

Option names follow llama.cpp.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from engine.cli import sampling_options, serve_options
from engine.errors import RequestError
from engine.messages import (
    DEFAULT_CACHE,
    AdapterUse,
    CacheType,
    Detail,
    DraftKind,
    ImagePart,
    Pooling,
)
from engine.messages.reasoning_markers import resolved_thinking
from kernels.backends import NAMES

if TYPE_CHECKING:
    from argparse import _SubParsersAction  # pyright: ignore[reportPrivateUsage]

_MAX_DIGITS = 6  # of a number of layers, or of tokens
_THINKING = {"auto": None, "on": True, "off": False}

Options = argparse.Namespace
Run = Callable[[Options], None]


class Parser(argparse.ArgumentParser):
    """ArgumentParser that reports a bad option as RequestError instead of printing the usage."""

    def error(self, message: str) -> NoReturn:
        sentence = message[:1].upper() + message[1:].rstrip(".")
        raise RequestError(f"{sentence}.", f"Run `{self.prog} --help` for the options.")


class _NoPictures(argparse.Action):
    """--image of a command that reads texts only: it is refused in a sentence."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        name = parser.prog.rpartition(" ")[2]
        raise RequestError(f"`{name}` reads no pictures.", "Use `chat`, or leave --image out.")


def parser(about: str, runs: Mapping[str, Run]) -> Parser:
    """The parser of all subcommands; `runs` maps their names to functions."""
    installed = Path(sys.argv[0]).stem == "tokonoma-engine"
    prog = "tokonoma-engine" if installed else "python -m engine"
    made = Parser(prog=prog, description=about)
    commands = made.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    _add_answering(commands, runs)
    _add_embed(commands, runs)
    _add_tokenize(commands, runs)
    _add_logits(commands, runs)
    score = _command(commands, runs, "perplexity", "perplexity of a text")
    score.add_argument("-f", "--file", required=True, help="the text")
    info = _command(commands, runs, "info", "facts of a model file and its memory needs")
    info.add_argument(
        "--program",
        action="store_true",
        help="load the model and print the instructions of a layer of each kind instead",
    )
    speed = _command(commands, runs, "bench", "prefill and decode speed")
    speed.add_argument("-p", dest="prompt", type=int, default=512, help="prompt tokens")
    speed.add_argument("-n", dest="max_tokens", type=int, default=128, help="generated tokens")
    speed.add_argument("-d", dest="depth", type=int, default=0, help="tokens already in the cache")
    speed.add_argument("-r", dest="repetitions", type=int, default=3, help="repetitions")
    speed.add_argument(
        "--ngram",
        action="store_true",
        help="also answers that repeat most of a text, with and without drafts from it",
    )
    speed.add_argument(
        "--profile",
        action="store_true",
        help="time each kind of operation of a decode step and of a prefill chunk instead",
    )
    quantize = commands.add_parser(
        "quantize", help="convert a model file to another weight format", allow_abbrev=False
    )
    quantize.set_defaults(run=runs["quantize"], backend="auto")
    quantize.add_argument("source", help="the model file, preferably in F32, F16 or BF16")
    quantize.add_argument("target", help="the file to write")
    quantize.add_argument("--type", required=True, help="the format, such as Q4_K")
    _add_serve(commands, runs)
    for loading in (score, speed):
        _add_adapters(loading)
    for planning in (score, info):
        _add_cache(planning)
    _add_cache(speed, DEFAULT_CACHE)  # as in the app
    return made


def tokenizer(options: Options) -> Path | None:
    """The path of --tokenizer, if given."""
    return None if options.tokenizer is None else Path(options.tokenizer)


def cache_type(options: Options) -> CacheType:
    """The KV cache type of --cache."""
    return CacheType(options.cache)


def drafts(options: Options) -> DraftKind:
    """What drafts the tokens of an answer."""
    if options.draft is not None:
        return DraftKind.MODEL
    return DraftKind.LOOKUP if options.ngram else DraftKind.NONE


def placement(options: Options) -> list[tuple[str, int]]:
    """The backends of --placement and their numbers of layers; 0: the rest."""
    parts: list[tuple[str, int]] = []
    for part in filter(None, options.placement.split(",")):
        name, _, layers = part.partition("=")
        if not name or not (layers or "0").isdecimal() or len(layers) > _MAX_DIGITS:
            raise RequestError(
                f"--placement {options.placement!r} is not a list of backends and layers.",
                "Write cpu=12,torch or the like.",
            )
        parts.append((name, int(layers or "0")))
    return parts


def device(options: Options) -> str:
    """The device of --device; "": chosen automatically."""
    return "" if options.device == "auto" else options.device


def memory(options: Options) -> int:
    """The bytes of --memory; 0: what is free."""
    text: str = options.memory.strip().upper().removesuffix("B").removesuffix("I")
    if not text:
        return 0
    factor = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}.get(text[-1:], 1.0)
    try:
        size = float(text.rstrip("KMGT")) * factor
    except ValueError:
        size = 0.0
    if not 1.0 <= size < 1e18:
        raise RequestError(
            f"--memory {options.memory!r} is not an amount of memory.", "Write 2G or 800M."
        )
    return int(size)


def thinking(options: Options) -> tuple[bool | None, int | None]:
    """The switch and the budget of --thinking."""
    text = options.thinking
    if text in _THINKING:
        return resolved_thinking(_THINKING[text], None)
    if not (text.isascii() and text.isdigit()):
        raise RequestError(
            f"--thinking {text!r} is not a way to think.",
            "Write on, off, auto, or a number of tokens.",
        )
    return resolved_thinking(None, int(text))


def images(options: Options) -> tuple[ImagePart, ...]:
    """The pictures of every --image, in order."""
    text: str = options.image_detail
    detail: Detail | int
    if text in (known.value for known in Detail):
        detail = Detail(text)
    elif text.isascii() and text.isdigit() and 0 < len(text) <= _MAX_DIGITS and int(text):
        detail = int(text)
    else:
        raise RequestError(
            f"--image-detail {text!r} is no detail of a picture.",
            "Write low, standard, high, or a number of tokens.",
        )
    for name in options.image:
        if not Path(name).is_file():
            raise RequestError(f"There is no picture file {name!r}.", "Check the path of --image.")
    return tuple(ImagePart(Path(name), detail) for name in options.image)


def adapters(options: Options) -> list[AdapterUse]:
    """The adapters of every --lora, in order; a suffix such as `:0.5` is the scale."""
    return [_adapter(text) for text in options.lora]


def _adapter(text: str) -> AdapterUse:
    name, colon, scale = text.rpartition(":")
    if colon and name and not Path(text).exists():
        try:
            return AdapterUse(Path(name), float(scale))
        except ValueError:  # the colon belongs to a drive letter or file name
            pass
    return AdapterUse(Path(text))


def _add_answering(commands: _SubParsersAction[Parser], runs: Mapping[str, Run]) -> None:
    chat = _command(commands, runs, "chat", "one turn with the model's chat template")
    chat.add_argument("-p", "--prompt", required=True, help="the user's message")
    chat.add_argument(
        "--image",
        metavar="FILE",
        action="append",
        default=[],
        help="a picture before the message, for a model that sees; may be given several times",
    )
    chat.add_argument(
        "--image-detail",
        metavar="low|standard|high|N",
        default=Detail.STANDARD.value,
        help="how finely the model sees pictures, or the most tokens that one may become",
    )
    chat.add_argument("-S", "--system", default="", help="the system prompt")
    chat.add_argument(
        "--thinking",
        metavar="on|off|N",
        default="auto",
        help="whether the model thinks first, or for how many tokens at most, if it can",
    )
    complete = _command(commands, runs, "complete", "raw continuation of a text")
    complete.add_argument(
        "-p", "--prompt", default="", help="the text to continue; none: the text of --session"
    )
    complete.add_argument("--image", action=_NoPictures, help=argparse.SUPPRESS)
    for answering in (chat, complete):
        sampling_options.add(answering)
        answering.add_argument(
            "-n", "--max-tokens", type=int, default=0, help="0: until an end token"
        )
        answering.add_argument(
            "-N", "--answers", type=int, default=1, help="answers to the prompt, made together"
        )
        answering.add_argument(
            "--allow-loops",
            action="store_true",
            help="do not stop an answer that repeats itself again and again",
        )
        answering.add_argument(
            "--logprobs",
            metavar="K",
            type=int,
            default=0,
            help="log probabilities of each token and of the K most likely ones in its place",
        )
        _add_constraints(answering)
        _add_adapters(answering)
        _add_cache(answering)
        drafts = answering.add_mutually_exclusive_group()
        drafts.add_argument(
            "--ngram",
            action="store_true",
            help="draft tokens from earlier places of the text: faster where an answer repeats it",
        )
        drafts.add_argument(
            "--draft", metavar="MODEL", help="draft tokens with this small model of the same family"
        )
        answering.add_argument(
            "--metrics",
            metavar="FILE",
            help="write speeds, waiting times and memory as Prometheus text; -: to stderr",
        )
        answering.add_argument(
            "--session",
            metavar="FOLDER",
            help="continue with what this folder has in its cache, and save to it; made if missing",
        )


def _add_embed(commands: _SubParsersAction[Parser], runs: Mapping[str, Run]) -> None:
    embed = _command(commands, runs, "embed", "texts to vectors of length 1")
    source = embed.add_mutually_exclusive_group(required=True)
    source.add_argument("-p", "--prompt", help="the text")
    source.add_argument("--batch", metavar="FILE", help="a JSON file with an array of texts")
    embed.add_argument(
        "--pooling",
        choices=[kind.value for kind in Pooling if kind is not Pooling.NONE],
        help="how the states of all tokens become one vector; by default as the file says",
    )
    embed.add_argument("--image", action=_NoPictures, help=argparse.SUPPRESS)
    rerank = _command(commands, runs, "rerank", "scores of documents for a query")
    rerank.add_argument("--query", required=True, help="the query")
    rerank.add_argument(
        "--documents", metavar="FILE", required=True, help="a JSON file with an array of texts"
    )
    for reading in (embed, rerank):
        _add_adapters(reading)
        _add_cache(reading)


def _add_tokenize(commands: _SubParsersAction[Parser], runs: Mapping[str, Run]) -> None:
    tokenize = _command(commands, runs, "tokenize", "text to token ids")
    source = tokenize.add_mutually_exclusive_group(required=True)
    source.add_argument("-p", "--prompt", help="the text")
    source.add_argument("-f", "--file", help="a file that holds the text")
    source.add_argument(
        "--batch", help="a JSON file with an array of texts; prints one object each"
    )
    tokenize.add_argument("--no-bos", action="store_true", help="add no begin and end tokens")
    tokenize.add_argument("--no-parse-special", action="store_true", help="control tokens are text")


def _add_logits(commands: _SubParsersAction[Parser], runs: Mapping[str, Run]) -> None:
    logits = _command(commands, runs, "logits", "raw logits, highest first")
    prompt = logits.add_mutually_exclusive_group(required=True)
    prompt.add_argument("-p", "--prompt", help="the text")
    prompt.add_argument("--tokens", help="token ids instead: 1,2,3")
    logits.add_argument("--top", type=int, default=10, help="how many per position; 0: all")
    which = logits.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="after every position")
    which.add_argument("--positions", help="after these positions: 0,7")
    _add_adapters(logits)
    _add_cache(logits)


def _add_serve(commands: _SubParsersAction[Parser], runs: Mapping[str, Run]) -> None:
    text = "an HTTP server for other programs: OpenAI's, Anthropic's, llama.cpp's and Ollama's APIs"
    serve = commands.add_parser("serve", help=text, description=text, allow_abbrev=False)
    serve.set_defaults(run=runs["serve"], backend="auto")
    serve_options.add(serve)
    _add_adapters(serve)
    sampling_options.add(serve)


def _command(
    commands: _SubParsersAction[Parser], runs: Mapping[str, Run], name: str, description: str
) -> Parser:
    """A subcommand with the common options."""
    made = commands.add_parser(name, help=description, description=description, allow_abbrev=False)
    made.set_defaults(run=runs[name])
    made.add_argument("-m", "--model", required=True, help="a path, a model's name, or `starter`")
    made.add_argument(
        "--tokenizer", metavar="FILE", help="a tokenizer.json that replaces the model's vocabulary"
    )
    made.add_argument(
        "-c", "--context", type=int, default=0, help="tokens; 0: 8,192 to 32,768, by the memory"
    )
    made.add_argument(
        "--memory",
        metavar="SIZE",
        default="",
        help="the most that the model takes, such as 2G or 800M; layers that do not fit are read "
        "from the disk for every token. Without it, what is free",
    )
    made.add_argument("-t", "--threads", type=int, default=0, help="0: one per physical core")
    made.add_argument(
        "--device",
        default="auto",
        metavar="NAME",
        help="what the model runs on: auto, cpu, gpu, a certain one such as cuda:1, or split, the "
        "GPU with as many layers as fit. The processor has what a GPU cannot run",
    )
    made.add_argument(
        "--backend",
        default="auto",
        metavar="NAME",
        help=f"instead of --device, the kernels: {', '.join(NAMES)}, cuda:1, or torch:DEVICE such as "
        "torch:mps; what cannot be used is an error",
    )
    made.add_argument(
        "--placement",
        default="",
        metavar="NAME=LAYERS,...",
        help="split the layers over several backends, such as cpu=12,cuda; the last has the rest",
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    return made


def _add_constraints(parser: Parser) -> None:
    what = parser.add_mutually_exclusive_group()
    for flag, metavar, text in (
        ("--grammar", "FILE", "the answer matches a grammar: GBNF (.gbnf) or Lark (.lark)"),
        ("--json-schema", "FILE", "the answer is JSON that the schema in this file describes"),
        ("--regex", "R", "the answer matches a regular expression"),
        ("--choices", "A,B,C", "the answer is one of these"),
    ):
        what.add_argument(flag, metavar=metavar, help=text)


def _add_adapters(parser: Parser) -> None:
    parser.add_argument(
        "--lora",
        action="append",
        default=[],
        metavar="FILE[:SCALE]",
        help="an adapter, and how strongly it is applied; may be given several times",
    )


def _add_cache(parser: Parser, default: CacheType = CacheType.F32) -> None:
    parser.add_argument(
        "--cache",
        default=default.value,
        choices=[kind.value for kind in CacheType],
        help=f"storage type of the KV cache; f32 is exact, {default.value} the default",
    )
