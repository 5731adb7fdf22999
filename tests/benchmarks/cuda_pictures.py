"""Pictures on a GPU: encoders and texts after a picture against the reference, and their speed.

    python3 tests/benchmarks/cuda_pictures.py

A row for each check, in about a minute: errors are squared and normalized, "FAILED" ends a row that
is wrong, and the exit status says whether there is one. It needs torch with CUDA, Triton, numpy and
the package gguf. Without a GPU the same path runs in Triton's interpreter, without the speed.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "build" / "device_packages"
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]
if PACKAGES.exists():
    sys.path.append(str(PACKAGES))

import torch

HAS_GPU = torch.cuda.is_available()
if not HAS_GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined

DEVICE = torch.device("cuda", 0) if HAS_GPU else torch.device("cpu")
ENCODERS = ("qwen3vl-deep", "gemma4v-clipped", "pixtral") if HAS_GPU else ("qwen3vl-deep",)
MOST = {"encoder": 1e-9, "text": 5e-4}  # 1e-6 would be 1e-3 of a row
# Of Qwen3.5-4B's tower: width, inner channels, layers, heads; patches of 896 x 896 pixels.
WIDTH, INNER, LAYERS, HEADS, PATCHES = 1152, 4304, 27, 16, 56 * 56

failed: list[str] = []


def note(name: str, error: float, most: float, remark: str = "") -> None:
    """A row of the table."""
    if not error <= most:
        failed.append(name)
    print(f"{name:45} {error:.2g} {remark} {'ok' if error <= most else 'FAILED'}", flush=True)


def error_of(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The squared error, normalized."""
    found, wanted = found.cpu().double(), wanted.cpu().double()
    return float((found - wanted).square().sum() / wanted.square().sum())


def encoders() -> None:
    """Small encoders with weights of halves, each beside the reference on the processor."""
    import vision_files
    from engine.gguf.reader import GGUFFile
    from engine.vision.encoders import build_encoder
    from kernels import cuda
    from kernels.backends import KNOWN
    from kernels.gpu.encoding import Recorded

    backend = cuda.backend_on(DEVICE)
    for name in ENCODERS:
        model = vision_files.recorded()[name]
        tensors = vision_files.tensors(model.case, model.state)
        file = vision_files.widened(vision_files.keys(model.case), tensors, 8)
        path = vision_files.write(Path(tempfile.mkdtemp()) / "m.gguf", *file, "F16")
        picture = vision_files.pixels(model.case, model.pictures[0])
        with GGUFFile.open(path) as opened:
            found, right = (build_encoder(opened, one) for one in (backend, KNOWN["reference"]))
        lowered = all(isinstance(one, Recorded) for one in found.programs)
        error = error_of(found.encode(picture), right.encode(picture))
        note(f"encoder {name}", error if lowered else 1.0, MOST["encoder"])


def texts() -> None:
    """Prompts with an image and steps after it, captured, beside the same op by op."""
    import blocks
    from gpu_pictures import KINDS, sighted
    from kernels import cuda
    from kernels.cuda.program import Recorded

    backend, random = cuda.backend_on(DEVICE), torch.Generator().manual_seed(3)

    def rows(format: object, count: int, columns: int) -> torch.Tensor:
        made = blocks.similar_scale_blocks(format, count * columns // format.block, random)
        return made.view(count, format.row_bytes(columns))

    for kind in KINDS:
        one, _ = sighted(backend, kind, rows, random, backend.record, MOST["text"])
        assert isinstance(one.recorded, Recorded)
        prompts = (run.step([one.prompt(one.empty())]) for run in (one.recorded, one.interpreter))
        note(f"prompt, {kind}", error_of(*prompts), MOST["text"])
        seen, worst = one.sequence(), 0.0
        for token in (7, 8, 9) if HAS_GPU else (7,):  # the first is captured, the others replayed
            batch = [one.next(seen, token)]
            wanted = one.interpreter.step(batch)
            worst = max(worst, error_of(one.recorded.step(batch), wanted))
            seen.commit([token])
        captured = any(bucket.both.is_captured for bucket in one.recorded._buckets.values())
        note(f"steps after a picture, {kind}", worst, MOST["text"], "captured" * captured)
        if HAS_GPU and not captured:
            failed.append(f"{kind} is not captured")


def speed() -> None:
    """Products and attention of a tower of real shape, as `kernels.gpu.encoding` runs them."""
    from torch.nn import functional

    from kernels.cuda import launch

    x = torch.randn(PATCHES, WIDTH, device=DEVICE)
    inner = torch.randn(PATCHES, INNER, device=DEVICE)
    up = torch.randn(INNER, WIDTH, device=DEVICE).half()
    square = torch.randn(WIDTH, WIDTH, device=DEVICE).half()
    heads = torch.randn(1, HEADS, PATCHES, WIDTH // HEADS, device=DEVICE)
    out, wide = torch.empty_like(x), torch.empty_like(inner)
    parts: dict[str, tuple[int, Callable[[], object]]] = {
        "products of a square matrix": (4, lambda: launch.linear_halves(x, square, out)),
        "product up": (1, lambda: launch.linear_halves(x, up, wide)),
        "product down": (1, lambda: launch.linear_halves(inner, up.T.contiguous(), out)),
        "attention": (1, lambda: functional.scaled_dot_product_attention(heads, heads, heads)),
    }
    for name, (count, run) in parts.items():
        run()
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(10):
            run()
        torch.cuda.synchronize()
        each = 100 * (time.perf_counter() - started) * count
        print(f"{name:45} {each:.2f} ms a layer, {each * LAYERS:.0f} ms of {LAYERS}", flush=True)
    wanted = (x[:64].double() @ up.double().T).float()
    launch.linear_halves(x, up, wide)
    note("a product of halves, beside float64", error_of(wide[:64], wanted), 1e-12)


def main() -> int:
    """All parts; 1 if one is wrong."""
    if not HAS_GPU:
        from kernels.cuda import attention, launch

        attention.MOST_SPLITS, launch._ROWS = 2, 128
    with torch.inference_mode():
        encoders()
        texts()
        if HAS_GPU:
            speed()
            print(f"peak {torch.cuda.max_memory_allocated() / 1e6:.0f} MB")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
