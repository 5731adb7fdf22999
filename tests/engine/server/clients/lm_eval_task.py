"""EleutherAI's evaluation harness against the server: a local task of questions with choices.

python lm_eval_task.py ADDRESS MODEL DATA.jsonl OUTPUT.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import lm_eval

address, model, data, output = sys.argv[1:]
task = {
    "task": "local_choices",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": data}},
    "test_split": "test",
    "output_type": "multiple_choice",
    "doc_to_text": "{{question}}",
    "doc_to_target": "{{answer}}",
    "doc_to_choice": "{{choices}}",
    "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
}
options = {
    "model": model,
    "base_url": f"{address}/v1/completions",
    "tokenizer_backend": "remote",
}
found = lm_eval.simple_evaluate(
    model="local-completions", model_args=options, tasks=[task], log_samples=True
)
samples = sorted(found["samples"]["local_choices"], key=lambda one: one["doc_id"])
scores = [[float(score) for ((score, _),) in one["resps"]] for one in samples]
accuracy = found["results"]["local_choices"]["acc,none"]
Path(output).write_text(json.dumps({"scores": scores, "accuracy": accuracy}), encoding="utf-8")
