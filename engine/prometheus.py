"""Prometheus text exposition of metrics, version 0.0.4.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from itertools import accumulate

from engine.messages import Histogram, MetricsRead

_HISTOGRAMS = (
    ("time_to_first_token_seconds", "first_token_seconds", "From the command to the first token."),
    ("time_per_token_seconds", "token_seconds", "Of a token after those of the first pass."),
    (
        "prefill_tokens_per_second",
        "prefill_tokens_per_second",
        "Of prompts, without cached tokens.",
    ),
    ("decode_tokens_per_second", "decode_tokens_per_second", "Of answers."),
)
_COUNTERS = (
    ("prompt_tokens_total", "prompt_tokens", "Tokens of prompts."),
    ("prompt_reused_tokens_total", "reused_tokens", "Tokens of prompts that were cached before."),
    ("generated_tokens_total", "generated_tokens", "Tokens of answers."),
    ("drafted_tokens_total", "drafted_tokens", "Tokens proposed by speculative decoding."),
    ("accepted_tokens_total", "accepted_tokens", "Drafted tokens that the model accepted."),
    ("paged_layer_bytes_total", "paged_layer_bytes", "Weights read from the disk for passes."),
)
_GAUGES = (
    ("answers_running", "running", "Answers in progress."),
    ("resident_memory_bytes", "resident_bytes", "Memory of the process."),
    ("device_memory_bytes", "device_bytes", "Memory of the process on other devices."),
)
_TIERS = ("active", "cached", "saved")


def prometheus_text(metrics: MetricsRead) -> str:
    """The metrics as Prometheus reads them; every name begins with `tokonoma_`."""
    lines: list[str] = []
    for name, field, about in _HISTOGRAMS:
        lines += _histogram(name, about, getattr(metrics, field))
    lines += _head("answers_total", "counter", "Answers that have ended, by reason.")
    lines += [
        f'tokonoma_answers_total{{reason="{_escaped(reason)}"}} {count}'
        for reason, count in metrics.answers
    ]
    for kind, rows in (("counter", _COUNTERS), ("gauge", _GAUGES)):
        for name, field, about in rows:
            lines += [*_head(name, kind, about), f"tokonoma_{name} {getattr(metrics, field)}"]
    lines += _head("kv_page_bytes", "gauge", "KV pages: in use, cached in memory, saved on disk.")
    lines += [
        f'tokonoma_kv_page_bytes{{tier="{tier}"}} {getattr(metrics, f"{tier}_page_bytes")}'
        for tier in _TIERS
    ]
    lines += _head("model_info", "gauge", "The loaded model.")
    lines += [f'tokonoma_model_info{{name="{_escaped(metrics.model)}"}} {int(bool(metrics.model))}']
    return "\n".join(lines) + "\n"


def _histogram(name: str, about: str, values: Histogram) -> list[str]:
    """Cumulative buckets, the sum and the count."""
    bounds = [*(f"{bound:.10g}" for bound in values.bounds), "+Inf"]
    counts = list(accumulate(values.counts))
    return [
        *_head(name, "histogram", about),
        *(
            f'tokonoma_{name}_bucket{{le="{bound}"}} {count}'
            for bound, count in zip(bounds, counts, strict=True)
        ),
        f"tokonoma_{name}_sum {values.sum!r}",
        f"tokonoma_{name}_count {counts[-1]}",
    ]


def _head(name: str, kind: str, about: str) -> list[str]:
    return [f"# HELP tokonoma_{name} {about}", f"# TYPE tokonoma_{name} {kind}"]


def _escaped(text: str) -> str:
    """A label value: backslash, quote and line feed are escaped."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
