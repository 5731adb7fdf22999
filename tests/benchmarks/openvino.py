"""Prefill beside OpenVINO GenAI, which reads the same GGUF files: pairs in one run.

Its package is not one of ours: install `openvino-genai` in an environment of its own and give the
Python of that. Both programs stay loaded and are asked in turns, so that a noisy machine favours
neither; figures are medians, and the ratio is the median of the ratios of pairs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from engine.loading.loader import load

PROMPT = 500  # tokens
ANSWER = 32
ROWS = {"SmolLM2-135M-Instruct.Q4_1.gguf": 1.1, "qwen3-1.7b-Q4_0.gguf": 1.4}  # wanted ratios

# Reads a line with token ids from its input, and prints the seconds to the first token and the
# tokens per second after it. Prefixes are not cached.
PEER = """
import json, sys
import numpy, openvino, openvino_genai
path, threads, answer = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
plan = openvino_genai.SchedulerConfig()
plan.enable_prefix_caching = False
pipe = openvino_genai.LLMPipeline(path, "CPU", scheduler_config=plan, INFERENCE_NUM_THREADS=threads)
print("ready", flush=True)
for line in sys.stdin:
    ids = numpy.array([json.loads(line)], dtype=numpy.int64)
    inputs = openvino_genai.TokenizedInputs(
        openvino.Tensor(ids), openvino.Tensor(numpy.ones_like(ids))
    )
    config = openvino_genai.GenerationConfig(max_new_tokens=answer, ignore_eos=True)
    metrics = pipe.generate(inputs, config).perf_metrics
    print(json.dumps([metrics.get_ttft().mean / 1e3, 1e3 / metrics.get_tpot().mean]), flush=True)
"""


def ours(path: Path, threads: int) -> Callable[[list[int]], tuple[float, float]]:
    """A function that returns the seconds of a prefill, and the tokens per second after it."""
    torch.set_num_threads(threads)
    model = load(path, context=2_048)

    def measured(ids: list[int]) -> tuple[float, float]:
        session = model.new_session()
        started = time.perf_counter()
        logits = session.read(ids)
        read = time.perf_counter()
        for _ in range(ANSWER):
            logits = session.step(int(logits.argmax()))
        return read - started, ANSWER / (time.perf_counter() - read)

    return measured


def compare(python: Path, path: Path, threads: int, pairs: int) -> str:
    """A row of the table."""
    command = [python, "-c", PEER, path, str(threads), str(ANSWER)]
    with subprocess.Popen(
        list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as peer:
        assert peer.stdin is not None
        assert peer.stdout is not None
        while (line := peer.stdout.readline()) and line.strip() != "ready":
            pass
        if not line:
            raise RuntimeError(f"OpenVINO did not load {path.name}.")
        mine = ours(path, threads)
        found: list[tuple[tuple[float, float], tuple[float, float]]] = []
        for number in range(pairs + 1):
            ids = [5 + (number * 7 + at * 13) % 4_000 for at in range(PROMPT)]
            own = mine(ids)
            peer.stdin.write(json.dumps(ids) + "\n")
            peer.stdin.flush()
            first, speed = json.loads(peer.stdout.readline())
            if number:  # the first pair warms both up
                found.append((own, (first, speed)))
        peer.stdin.close()
    ratios = [theirs[0] / own[0] for own, theirs in found]
    decode = [own[1] / theirs[1] for own, theirs in found]
    cells = (
        path.name,
        f"{statistics.median(PROMPT / own[0] for own, _ in found):.0f}",
        f"{statistics.median(PROMPT / theirs[0] for _, theirs in found):.0f}",
        f"{statistics.median(ratios):.2f}",
        f"{min(ratios):.2f} to {max(ratios):.2f}",
        f"{ROWS[path.name]:.1f}",
        f"{statistics.median(decode):.2f}",
    )
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path, help="that has openvino-genai")
    parser.add_argument("--models", type=Path, help="the folder of the GGUF files")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if options.python is None or options.models is None:
        print("Left out: OpenVINO is compared where --python and --models are given.")
        return 0
    print("| Model | Prefill, tokens/s | OpenVINO | Ratio | Range | Wanted | Decode ratio |")
    print("|---|---|---|---|---|---|---|")
    for name in ROWS:
        if not (options.models / name).is_file():
            print(f"{name} is not in {options.models}.", file=sys.stderr)
            continue
        path = options.models / name
        print(compare(options.python, path, options.threads, options.pairs), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
