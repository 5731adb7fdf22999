"""EleutherAI's evaluation harness against the server: its score is the engine's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine import Score, Scored
from serving import Served

pytestmark = pytest.mark.slow
lm_eval: Any = pytest.importorskip("lm_eval", reason="the package lm_eval is not installed")

QUESTIONS = [
    ("the quick brown", ["fox jumps over", "tree sleeps", "answer"]),
    ("hello there, how", ["are you today?", "dog under the old tree", "fox"]),
    ("one two three", ["four five", "the lazy dog", "question"]),
    ("this is the answer", ["to that question.", "brown fox", "hello"]),
]


def sum_of(served: Served, question: str, choice: str) -> float:
    """The log probability of a choice by the engine itself."""
    whole = served.post("/tokenize", {"content": f"{question} {choice}"})["tokens"]
    before = len(served.post("/tokenize", {"content": question})["tokens"])
    found = served.ask(Score(tuple(whole)), Scored)
    return sum(one.logprob for one in found.tokens[before:])


def test_a_local_task_has_the_engines_own_score(served: Served, tmp_path: Path) -> None:
    from tqdm import tqdm

    rows = [{"question": ask, "choices": given, "answer": 0} for ask, given in QUESTIONS]
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(json.dumps(row) for row in rows))
    task = {
        "task": "local_choices",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{answer}}",
        "doc_to_choice": "{{choices}}",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    }
    tqdm.monitor_interval = 0  # else it leaves a thread
    address = f"{served.server.address}/v1/completions"
    found = lm_eval.simple_evaluate(
        model="local-completions",
        model_args={"model": "tiny-served", "base_url": address, "tokenizer_backend": "remote"},
        tasks=[task],
        log_samples=True,
    )
    samples = sorted(found["samples"]["local_choices"], key=lambda one: one["doc_id"])
    for (question, choices), sample in zip(QUESTIONS, samples, strict=True):
        scores = [float(score) for ((score, _),) in sample["resps"]]
        own = [sum_of(served, question, choice) for choice in choices]
        assert scores == pytest.approx(own, abs=1e-6)
    best = [
        max(range(len(choices)), key=lambda at: sum_of(served, question, choices[at])) == 0
        for question, choices in QUESTIONS
    ]
    assert found["results"]["local_choices"]["acc,none"] == sum(best) / len(best)
