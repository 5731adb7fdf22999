"""Output of the command line: answers and their statistics, JSON and status lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine.cli.options import Options
from engine.messages import Finished, FinishReason, MetricsRead, ModelLoaded, TokenLogprobs
from engine.prometheus import prometheus_text

_ENDED = {FinishReason.REPETITION: "stopped: the model was repeating itself"}  # beside the values


def print_status(line: str) -> None:
    """Print a line to stderr; if that is None, `print` would use stdout instead."""
    if sys.stderr is not None:
        print(line, file=sys.stderr)


@dataclass(slots=True)
class Answer:
    """One answer to the prompt, as far as it has come."""

    text: str = ""
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finished: Finished | None = None


def report(options: Options, model: ModelLoaded, answers: Sequence[Answer]) -> None:
    """Print what has not been streamed of the answers, and their statistics.

    As one JSON object: the fields of the first answer, and `answers` with those of each if several
    were asked for. Otherwise one line for each answer on stderr.
    """
    if options.json:
        found = [_fields(options, model, answer) for answer in answers]
        print_json(**found[0], **({"answers": found} if options.answers > 1 else {}))
        return
    for number, answer in enumerate(answers, 1):
        if options.answers > 1:
            print(f"--- answer {number} of {options.answers} ---\n{answer.text}", end="")
        print(flush=True)
        for one in answer.logprobs:
            others = ", ".join(f"{top.text!r} {top.logprob:.3f}" for top in one.top)
            print(f"{one.logprob:>9.3f}  {one.text!r:<16} {others}", flush=True)
        _print_statistics(answer.finished)


def _fields(options: Options, model: ModelLoaded, answer: Answer) -> dict[str, object]:
    finished = answer.finished
    assert finished is not None
    return {
        "text": answer.text,
        "token_ids": list(finished.token_ids),
        "prompt_tokens": finished.prompt_tokens,
        "reused_tokens": finished.reused_tokens,
        "generated_tokens": finished.generated_tokens,
        "finish_reason": finished.reason.value,
        "prefill_seconds": finished.prefill_seconds,
        "decode_seconds": finished.decode_seconds,
        "decode_tokens_per_second": finished.tokens_per_second,
        "drafted_tokens": finished.drafted_tokens,
        "accepted_tokens": finished.accepted_tokens,
        "draft_gain": finished.draft_gain,
        "forced_tokens": finished.forced_tokens,
        "thought_tokens": finished.thought_tokens,
        "thought_seconds": finished.thought_seconds,
        "thought_budget_reached": finished.thought_budget_reached,
        "incomplete": finished.incomplete,
        "seed": finished.seed,
        "backend": model.kernels,
        **({"logprobs": [_logprobs(one) for one in answer.logprobs]} if options.logprobs else {}),
    }


def _logprobs(one: TokenLogprobs) -> dict[str, object]:
    top = [{"token_id": t.token, "text": t.text, "logprob": t.logprob} for t in one.top]
    return {"token_id": one.token, "text": one.text, "logprob": one.logprob, "top": top}


def _print_statistics(finished: Finished | None) -> None:
    assert finished is not None
    cached = f" ({finished.reused_tokens} of them cached)" if finished.reused_tokens else ""
    print_status(
        f"[{finished.prompt_tokens} prompt{cached} + {finished.generated_tokens} generated tokens"
        f"{_thoughts(finished)}, "
        f"{finished.tokens_per_second:.1f} tokens/s{_drafts(finished)}, "
        f"{_ENDED.get(finished.reason, finished.reason.value)}"
        f"{', incomplete' if finished.incomplete else ''}]"
    )


def _thoughts(finished: Finished) -> str:
    """How many tokens were thoughts, and whether these ended by themselves."""
    if not finished.thought_tokens:
        return ""
    reached = ", their budget" if finished.thought_budget_reached else ""
    return f" ({finished.thought_tokens} of thoughts{reached})"


def _drafts(finished: Finished) -> str:
    """What drafts gained, or that they were tried in vain."""
    if not finished.draft_gain:
        return ""
    if not finished.accepted_tokens:
        return " (drafts did not help)"
    return (
        f" ({finished.draft_gain:.1f} x from drafts: {finished.accepted_tokens} of "
        f"{finished.drafted_tokens} accepted)"
    )


def write_metrics(name: str, metrics: MetricsRead) -> None:
    """Write metrics to a file as Prometheus text, or to stderr for "-". Raises OSError."""
    text = prometheus_text(metrics)
    if name == "-":
        print_status(text.rstrip())
    else:
        Path(name).write_text(text, encoding="utf-8")


def print_json(**fields: object) -> None:
    """Print one JSON object on a line of its own."""
    print(json.dumps(fields, ensure_ascii=False), flush=True)
