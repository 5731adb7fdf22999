"""Speed of a model that does not fit in its memory, for several limits, and the bytes it reads.

Each limit is a separate process. Greedy ids are compared with those of the model without a limit;
the disk's speed is measured at each load, past the cache of the system.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.path.insert(0, str(Path(__file__).parents[2]))

from engine.loading import placement
from engine.loading.loader import load
from engine.loading.memory import NO_OFFLOADING
from engine.machine.device import resident_memory
from engine.messages import CacheType

TABLE = Path(__file__).with_suffix(".md")
CONTEXT, PROMPT = 4_096, 64


def measure(path: Path, limit: int, tokens: int, *, by_layer: bool = False) -> dict[str, Any]:
    """Load with a limit (0: none), read a prompt and decode; what was read and how fast.

    A mixture is read by expert, or `by_layer` as other models are.
    """
    if by_layer:
        placement.expert_bytes = lambda *operands: None
    before, started = resident_memory(), time.perf_counter()
    model = load(path, memory_bytes=limit, cache=CacheType.F16, context=CONTEXT)
    loaded = time.perf_counter() - started
    session, streamer = model.new_session(), model.decoder.streamer
    offloading = model.plan.offloading or NO_OFFLOADING
    started = time.perf_counter()
    logits = session.read(list(range(100, 100 + PROMPT)))
    prefill = time.perf_counter() - started
    read, started, ids = streamer.read_bytes if streamer else 0, time.perf_counter(), list[int]()
    for _ in range(tokens):
        ids.append(int(logits.argmax()))
        logits = session.step(ids[-1])
    seconds = time.perf_counter() - started
    return {
        "limit": limit,
        "layers": len(model.decoder.blocks),
        "offloaded": len(offloading.layers),
        "slots": offloading.expert_slots,
        "planned": model.plan.total_bytes,
        "resident": resident_memory() - before,
        "load_seconds": loaded,
        "prefill": PROMPT / prefill,
        "decode": tokens / seconds,
        "read": ((streamer.read_bytes - read) // tokens) if streamer else 0,
        "predicted": offloading.token_bytes,
        "predicted_seconds": offloading.token_seconds,
        "ids": ids,
    }


def main() -> int:
    """Measure each limit, the model without one last."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--limits", type=float, nargs="+", default=[2.0, 3.0, 4.0], help="in GB")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)  # a limit in bytes, as JSON
    parser.add_argument("--write", action="store_true", help=f"replace the part of {TABLE.name}")
    parser.add_argument("--compare", action="store_true", help="page a mixture by layer, too")
    parser.add_argument("--by-layer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        operands = options.model, options.one, options.tokens
        print(json.dumps(measure(*operands, by_layer=options.by_layer)))
        return 0
    rows: list[dict[str, Any]] = []
    limits = [round(size * 1e9) for size in options.limits]
    runs = [(one, by_layer) for one in limits for by_layer in (True, False)[not options.compare :]]
    for limit, by_layer in [*runs, (0, False)]:
        command = [sys.executable, __file__, str(options.model), "--one", str(limit)]
        command += ["--tokens", str(options.tokens), *(["--by-layer"] if by_layer else [])]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            print(ran.stderr.strip().splitlines()[-1], file=sys.stderr)
            return 1
        rows.append(json.loads(ran.stdout.splitlines()[-1]))
        print(_row(rows[-1], rows[-1]["ids"]))
    if any(row["ids"] != rows[-1]["ids"] for row in rows):
        print("The answers differ.", file=sys.stderr)
        return 1
    text = _table(options.model.name, rows)
    print(text)
    if options.write:
        title = text.splitlines()[0]
        parts = TABLE.read_text(encoding="utf-8").split("\n## ")
        kept = [part for part in parts if not f"## {part}".startswith(f"{title}\n")]
        whole = "\n## ".join([*(part.rstrip("\n") + "\n" for part in kept), text[len("## ") :]])
        TABLE.write_text(whole, encoding="utf-8")
    return 0


def _table(name: str, rows: list[dict[str, Any]]) -> str:
    head = (
        f"## {name}\n\n{rows[0]['layers']} layers, a context of {CONTEXT:,} tokens with a 16-bit "
        f"cache. All rows gave the same {len(rows[0]['ids'])} greedy ids.\n\n"
        "| Memory limit | on disk | planned | took | load | prefill | decode | read per token "
        "| predicted | time predicted | measured |\n"
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
    )
    return head + "".join(f"{_row(row, rows[-1]['ids'])}\n" for row in rows)


def _row(row: dict[str, Any], wanted: list[int]) -> str:
    limit = f"{row['limit'] / 1e9:.1f} GB" if row["limit"] else "none"
    cells = (
        limit,
        f"experts, {row['slots']} in memory" if row["slots"] else f"{row['offloaded']} layers",
        f"{row['planned'] / 1e9:.2f} GB",
        f"{row['resident'] / 1e9:.2f} GB",
        f"{row['load_seconds']:.1f} s",
        f"{row['prefill']:.1f} t/s",
        f"{row['decode']:.2f} t/s",
        f"{row['read'] / 1e9:.2f} GB" if row["read"] else "",
        f"{row['predicted'] / 1e9:.2f} GB" if row["predicted"] else "",
        f"{row['predicted_seconds']:.2f} s" if row["predicted_seconds"] else "",
        f"{1 / row['decode']:.2f} s",
    )
    return f"| {' | '.join(cells)} |" + ("" if row["ids"] == wanted else " other ids")


if __name__ == "__main__":
    sys.exit(main())
