"""Feed-forward layers: MLPs with and without a gate, mixtures of experts, and their sums.

What they compute is defined in `engine.models.forward_mlp`. Shape letters are those of
`engine.models.layers`.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from engine.adapters.delta import Part
from engine.models.parts import Norm, Projection
from kernels.ops import Activation
from kernels.ops.hadamard_rotation import HadamardRotation
from kernels.ops.routing import Routing
from kernels.weights.weight import Weight


@dataclass(frozen=True, slots=True)
class GatedMLP:
    """down(activation(gate(x)) * up(x))."""

    gate: Projection  # [F, D]
    up: Projection  # [F, D]
    down: Projection  # [D, F]
    activation: Activation
    inner_norm: Norm | None = None  # over F channels, before `down`
    limit: float = 0.0  # of gate and up, as of `kernels.ops.Gate`
    deviations: float | None = None  # of a gate whose highest channels alone count: GaussianTopK

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Its linear layers."""
        return (self.gate, self.up, self.down)


@dataclass(frozen=True, slots=True)
class ExpandedIntegral:
    """The learned activation xIELU; see `kernels.ops.Xielu`."""

    positive: float
    negative: float
    beta: float
    epsilon: float


@dataclass(frozen=True, slots=True)
class MLP:
    """down(activation(up(x)))."""

    up: Projection  # [F, D]
    down: Projection  # [D, F]
    activation: Activation | ExpandedIntegral

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Its linear layers."""
        return (self.up, self.down)


@dataclass(frozen=True, slots=True)
class ExpertMatrices:
    """One of the products of all experts."""

    name: str  # of its tensor, GGUF, by which adapters apply
    weights: tuple[Weight, ...]  # E of [N, D]
    bias: Tensor | None = None  # [E, N] f32
    scale: Tensor | None = None  # [E] f32, of the product before the bias
    rotation: HadamardRotation | None = None  # of the input, as of a `Projection`
    part: Part | None = None  # the rows of each expert's matrix, where the tensor holds others too

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape [E, rows, columns] of its tensor, by name."""
        rows, columns = self.weights[0].shape
        return {self.name: (len(self.weights), self.part.rows if self.part else rows, columns)}


@dataclass(frozen=True, slots=True)
class Experts:
    """Mixture of experts: the chosen MLPs of each token, weighted by the router.

    `shared` is an MLP that all tokens run through; its output times sigmoid(shared_gate(x)), if
    there is one, is added.
    """

    router: Projection  # [E, D]
    routing: Routing
    gate: ExpertMatrices  # without `up`, the only product before the activation
    up: ExpertMatrices | None
    down: ExpertMatrices
    activation: Activation
    limit: float = 0.0  # of gate and up, as of `kernels.ops.Gate`
    router_norm: Norm | None = None  # the router reads the stream by this norm, not the input
    weighs_input: bool = False  # the share scales the input of an expert, not its output
    shared: GatedMLP | MLP | None = None
    shared_gate: Projection | None = None  # [1, D]
    before: Projection | None = None  # [L, D]: experts on a smaller vector
    after: Projection | None = None  # [D, L]
    output_scale: float = 1.0  # of the sum of the experts, that of all tokens with them

    @property
    def projections(self) -> tuple[Projection, ...]:
        """The linear layers one token runs through; all experts cost the same."""
        some = [self.router]
        some += [one for one in (self.before, self.after, self.shared_gate) if one is not None]
        for matrices in self.matrices:
            some += [Projection("", one) for one in matrices.weights[: self.routing.chosen]]
        return (*some, *(() if self.shared is None else self.shared.projections))

    @property
    def matrices(self) -> tuple[ExpertMatrices, ...]:
        """The products of all experts."""
        return (self.gate, self.down) if self.up is None else (self.gate, self.up, self.down)


@dataclass(frozen=True, slots=True)
class Branch:
    """One of several feed-forwards of one stream, with its own norms."""

    mlp: GatedMLP | MLP | Experts
    norm: Norm | None  # of the stream; None: the input of the sum
    after: Norm | None = None  # of the output


@dataclass(frozen=True, slots=True)
class ParallelMLPs:
    """The sum of several feed-forwards, as the dense and the mixture branch of Gemma 4."""

    branches: tuple[Branch, ...]

    @property
    def projections(self) -> tuple[Projection, ...]:
        """The linear layers of all."""
        return tuple(one for branch in self.branches for one in branch.mlp.projections)


FeedForward = GatedMLP | MLP | Experts | ParallelMLPs


def mixtures(one: FeedForward | None) -> tuple[Experts, ...]:
    """The mixtures of experts in a feed-forward."""
    if isinstance(one, ParallelMLPs):
        return tuple(mixture for branch in one.branches for mixture in mixtures(branch.mlp))
    return (one,) if isinstance(one, Experts) else ()
