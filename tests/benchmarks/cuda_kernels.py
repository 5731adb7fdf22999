"""Checks of the CUDA kernels at real shapes, on a GPU: each against the reference, on fresh data.

`python3 tests/benchmarks/cuda_kernels.py` needs torch with CUDA, numpy, Triton and gguf. With --small
the shapes are small, for compute-sanitizer's memcheck and racecheck; names choose checks, as in
`cuda_kernels.py --small attend mixture`. Outputs are filled with NaN before. Without a GPU the small
shapes run in Triton's interpreter.
"""

from __future__ import annotations

import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined
sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1] / "support")]

from torch import Tensor

import blocks
from kernels.backend import reference
from kernels.backend.device_sampling import UNDECIDED, DeviceSampling
from kernels.cuda import attention, experts, launch, sampling, weights
from kernels.cuda.attention import CudaHeads
from kernels.gpu.layout import FORMATS
from kernels.ops import COMMON_ACTIVATIONS, Activation
from kernels.states.kv_pages import PAGE_TOKENS, KVLayout, PagedKV, PageTable
from kernels.states.layer_state import LayerShape
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight

MOST_ERROR = 5e-4  # normalized mean square error of products
# Of attention, by the type of the pages.
MOST_ATTENTION_ERROR = {torch.float32: 1e-9, torch.float16: 1e-5, torch.int8: 1e-4}
EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class Sizes:
    """Shapes of a run."""

    rows: int = 1003
    columns: int = 4096
    tokens: Sequence[int] = (1, 3, 17, 64, 513)
    formats: Sequence[str] = FORMATS
    kv_heads: int = 2  # few: the reference is computed on the processor
    lengths: Sequence[int] = (0, 4095, 9001)
    prompt: int = 130
    experts: int = 128
    inner: int = 768
    vocabulary: int = 151_936


SMALL = Sizes(
    rows=67,
    columns=512,
    tokens=(1, 3, 17),
    formats=("Q1_0", "Q4_K", "Q8_0", "F16"),
    kv_heads=2,
    lengths=(0, 75, 300),
    prompt=20,
    experts=8,
    inner=64,
    vocabulary=1030,
)


def nmse(found: Tensor, wanted: Tensor, energy: float | None = None) -> float:
    """Squared error over the energy expected; inf where a result is no number."""
    if not bool(found.isfinite().all()):
        return math.inf
    size = float(wanted.double().square().sum()) if energy is None else energy
    return float((found.double() - wanted.double()).square().sum()) / size


@dataclass
class Checks:
    """The checks of one run on a device."""

    device: torch.device
    sizes: Sizes
    random: torch.Generator
    worst: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def expect(self, group: str, words: str, error: float, most: float) -> None:
        """Note an error, and a failure where it is too large."""
        self.worst[group] = max(self.worst.get(group, 0.0), error)
        if not error <= most:
            self.failed.append(f"{group}, {words}: {error:.3g}, allowed {most:.3g}")
            print("FAILED", self.failed[-1], flush=True)

    def attempt(self, check: Callable[[], None]) -> None:
        """Run a check; one that raises is a failure, and the next one is run."""
        started = time.perf_counter()
        try:
            check()
        except Exception as error:  # noqa: BLE001  the next check is run
            traceback.print_exc()
            self.failed.append(f"{check.__name__}: {type(error).__name__}: {error}"[:300])
        print(f"{check.__name__}: {time.perf_counter() - started:.1f} s", flush=True)

    def normal(self, *shape: int) -> Tensor:
        """Normally distributed numbers on the device."""
        return torch.randn(*shape, generator=self.random).to(self.device)

    def empty(self, *shape: int) -> Tensor:
        """An output of NaN on the device."""
        return torch.full(shape, math.nan, device=self.device)

    def prepared(self, name: str, rows: int, columns: int) -> tuple[Weight, Tensor]:
        """A weight in the layout of the kernels, and its values f64, both on the device."""
        format = by_name(name)
        count = (rows + 1) * columns // format.block
        data = blocks.similar_scale_blocks(format, count, self.random)
        data = data.view(rows + 1, format.row_bytes(columns))[1:]  # the first block is zero
        weight = Weight.from_bytes(data.numpy().tobytes(), format, (rows, columns))
        made = weights.STORE.prepare(weight, device=self.device)
        return made, weight.dense().double().to(self.device)

    def matrix(self, name: str, rows: int, columns: int) -> tuple[weights.Operand, Tensor]:
        """The operand of such a weight, and its values."""
        weight, dense = self.prepared(name, rows, columns)
        return weights.operand(weight), dense

    def rows(self, tokens: int, columns: int) -> Tensor:
        """Activations of tokens of unlike size, [padded tokens, columns]."""
        x = self.empty(launch.padded(tokens), columns)
        x[:tokens] = self.normal(tokens, columns) * self.normal(tokens, 1).exp()
        return x

    # --- the kernels ----------------------------------------------------------------------------

    def products(self) -> None:
        """Products of every format with few tokens and many; the rows of an embedding."""
        rows, columns = self.sizes.rows, self.sizes.columns
        for name in self.sizes.formats:
            operand, dense = self.matrix(name, rows, columns)
            ids = torch.randint(0, rows, (33,), generator=self.random).to(self.device)
            out = self.empty(33, columns)
            launch.embed(ids, operand, out)
            same = torch.equal(out, dense[ids].float())
            self.expect("embedding, bits", name, 0.0 if same else math.inf, 0.0)
            for tokens in self.sizes.tokens:
                x = self.rows(tokens, columns)
                out = self.empty(launch.padded(tokens), rows)
                if tokens <= launch.FEW:
                    codes = None if operand.reads_floats else launch.quantized(x, tokens)
                    launch.linear(x, codes, [operand], [out], tokens)
                elif tokens < launch.MANY:
                    launch.linear_tiles(x, operand, out, tokens)
                else:
                    out = launch.linear_decoded(x, operand, tokens)
                some = x[:tokens].double()
                energy = float((some.square() @ dense.square().T).sum())
                error = nmse(out[:tokens], some @ dense.T, energy)
                self.expect("products", f"{name}, {tokens} tokens", error, MOST_ERROR)

    def layer(self) -> None:
        """Output with residual and the next norm, then gate and up, then down."""
        width, inner = self.sizes.columns, 3 * self.sizes.columns
        for name in ("Q1_0", "Q4_K"):
            for tokens in (1, 4):
                output, dense = self.matrix(name, width, width)
                gate, gate_dense = self.matrix(name, inner, width)
                up, up_dense = self.matrix(name, inner, width)
                x, norm = self.rows(tokens, width), self.normal(width).abs() + 0.5
                residual = self.empty(launch.padded(tokens), width)
                before = self.normal(tokens, width)
                residual[:tokens] = before
                then = launch.new_deferred(tokens, width, EPSILON, self.device)
                launch.linear_added(
                    x, launch.quantized(x, tokens), output, residual, tokens, 1.0, norm, then
                )
                wanted = before.double() + x[:tokens].double() @ dense.T
                words = f"{name}, {tokens} tokens"
                self.expect(
                    "output and residual", words, nmse(residual[:tokens], wanted), MOST_ERROR
                )
                out = self.empty(launch.padded(tokens), inner)
                scale = torch.sqrt(residual[:tokens].double().square().mean(1) + EPSILON)
                normed = residual[:tokens].double() / scale[:, None] * norm.double()
                launch.linear_gated(residual, then, gate, up, Activation.SILU, tokens, out)
                products = normed @ gate_dense.T, normed @ up_dense.T
                right = reference.gated(*products, Activation.SILU)
                error = nmse(out[:tokens], right)
                self.expect("norm, gate and up", words, error, 2 * MOST_ERROR)

    def norms(self) -> None:
        """Norms and activations."""
        x = self.normal(7, self.sizes.columns) * 3 + 1
        weight = self.normal(self.sizes.columns)
        out = self.empty(*x.shape)
        launch.normed(x, weight, None, EPSILON, False, len(x), out)
        wanted = reference.rms_norm(x.double(), weight.double(), EPSILON)
        self.expect("norms and activations", "rms", nmse(out, wanted), 1e-10)
        for activation in sorted(COMMON_ACTIVATIONS, key=str):
            out = self.empty(*x.shape)
            launch.gated(x, x, activation, out)
            wanted = reference.gated(x.double(), x.double(), activation)
            self.expect("norms and activations", activation.name, nmse(out, wanted), 1e-10)

    def heads(self, dtype: torch.dtype, width: int) -> CudaHeads:
        """Heads as a model of the qwen3 family has them."""
        layout = KVLayout([LayerShape(self.sizes.kv_heads, width)] * 2, dtype)
        frequencies = 1e6 ** (-torch.arange(0, width // 2) / (width // 2))
        query_norm, key_norm = self.normal(2, width).abs() + 0.5
        heads = 4 * self.sizes.kv_heads
        norms = query_norm, key_norm, EPSILON
        rope = frequencies.to(self.device), False, 1.0
        return CudaHeads(layout.kv(1), heads, *norms, *rope, width**-0.5)

    def sequence(self, one: CudaHeads, length: int, more: int) -> tuple[PagedKV, PageTable]:
        """Rows in pages on the processor, and a table of copies on the device, NaN beyond them."""
        table, copies = PageTable(), PageTable()
        size = KVLayout([one.layer.shape] * 2, one.layer.dtype).page_bytes[0]
        for _ in range(-(-(length + more) // PAGE_TOKENS)):
            table.append(torch.full((size,), 0xFF, dtype=torch.uint8))
        kv = PagedKV(one.layer, table)
        if length:
            shape = length, one.kv_heads, one.width
            k, v = torch.randn(2, *shape, generator=self.random)
            kv.append(k, v + 0.3, 0)
        for page in table.pages:
            assert page is not None
            copies.append(page.clone().to(self.device))
        return kv, copies

    def right(
        self, one: CudaHeads, kv: PagedKV, length: int, q: Tensor, k: Tensor, v: Tensor
    ) -> Tensor:
        """What the reference gives, on the processor."""
        tokens = len(q)
        positions = torch.arange(length, length + tokens)
        frequencies = one.frequencies.cpu()

        def turned(x: Tensor, norm: Tensor | None) -> Tensor:
            assert norm is not None
            x = reference.rms_norm(x.cpu().view(tokens, -1, one.width), norm.cpu(), one.epsilon)
            return reference.rope(x, positions, frequencies, one.interleaved, one.rope_scale)

        kv.append(turned(k, one.key_norm), v.cpu().view(tokens, -1, one.width), length)
        query = turned(q, one.query_norm)
        return reference.attention(query, kv, length, one.scale, one.window, one.cap)

    def check_pages(
        self, words: str, one: CudaHeads, kv: PagedKV, copies: PageTable, end: int, most: float
    ) -> None:
        """The rows stored on the device are those of the reference."""
        back = PageTable()
        for page in copies.pages:
            assert page is not None
            back.append(page.cpu())
        found = PagedKV(one.layer, back)
        for mine, right in zip(found.rows(0, end), kv.rows(0, end), strict=True):
            dense = [rows if isinstance(rows, Tensor) else rows.dense() for rows in (mine, right)]
            self.expect("rows of pages", words, nmse(dense[0], dense[1]), most)

    def attend(self) -> None:
        """Attention of single tokens, of several sequences, and of a prompt."""
        for dtype, most in MOST_ATTENTION_ERROR.items():
            for width in (128, 256):
                one = self.heads(dtype, width)
                words = f"{dtype} of {width}".removeprefix("torch.")
                query, key = one.heads * width, one.kv_heads * width
                made = [self.sequence(one, length, 1) for length in self.sizes.lengths]
                count = len(made)
                q, k, v = self.normal(count, query), *(self.normal(count, key) for _ in "kv")
                right = torch.cat(
                    [
                        self.right(one, kv, length, *(x[at : at + 1] for x in (q, k, v)))
                        for at, ((kv, _), length) in enumerate(
                            zip(made, self.sizes.lengths, strict=True)
                        )
                    ]
                )
                pages = max(len(copies) for _, copies in made)
                tables = attention.addresses([copies for _, copies in made], pages)
                scratch = attention.scratch_for(one, count, attention.MOST_SPLITS, self.device)
                scratch.partial.fill_(math.nan)
                for repetition in range(1 if self.device.type == "cpu" else 20):  # races differ
                    out = self.empty(count, query)
                    attention.attend_step(
                        one, q.clone(), k.clone(), v.clone(),
                        torch.tensor(self.sizes.lengths).to(self.device), tables.to(self.device),
                        scratch, out,
                    )  # fmt: skip
                    error = nmse(out.cpu(), right.view(count, -1))
                    self.expect("attention of a token", f"{words}, run {repetition}", error, most)
                for (kv, copies), length in zip(made, self.sizes.lengths, strict=True):
                    self.check_pages(words, one, kv, copies, length + 1, most)
                self.prompt(one, words, most)

    def prompt(self, one: CudaHeads, words: str, most: float) -> None:
        """Attention of a prompt's tokens after others."""
        tokens, length = self.sizes.prompt, self.sizes.lengths[1]
        kv, copies = self.sequence(one, length, tokens)
        q = self.normal(tokens, one.heads * one.width)
        k, v = (self.normal(tokens, one.kv_heads * one.width) for _ in "kv")
        right = self.right(one, kv, length, q, k, v)
        table = attention.addresses([copies], len(copies))[0].to(self.device)
        query, out = q.clone(), self.empty(*q.shape)
        attention.append_rows(one, query, k, v, table, length)
        attention.attend_rows(one, query, table, length, out)
        self.expect("attention of a prompt", words, nmse(out.cpu(), right.view(tokens, -1)), most)
        self.check_pages(words, one, kv, copies, length + tokens, most)

    def mixture(self) -> None:
        """Routing, gate and up, and down of chosen experts."""
        width, inner, count, chosen = self.sizes.columns // 2, self.sizes.inner, 16, 4
        for name in ("Q8_0", "Q4_K") if inner % 256 == 0 else ("Q8_0",):
            tokens, scale = 3, 0.5
            every = [
                [self.prepared(name, *shape) for _ in range(count)]
                for shape in ((inner, width), (inner, width), (width, inner))
            ]
            gates, ups, downs = [
                experts.table([weight for weight, _ in some], self.device) for some in every
            ]
            x = self.rows(tokens, width) * width**-0.5
            scores = self.normal(tokens, count)
            routes = experts.new_routes(tokens, chosen, self.device)
            experts.route(scores, tokens, routes)
            shares = reference.route(scores.cpu(), chosen).to(self.device)
            found = torch.zeros_like(shares).scatter_(1, routes.chosen.long(), routes.shares)
            self.expect("routes", name, float((found - shares).abs().max()), 1e-6)
            then = launch.new_quantized(tokens * chosen, inner, self.device)
            hidden = torch.zeros(launch.padded(tokens * chosen), 1, device=self.device)
            codes = launch.quantized(x, tokens)
            experts.gated(x, codes, routes, gates, ups, Activation.SILU, tokens, None, then)
            residual = self.empty(launch.padded(tokens), width)
            before = self.normal(tokens, width)
            residual[:tokens] = before
            experts.added(hidden, then, routes, downs, residual, tokens, scale)
            wanted = torch.zeros(tokens, width, dtype=torch.float64, device=self.device)
            for at in range(count):
                gate, up, down = (some[at][1] for some in every)
                some = x[:tokens].double()
                middle = reference.gated(some @ gate.T, some @ up.T, Activation.SILU)
                wanted += shares[:, at, None].double() * (middle @ down.T)
            right = before.double() + scale * wanted
            self.expect("experts", name, nmse(residual[:tokens], right), MOST_ERROR)

    def draws(self) -> None:
        """Draws of tokens: the most likely one, among the first k, with a mask and penalties."""
        vocabulary = self.sizes.vocabulary
        sampler = sampling.CudaSampler(vocabulary, self.device)
        logits = self.normal(3, vocabulary) * 4
        for repetition in range(2):  # run, then replayed
            greedy = sampler.draw(logits, [DeviceSampling(random=1, temperature=0.0)] * 3)
            wrong = greedy != logits.argmax(-1).tolist()
            self.expect("draws", f"greedy, run {repetition}", float(wrong), 0.0)
            some = sampler.draw(
                logits,
                [DeviceSampling(random=seed, top_k=4, temperature=0.8) for seed in (5, 6, 7)],
            )
            best = logits.topk(4).indices.tolist()
            wrong = any(token not in few for token, few in zip(some, best, strict=True))
            self.expect("draws", f"top-k, run {repetition}", float(wrong), 0.0)
            biased = DeviceSampling(random=1, temperature=0.0, biases={17: 1e4})
            wrong = sampler.draw(logits[:1], [biased]) != [17]
            self.expect("draws", f"bias, run {repetition}", float(wrong), 0.0)
        undecided = sampler.draw(logits[:1], [DeviceSampling(random=1)]) == [UNDECIDED]
        self.expect("draws", "without a filter", float(not undecided), 0.0)


def main() -> int:
    """Run all checks; 1 if one failed."""
    has_gpu = torch.cuda.is_available()
    small = not has_gpu or "--small" in sys.argv
    if not has_gpu:  # fewer programs to interpret
        attention.MOST_SPLITS, launch._ROWS = 2, 128
    seed = int.from_bytes(os.urandom(4))
    device = torch.device("cuda", 0) if has_gpu else torch.device("cpu")
    checks = Checks(device, SMALL if small else Sizes(), torch.Generator().manual_seed(seed))
    print(f"seed {seed}", flush=True)
    every = (
        checks.products,
        checks.layer,
        checks.norms,
        checks.attend,
        checks.mixture,
        checks.draws,
    )
    named = {name for name in sys.argv[1:] if not name.startswith("-")}
    for check in every:
        if not named or check.__name__ in named:
            checks.attempt(check)
    for group, error in checks.worst.items():
        print(f"{group}: worst {error:.2g}")
    print(f"{len(checks.failed)} checks failed.")
    for line in checks.failed:
        print(f"- {line}")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
