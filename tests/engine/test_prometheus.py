"""Prometheus text: read back by a parser of the format, it has every figure of the metrics."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from engine import Histogram, MetricsRead, prometheus_text

_SAMPLE = re.compile(
    r'(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<label>[a-z]+)="(?P<value>(?:[^"\\\n]|\\.)*)"\})? (?P<number>\S+)'
)
Samples = dict[tuple[str, str, str], float]


def parsed(text: str) -> tuple[Samples, dict[str, str]]:
    """Samples by name, label and value, and the type of each family; every line must be valid."""
    samples: Samples = {}
    types: dict[str, str] = {}
    helped: set[str] = set()
    assert text.endswith("\n")
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# HELP "):
            helped.add(line.split(" ")[2])
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types
            types[name] = kind
        else:
            match = _SAMPLE.fullmatch(line)
            assert match, line
            family = re.sub(r"_(bucket|sum|count)$", "", match["name"])
            assert types.get(family) == "histogram" or match["name"] in types
            value = re.sub(
                r"\\(.)", lambda one: {"n": "\n"}.get(one[1], one[1]), match["value"] or ""
            )
            key = match["name"], match["label"] or "", value
            assert key not in samples
            samples[key] = float(match["number"])
    assert helped == set(types)
    return samples, types


@given(
    name=st.text(max_size=20),
    counts=st.lists(st.integers(0, 1000), min_size=3, max_size=3),
    total=st.floats(0, 1e9),
    tokens=st.integers(0, 10**15),
)
def test_every_figure_is_read_back(name: str, counts: list[int], total: float, tokens: int) -> None:
    metrics = MetricsRead(
        1,
        model=name,
        token_seconds=Histogram((0.005, 0.1), tuple(counts), total),
        answers=(("end", 4), ("length", 2)),
        generated_tokens=tokens,
        cached_page_bytes=tokens,
    )
    samples, types = parsed(prometheus_text(metrics))
    assert all(family.startswith(("tokonoma_", "llamacpp:")) for family in types)
    assert samples["llamacpp:tokens_predicted_total", "", ""] == tokens
    assert types["llamacpp:n_busy_slots_per_decode"] == "gauge"
    first, second, third = counts
    bucket = "tokonoma_time_per_token_seconds_bucket"
    assert samples[bucket, "le", "0.005"] == first
    assert samples[bucket, "le", "0.1"] == first + second
    assert samples[bucket, "le", "+Inf"] == first + second + third
    assert samples["tokonoma_time_per_token_seconds_count", "", ""] == sum(counts)
    assert samples["tokonoma_time_per_token_seconds_sum", "", ""] == total
    assert samples["tokonoma_answers_total", "reason", "end"] == 4
    assert samples["tokonoma_generated_tokens_total", "", ""] == tokens
    assert samples["tokonoma_kv_page_bytes", "tier", "cached"] == tokens
    assert samples["tokonoma_model_info", "name", name] == int(bool(name))
    assert types["tokonoma_generated_tokens_total"] == "counter"
    assert types["tokonoma_kv_page_bytes"] == "gauge"
