"""Ops: validated operations of one backend, by which the interpreter runs programs.

Shape letters: T tokens, D model width, N outputs, V vocabulary, H heads, K key/value heads,
C width of one head, S tokens in the cache. Every op raises ValueError, beginning with its name,
for an operand of the wrong shape or dtype. Definitions are in `kernels.reference`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor

from kernels.kv_pages import PAGE_TOKENS, PagedKV
from kernels.program import COMMON_ACTIVATIONS, Activation, Recurrence, Xielu
from kernels.reference import Kernel
from kernels.routing import Routing
from kernels.weight import Weight

Find = Callable[[str, str], Kernel]  # op and format name to the kernel that runs it
Observer = Callable[[str, tuple[Any, ...], Any], None]


class Ops:
    """The ops of a backend; immutable, so that several backends can be used side by side."""

    def __init__(
        self,
        find: Find,
        reference: Find,
        excluded: Collection[str] = (),
        observer: Observer | None = None,
    ) -> None:
        """The ops in `excluded` run on the `reference`; `observer` sees operands and results."""
        self._find, self._reference = find, reference
        self._excluded, self._observer = frozenset(excluded), observer

    def without(self, excluded: Collection[str]) -> Ops:
        """These ops with some on the reference, and the memory they take estimated for it.

        Only for ops that read no weight: a prepared weight has the layout of one backend.
        """
        estimates = (f"{op}_bytes" for op in excluded)
        return Ops(self._find, self._reference, (*excluded, *estimates), self._observer)

    def watched(self, observer: Observer) -> Ops:
        """These ops with `observer(op, operands, result)` called after every one."""
        return Ops(self._find, self._reference, self._excluded, observer)

    def find(self, op: str, format: str = "F32") -> Kernel:
        """The kernel that runs an op on weights of a format; raises ValueError if there is none."""
        kernel = (self._reference if op in self._excluded else self._find)(op, format)
        return kernel if self._observer is None else _observed(op, kernel, self._observer)

    def _any(self, op: str) -> Kernel:
        """The kernel of an op for operands that not every backend's kernel of it takes."""
        find = self._reference if op in self._excluded else self._find
        kernel = find(f"{op}_any", "F32")
        return kernel if self._observer is None else _observed(op, kernel, self._observer)

    def linear(self, x: Tensor, weight: Weight) -> Tensor:
        """Matrix product: x [T, D] f32, weight [N, D] of any format → [T, N] f32.

        Source: https://docs.pytorch.org/docs/2.13/generated/torch.nn.functional.linear.html
        """
        shape = weight.shape
        if len(shape) != 2 or x.dim() != 2 or x.shape[1] != shape[1]:
            raise ValueError(f"linear: x {list(x.shape)} does not fit a weight {list(shape)}")
        if x.dtype != torch.float32:
            raise ValueError(f"linear: x is {_name(x)}, not float32")
        return self.find("linear", weight.format.name)(x, weight)

    def embed(self, ids: Tensor, weight: Weight) -> Tensor:
        """Rows of a table: ids [T] i64, weight [V, D] of any format → [T, D] f32.

        Raises IndexError for an id outside the table.
        """
        if len(weight.shape) != 2:
            raise ValueError(f"embed: the table is [V, D], got {list(weight.shape)}")
        if ids.dim() != 1 or ids.dtype != torch.int64:
            raise ValueError(f"embed: ids are int64 [T], got {_name(ids)} {list(ids.shape)}")
        return self.find("embed", weight.format.name)(ids, weight)

    def rms_norm(self, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        """Root-mean-square norm: x [..., D] f32, weight [D] f32 → [..., D] f32.

        y = x / sqrt(mean of x² + epsilon) * weight; GGUF stores gemma's weights with the 1 added.
        Source: https://arxiv.org/abs/1910.07467 equation 4
        """
        if weight.dim() != 1 or x.shape[-1:] != weight.shape:
            raise ValueError(
                f"rms_norm: x {list(x.shape)} does not fit a weight {list(weight.shape)}"
            )
        if x.dtype != torch.float32 or weight.dtype != torch.float32:
            raise ValueError(f"rms_norm: x is {_name(x)} and weight {_name(weight)}, not float32")
        return self.find("rms_norm")(x, weight, epsilon)

    def layer_norm(self, x: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float) -> Tensor:
        """Layer norm: x [..., D] f32, weight and bias [D] f32 → [..., D] f32; without bias: None.

        y = (x - mean) / sqrt(variance + epsilon) * weight + bias; the variance is that of D values.
        Source: https://arxiv.org/abs/1607.06450 equation 4
        """
        for name, vector in (("weight", weight), ("bias", bias)):
            if vector is not None and (vector.dim() != 1 or x.shape[-1:] != vector.shape):
                shapes = f"x {list(x.shape)} does not fit a {name} {list(vector.shape)}"
                raise ValueError(f"layer_norm: {shapes}")
            if vector is not None and (x.dtype != torch.float32 or vector.dtype != torch.float32):
                raise ValueError(
                    f"layer_norm: x is {_name(x)} and {name} {_name(vector)}, not float32"
                )
        return self.find("layer_norm")(x, weight, bias, epsilon)

    def rope(
        self,
        x: Tensor,
        positions: Tensor,
        frequencies: Tensor,
        interleaved: bool,
        scale: float = 1.0,
    ) -> Tensor:
        """Rotary position embedding (RoPE) of x [T, H, C] f32 → [T, H, C] f32.

        positions [T] i64, frequencies [n] f32. The first 2n channels are rotated, pair i by positions *
        frequencies[i] radians, computed in float32; the others are copied. Pairs are channels
        (2i, 2i+1) when `interleaved` (GGUF's llama), else (i, i+n). `scale` multiplies cosine and sine
        (YaRN's attention factor).
        Source: https://arxiv.org/abs/2104.09864 section 3.4.2
        """
        if x.dim() != 3 or positions.shape != x.shape[:1]:
            raise ValueError(
                f"rope: positions {list(positions.shape)} do not fit x {list(x.shape)}, [T, H, C]"
            )
        if frequencies.dim() != 1 or 2 * frequencies.shape[0] > x.shape[2]:
            raise ValueError(
                f"rope: frequencies {list(frequencies.shape)} rotate more channels than x "
                f"{list(x.shape)} has"
            )
        if x.dtype != torch.float32 or frequencies.dtype != torch.float32:
            raise ValueError(
                f"rope: x is {_name(x)}, frequencies {_name(frequencies)}, not float32"
            )
        if positions.dtype != torch.int64:
            raise ValueError(f"rope: positions are {_name(positions)}, not int64")
        return self.find("rope")(x, positions, frequencies, interleaved, scale)

    def attention(
        self,
        q: Tensor,
        kv: PagedKV,
        position: int,
        scale: float,
        window: int = 0,
        softcap: float = 0.0,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """Causal attention over KV pages: q [T, H, C] f32, K heads of `kv` → [T, H*C] f32.

        Query t is at `position` + t and attends to the keys up to that position: to all of them, or to
        the last `window` when that is not 0. Head h reads key/value head h // (H / K). Scores are
        multiplied by `scale`, then capped at ±`softcap` when that is not 0. `sinks` [H] f32 are one
        more score of each head, whose value is 0: it only takes a share. Masked rows of pages may
        have any contents, NaN included. Memory is bounded for any T, except for the reference's
        float32 copies of the visible rows.
        Source: https://arxiv.org/abs/2305.13245; cap: https://arxiv.org/abs/2408.00118 section 2;
        sinks: https://arxiv.org/abs/2508.10925 section 2.2
        """
        shape, pages = kv.layer.shape, kv.table.pages
        if q.dim() != 3 or q.shape[2] != shape.head_width or q.shape[1] % shape.kv_heads:
            raise ValueError(
                f"attention: q is [T, H, C], got {list(q.shape)} for {shape.kv_heads} key/value heads "
                f"of width {shape.head_width}"
            )
        if position < 0 or position + q.shape[0] > PAGE_TOKENS * len(pages):
            raise ValueError(
                f"attention: {q.shape[0]} queries from position {position} need more than "
                f"{len(pages)} pages of {PAGE_TOKENS} keys"
            )
        if q.dtype != torch.float32:
            raise ValueError(f"attention: q is {_name(q)}, not float32")
        if window < 0 or softcap < 0:
            raise ValueError(f"attention: window {window} and softcap {softcap} cannot be negative")
        first = max(position - window + 1, 0) if window else 0
        visible = pages[first // PAGE_TOKENS : -(-(position + q.shape[0]) // PAGE_TOKENS)]
        if any(page is None for page in visible):
            raise ValueError(
                f"attention: a page that is visible from position {position} is missing"
            )
        if sinks is None:
            return self.find("attention")(q, kv, position, scale, window, softcap)
        if sinks.shape != q.shape[1:2] or sinks.dtype != torch.float32:
            raise ValueError(
                f"attention: sinks {_name(sinks)} {list(sinks.shape)} do not fit q {list(q.shape)}"
            )
        return self._any("attention")(q, kv, position, scale, window, softcap, sinks)

    def full_attention(
        self, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int = 0
    ) -> Tensor:
        """Attention in both directions: q [T, H, C], k and v [T, K, C] f32 → [T, H*C] f32.

        Each of the T tokens of a text attends to all of them, or to those at most `window` // 2
        away when that is not 0. Head h reads key/value head h // (H / K). Scores are multiplied by
        `scale`.
        Source: https://arxiv.org/abs/1810.04805 section 3
        """
        if q.dim() != 3 or k.shape != v.shape or q[:, :1].shape != k[:, :1].shape:
            shapes = f"q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)}"
            raise ValueError(f"full_attention: {shapes} are not [T, H, C] and twice [T, K, C]")
        if not k.shape[1] or q.shape[1] % k.shape[1]:
            raise ValueError(f"full_attention: {q.shape[1]} heads cannot share {k.shape[1]}")
        for tensor in (q, k, v):
            if tensor.dtype != torch.float32:
                raise ValueError(f"full_attention: an operand is {_name(tensor)}, not float32")
        if window < 0:
            raise ValueError(f"full_attention: the window {window} cannot be negative")
        return self.find("full_attention")(q, k, v, scale, window)

    def attention_bytes(
        self,
        tokens: int,
        context: int,
        heads: int,
        kv_heads: int,
        head_width: int,
        cache_dtype: torch.dtype,
    ) -> int:
        """Maximum bytes that `attention` allocates for `tokens` queries, its result included.

        `context` is the number of keys; `cache_dtype` is float32, float16 or int8.
        """
        return self.find("attention_bytes")(
            tokens, context, heads, kv_heads, head_width, cache_dtype
        )

    def gated(
        self, gate: Tensor, up: Tensor | None, activation: Activation, limit: float = 0.0
    ) -> Tensor:
        """Gated unit: gate and up, both [..., F] f32 → activation(gate) * up [..., F] f32.

        Without `up` it is the activation alone. With a `limit` above 0 the gate is first cut to at
        most that, and up to ± that; of SILU_CUT not the gate but its activation.
        Source: https://arxiv.org/abs/2002.05202 section 2
        """
        if up is not None and gate.shape != up.shape:
            raise ValueError(f"gated: gate {list(gate.shape)} and up {list(up.shape)} differ")
        if gate.dtype != torch.float32:
            raise ValueError(f"gated: gate is {_name(gate)}, not float32")
        if up is not None and up.dtype != torch.float32:
            raise ValueError(f"gated: up is {_name(up)}, not float32")
        if limit or activation not in COMMON_ACTIVATIONS:
            return self._any("gated")(gate, up, activation, limit)
        return self.find("gated")(gate, up, activation)

    def route(self, scores: Tensor, routing: Routing) -> Tensor:
        """Expert routing: scores [T, E] f32 → shares [T, E] f32, 0 for experts that are not chosen.

        The gating makes values of the scores; with a bias added, a token's highest, of equal ones
        the first, are its experts. With several groups they are of the best of these, by the sum
        of a group's two highest. The values of the chosen experts, divided by their sum if
        `normalized`, times `scale` are the shares.
        Source: https://arxiv.org/abs/2401.04088 section 2.1; groups, bias and sigmoid:
        https://arxiv.org/abs/2412.19437 section 2.1.2
        """
        E, chosen, groups = scores.shape[-1], routing.chosen, routing.groups
        if scores.dim() != 2 or scores.dtype != torch.float32:
            raise ValueError(f"route: scores are float32 [T, E], got {list(scores.shape)}")
        if not 0 < chosen <= E:
            raise ValueError(f"route: {chosen} of {E} experts cannot be chosen")
        if routing.is_plain:
            return self.find("route")(scores, chosen)
        if routing.bias is not None and routing.bias.shape != (E,):
            raise ValueError(f"route: a bias {list(routing.bias.shape)} does not fit {E} experts")
        if E % groups or not 0 < routing.chosen_groups <= groups:
            shape = f"{routing.chosen_groups} of {groups} groups"
            raise ValueError(f"route: {shape} of {E} experts cannot be chosen")
        if chosen > E // groups * routing.chosen_groups:
            raise ValueError(f"route: {chosen} experts are more than the chosen groups have")
        return self._any("route")(scores, chosen, routing)

    def short_conv(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Causal depthwise convolution: x [T, D] f32 → y [T, D] f32 and the state after x.

        y[t, d] = sum over j of weight[d, j] * x[t - k + 1 + j, d], plus bias[d]. weight [D, k] f32,
        bias [D] f32 or None. The state [k - 1, D] f32 has the inputs before x, the oldest first:
        zeros before the first token. The order of the sum does not depend on T.
        Source: https://docs.pytorch.org/docs/2.13/generated/torch.nn.functional.conv1d.html
        """
        D = x.shape[-1]
        if x.dim() != 2 or weight.dim() != 2 or len(weight) != D or not x.numel():
            raise ValueError(
                f"short_conv: x {list(x.shape)} does not fit a weight {list(weight.shape)}"
            )
        if state.shape != (weight.shape[1] - 1, D) or (bias is not None and bias.shape != (D,)):
            shapes = f"state {list(state.shape)} or bias"
            raise ValueError(f"short_conv: {shapes} does not fit a weight {list(weight.shape)}")
        for tensor in (x, weight, state):
            if tensor.dtype != torch.float32:
                raise ValueError(f"short_conv: an operand is {_name(tensor)}, not float32")
        return self.find("short_conv")(x, weight, bias, state)

    def recurrence(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        decay: Tensor,
        strength: Tensor | None,
        state: Tensor,
        one: Recurrence,
    ) -> tuple[Tensor, Tensor]:
        """Gated linear recurrence: v [T, H, V] f32 → y [T, H, V] f32 and the state after it.

        Of every head, with a matrix S [C, V] as its state, for each token in turn:

            q = q / sqrt(sum of q² + epsilon) * scale; k likewise without the scale
            S = exp(rate * softplus(decay + decay_bias)) * S
            u = sigmoid(strength) * (v - S^T k) if `corrected` (delta rule), else of v
            S = S + k u^T
            y = S^T q, plus skip * v

        With a `floor` the logarithm of the decay is floor * sigmoid(rate * (decay + decay_bias)) in
        place of rate * softplus(...). With a negative epsilon q and k are not divided. Without `strength` it is
        softplus(decay + decay_bias) in place of the sigmoid: a state-space model's time step. q and
        k [T, K, C] f32: head h reads their head h // (H / K), or h % K if `tiled`. decay and
        decay_bias are [T, H] and [H] f32, or [T, H*C] and [H*C] with one value for each row of S.
        strength [T, H], rate and skip [H] f32, state [H, C, V] f32: zeros before the first token.
        The result does not depend on how the tokens are cut into calls.
        Source: https://arxiv.org/abs/2412.06464 equation 10; uncorrected: section 2.1; the decay
        and the step: https://arxiv.org/abs/2405.21060 section 7; by channel:
        https://arxiv.org/abs/2510.26692 section 3
        """
        shape = f"q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}"
        if q.dim() != 3 or v.dim() != 3 or q.shape != k.shape or len(q) != len(v) or not len(v):
            raise ValueError(f"recurrence: {shape} are not [T, K, C] twice and [T, H, V]")
        T, H, C = len(v), v.shape[1], q.shape[2]
        if H % q.shape[1]:
            raise ValueError(f"recurrence: {shape} do not have heads in groups")
        decays = H * C if one.decay_bias.numel() == H * C else H
        operands = [
            ("decay", decay, (T, decays)),
            ("rate", one.rate, (H,)),
            ("decay_bias", one.decay_bias, (decays,)),
            ("state", state, (H, C, v.shape[2])),
        ]
        operands += [("strength", strength, (T, H))] if strength is not None else []
        operands += [("skip", one.skip, (H,))] if one.skip is not None else []
        for name, tensor, wanted in operands:
            if tensor.shape != wanted:
                raise ValueError(f"recurrence: {name} {list(tensor.shape)} does not fit {shape}")
        for tensor in (q, k, v, *(tensor for _, tensor, _ in operands)):
            if tensor.dtype != torch.float32:
                raise ValueError(f"recurrence: an operand is {_name(tensor)}, not float32")
        if one.floor > 0 or (one.floor and strength is None):
            raise ValueError(f"recurrence: a floor of {one.floor}, or one without a strength")
        found = self._any("recurrence") if one.floor else self.find("recurrence")
        return found(q, k, v, decay, strength, state, one)

    def xielu(self, x: Tensor, one: Xielu) -> Tensor:
        """Expanded integral of the exponential linear unit: x [...] f32 → [...] f32.

        Source: https://arxiv.org/abs/2411.13010 equation 10
        """
        if x.dtype != torch.float32:
            raise ValueError(f"xielu: x {list(x.shape)} is {_name(x)}, not float32")
        return self.find("xielu")(x, one)

    def hadamard(self, x: Tensor, block: int) -> Tensor:
        """Hadamard transform of every block of columns: x [T, D] f32 → [T, D] f32.

        `block` is a power of two; see `kernels.rotation.hadamard`.
        """
        if x.dim() != 2 or block < 1 or block & (block - 1) or x.shape[1] % block:
            raise ValueError(f"hadamard: x {list(x.shape)} has no blocks of {block} columns")
        _check_floats("hadamard", x)
        return self.find("hadamard")(x, block)

    def mix_streams(self, x: Tensor, coefficients: Tensor) -> Tensor:
        """Each stream plus a combination of all: x [T, S*D], coefficients [T, S*S] → [T, S*D], f32.

        Source: https://arxiv.org/abs/2301.13310
        """
        count = round(coefficients.shape[-1] ** 0.5)
        if x.dim() != 2 or coefficients.shape != (len(x), count**2) or x.shape[1] % count:
            shapes = f"x {list(x.shape)} does not fit coefficients {list(coefficients.shape)}"
            raise ValueError(f"mix_streams: {shapes}")
        _check_floats("mix_streams", x, coefficients)
        return self.find("mix_streams")(x, coefficients)

    def add_to_streams(
        self, x: Tensor, y: Tensor, coefficients: Tensor | None, first: int
    ) -> Tensor:
        """Streams from `first` on plus y, times coefficients: x [T, S*D], y [T, D] → [T, S*D], f32.

        coefficients [T, S] f32, or None for 1 each.
        """
        fits = x.dim() == y.dim() == 2 and len(x) == len(y) and x.shape[1] % y.shape[1] == 0
        count = x.shape[-1] // y.shape[-1]
        known = coefficients is None or coefficients.shape == (len(x), count)
        if not fits or not known or not 0 <= first < count:
            raise ValueError(
                f"add_to_streams: x {list(x.shape)}, y {list(y.shape)} and the coefficients do not "
                f"fit, or there is no stream {first}"
            )
        _check_floats("add_to_streams", x, y, *(() if coefficients is None else (coefficients,)))
        return self.find("add_to_streams")(x, y, coefficients, first)

    def match_magnitude(self, x: Tensor, like: Tensor, epsilon: float) -> Tensor:
        """x with the root mean square of `like`, by row: both [T, D] f32 → [T, D] f32.

        The mean square of x counts as at least `epsilon`.
        """
        if x.dim() != 2 or x.shape != like.shape:
            raise ValueError(f"match_magnitude: x {list(x.shape)} is not like {list(like.shape)}")
        _check_floats("match_magnitude", x, like)
        return self.find("match_magnitude")(x, like, epsilon)

    def gaussian_top_k(self, x: Tensor, deviations: float) -> Tensor:
        """max(x - (mean + deviations * standard deviation), 0), by row: x [T, D] f32 → [T, D]."""
        if x.dim() != 2 or x.shape[1] < 2:
            raise ValueError(f"gaussian_top_k: x {list(x.shape)} has no rows of 2 and more columns")
        _check_floats("gaussian_top_k", x)
        return self.find("gaussian_top_k")(x, deviations)

    def softcap(self, x: Tensor, cap: float) -> Tensor:
        """cap * tanh(x / cap): x [...] f32 → [...] f32, within ±cap.

        Source: https://arxiv.org/abs/2408.00118 section 2
        """
        if x.dtype != torch.float32:
            raise ValueError(f"softcap: x {list(x.shape)} is {_name(x)}, not float32")
        if cap <= 0:
            raise ValueError(f"softcap: the cap is {cap}, not above 0")
        return self.find("softcap")(x, cap)


def _check_floats(op: str, *tensors: Tensor) -> None:
    if wrong := [one for one in tensors if one.dtype != torch.float32]:
        raise ValueError(f"{op}: an operand is {_name(wrong[0])}, not float32")


def _observed(op: str, kernel: Kernel, observer: Observer) -> Kernel:
    def run(*operands: Any) -> Any:
        result = kernel(*operands)
        observer(op, operands, result)
        return result

    return run


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
