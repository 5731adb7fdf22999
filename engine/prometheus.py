"""Prometheus text exposition of metrics, version 0.0.4.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections.abc import Callable
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
    (
        "offloaded_layer_bytes_total",
        "offloaded_layer_bytes",
        "Weights read from the disk for passes.",
    ),
)
_GAUGES = (
    ("answers_running", "running", "Answers in progress."),
    ("resident_memory_bytes", "resident_bytes", "Memory of the process."),
    ("device_memory_bytes", "device_bytes", "Memory of the process on other devices."),
)
# The names of llama.cpp's server, so that dashboards made for it go on: type, value and help.
_LLAMA: tuple[tuple[str, str, Callable[[MetricsRead], float], str], ...] = (
    ("prompt_tokens_total", "counter", lambda m: _read(m), "Tokens of prompts that were computed."),
    (
        "prompt_tokens_cached_total",
        "counter",
        lambda m: m.reused_tokens,
        "Tokens that were cached.",
    ),
    ("prompt_seconds_total", "counter", lambda m: m.prefill_seconds, "Time for prompts."),
    ("tokens_predicted_total", "counter", lambda m: m.generated_tokens, "Tokens of answers."),
    ("tokens_predicted_seconds_total", "counter", lambda m: m.decode_seconds, "Time for answers."),
    ("n_decode_total", "counter", lambda m: m.passes, "Passes of the model."),
    ("n_tokens_max", "counter", lambda m: m.longest_context, "Tokens of the longest text."),
    (
        "spec_decode_num_draft_tokens_total",
        "counter",
        lambda m: m.drafted_tokens,
        "Tokens drafted.",
    ),
    (
        "spec_decode_num_accepted_tokens_total",
        "counter",
        lambda m: m.accepted_tokens,
        "Drafted tokens that the model accepted.",
    ),
    ("spec_decode_num_drafts_total", "counter", lambda m: m.drafts, "Drafts that were verified."),
    (
        "prompt_tokens_seconds",
        "gauge",
        lambda m: _ratio(m.prompt_tokens - m.reused_tokens, m.prefill_seconds),
        "Tokens of prompts in a second, on average.",
    ),
    (
        "predicted_tokens_seconds",
        "gauge",
        lambda m: _ratio(m.generated_tokens, m.decode_seconds),
        "Tokens of answers in a second, on average.",
    ),
    ("requests_processing", "gauge", lambda m: m.running, "Answers in progress."),
    ("requests_deferred", "gauge", lambda m: m.waiting, "Requests that wait."),
    (
        "n_busy_slots_per_decode",
        "gauge",
        lambda m: _ratio(m.pass_rows, m.passes),
        "Answers in a pass, on average.",
    ),
)
_TIERS = ("active", "cached", "saved")


def prometheus_text(metrics: MetricsRead) -> str:
    """The metrics as Prometheus reads them.

    Names begin with `tokonoma_`, and once more with `llamacpp:` what llama.cpp's server has too.
    """
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
    for name, kind, value, about in _LLAMA:
        lines += _head(name, kind, about, "llamacpp:")
        lines.append(f"llamacpp:{name} {value(metrics)!r}")
    return "\n".join(lines) + "\n"


def _read(metrics: MetricsRead) -> int:
    """Tokens that were computed and not generated: of prompts, and of texts to embed."""
    return metrics.prompt_tokens - metrics.reused_tokens + metrics.embedded_tokens


def _ratio(amount: float, by: float) -> float:
    return amount / by if by else 0.0


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


def _head(name: str, kind: str, about: str, prefix: str = "tokonoma_") -> list[str]:
    return [f"# HELP {prefix}{name} {about}", f"# TYPE {prefix}{name} {kind}"]


def _escaped(text: str) -> str:
    """A label value: backslash, quote and line feed are escaped."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
