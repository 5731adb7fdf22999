"""Output of the command line: the statistics of an answer, JSON and status lines."""

from __future__ import annotations

import json
import sys

from engine.cli.options import Options
from engine.loading.loader import LoadedModel
from engine.messages import Finished


def print_status(line: str) -> None:
    """Print a line to stderr; if that is None, `print` would use stdout instead."""
    if sys.stderr is not None:
        print(line, file=sys.stderr)


def report(
    options: Options, model: LoadedModel, text: str, tokens: list[int], finished: Finished
) -> None:
    """Print the statistics of an answer: as one JSON object, or as a line on stderr."""
    speed = finished.generated_tokens / finished.decode_seconds if finished.decode_seconds else 0.0
    if options.json:
        print_json(
            text=text,
            token_ids=tokens,
            prompt_tokens=finished.prompt_tokens,
            reused_tokens=finished.reused_tokens,
            generated_tokens=finished.generated_tokens,
            finish_reason=finished.reason.value,
            prefill_seconds=finished.prefill_seconds,
            decode_seconds=finished.decode_seconds,
            decode_tokens_per_second=speed,
            drafted_tokens=finished.drafted_tokens,
            accepted_tokens=finished.accepted_tokens,
            draft_gain=finished.draft_gain,
            forced_tokens=finished.forced_tokens,
            incomplete=finished.incomplete,
            backend=model.backends,
        )
        return
    print()
    cached = f" ({finished.reused_tokens} of them cached)" if finished.reused_tokens else ""
    print_status(
        f"[{finished.prompt_tokens} prompt{cached} + {finished.generated_tokens} generated tokens, "
        f"{speed:.1f} tokens/s{_drafts(finished)}, {finished.reason.value}"
        f"{', incomplete' if finished.incomplete else ''}]"
    )


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


def print_json(**fields: object) -> None:
    """Print one JSON object on a line of its own."""
    print(json.dumps(fields, ensure_ascii=False), flush=True)
