"""The subcommands that measure: logits, perplexity of a text, speed."""

from __future__ import annotations

import math
from pathlib import Path

from engine.cli import options as options_of
from engine.cli.client import Client
from engine.cli.drafts import lookup_bench
from engine.cli.files import read_text
from engine.cli.options import Options
from engine.cli.output import print_json
from engine.errors import RequestError
from engine.messages import (
    AdapterUse,
    ComputeLogits,
    LogitsComputed,
    MeasureSpeed,
    Score,
    Scored,
    SpeedMeasured,
    Tokenize,
    Tokenized,
)

_PERPLEXITY_CONTEXT = 512
_LOOKUP_CONTEXT = 1_024  # of `bench --ngram`: its text has 300 tokens, or more with few words


def logits(options: Options) -> None:
    """Print the highest logits after tokens of a text."""
    if options.top < 0:
        raise RequestError(f"--top is {options.top}.", "Give 0 for all logits, or more.")
    given = None if options.tokens is None else _numbers(options.tokens, "--tokens")
    with Client(options, ids_only=given is not None) as client:
        ids = given if given is not None else _tokens(client, options.prompt)
        if not ids:
            raise RequestError("The prompt is empty.", "Give -p with a text, or --tokens 1,2,3.")
        positions = _positions(options, len(ids))
        request = ComputeLogits(
            tuple(ids),
            tuple(positions),
            options.top,
            with_pieces=not options.json,
            adapters=tuple(options_of.adapters(options)),
        )
        rows = client.result(request, LogitsComputed).rows
    if options.json:
        print_json(
            positions=[
                {"position": at, "token_ids": row.ids, "logits": row.logits}
                for at, row in zip(positions, rows, strict=True)
            ]
        )
        return
    for at, row in zip(positions, rows, strict=True):
        print(f"after position {at}:")
        for token, value, piece in zip(row.ids, row.logits, row.pieces, strict=True):
            print(f"{token:>9} {value:>12.5f}  {piece!r}")


def perplexity(options: Options) -> None:
    """Print the perplexity of a text and the number of tokens scored."""
    context = options.context = options.context or _PERPLEXITY_CONTEXT
    if context < 4:
        raise RequestError(f"A context of {context} is too short.", "Give -c 512 or so.")
    text = read_text(Path(options.file))
    with Client(options) as client:
        adapters = tuple(options_of.adapters(options))
        value, tokens = _perplexity(client, text, context, adapters)
    if options.json:
        print_json(perplexity=value, tokens=tokens)
    else:
        print(f"perplexity {value:.4f} over {tokens} tokens at context {context}")


def bench(options: Options) -> None:
    """Print prefill and decode speed, and the bandwidth that decode achieves."""
    needed = options.depth + max(options.prompt, options.max_tokens)
    text = _LOOKUP_CONTEXT + options.max_tokens if options.ngram else 0
    options.context = options.context or max(needed, text)
    adapters = tuple(options_of.adapters(options))
    request = MeasureSpeed(
        options.prompt, options.max_tokens, options.depth, options.repetitions, adapters
    )
    with Client(options, ids_only=not options.ngram) as client:  # the prompt is random ids
        model, found = client.model, client.result(request, SpeedMeasured)
        read = found.decode_tokens_per_second * found.bytes_per_token / 1e9
        bandwidth, offloaded = found.bandwidth / 1e9, found.offloaded_bytes_per_token
        result: dict[str, object] = {
            "prefill_tokens_per_second": found.prefill_tokens_per_second,
            "decode_tokens_per_second": found.decode_tokens_per_second,
            "gigabytes_per_second": read,
            "bandwidth_share": read / bandwidth,
            "read_bandwidth_gigabytes_per_second": bandwidth,
            **({} if offloaded is None else {"offloaded_bytes_per_token": offloaded}),
            "kernels": model.kernels,
            "threads": found.threads,
            "cache": model.cache.value,
            "prompt_tokens": options.prompt,
            "generated_tokens": options.max_tokens,
            "depth": options.depth,
        }
        if options.ngram:
            result |= lookup_bench(client, options.max_tokens, options.repetitions, adapters)
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


def _perplexity(
    client: Client, text: str, context: int, adapters: tuple[AdapterUse, ...]
) -> tuple[float, int]:
    """Perplexity of `text` and the number of tokens scored, as llama.cpp's tool computes it.

    The text is split into windows of `context` tokens; each begins with BOS if the model uses one,
    and only the second half of a window is scored. Raises RequestError when the text is shorter
    than two windows.

    Source: https://github.com/ggml-org/llama.cpp/blob/b6000/tools/perplexity/perplexity.cpp
    """
    tokens = _tokens(client, text)
    if len(tokens) < 2 * context:
        raise RequestError(
            f"The text has {len(tokens)} tokens; at context {context} it must have {2 * context}.",
            "Give a longer text or a shorter context.",
        )
    frame = client.result(Tokenize("", adds_special=True, with_pieces=True), Tokenized)
    has_begin = frame.pieces[:1] == (client.model.begin,)
    first, loss, scored = context // 2, 0.0, 0
    for start in range(0, len(tokens) - context + 1, context):
        window = tokens[start : start + context]
        if has_begin:
            window[0] = frame.ids[0]
        request = Score(tuple(window), 0, adapters, start=first + 1)
        found = client.result(request, Scored).tokens
        loss -= sum(one.logprob for one in found)
        scored += len(found)
    return math.exp(loss / scored), scored


def _tokens(client: Client, text: str) -> list[int]:
    """The tokens of a text as of a prompt."""
    return list(client.result(Tokenize(text, adds_special=True), Tokenized).ids)


def _positions(options: Options, length: int) -> list[int]:
    """The positions of --all or --positions; the last one without them."""
    if options.all:
        return list(range(length))
    return [length - 1] if options.positions is None else _numbers(options.positions, "--positions")


def _numbers(text: str, option: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise RequestError(
            f"{option} {text!r} is not a list of numbers.", "Write them as 1,2,3."
        ) from None
