"""Instructions of feed-forward layers: MLPs, mixtures of experts, and sums of several."""

from __future__ import annotations

from engine.models.feed_forward import (
    MLP,
    Branch,
    ExpandedIntegral,
    Experts,
    FeedForward,
    GatedMLP,
    ParallelMLPs,
)
from engine.models.forward_parts import Deltas, norm, products, sized
from kernels import ops
from kernels.ops import Activation, GaussianTopK, Instruction

# Buffer names, to which widths are added.
GATE, UP, ROUTES, ROUTER_INPUT = "gate", "up", "routes", "router input"
SHARED, SHARED_GATE, SMALL, MIXTURE = "shared expert", "shared gate", "small", "mixture"
BRANCH_INPUT, BRANCH = "branch input", "branch"


def feed_forward(
    one: FeedForward, stream: str, source: str, out: str, deltas: Deltas
) -> list[Instruction]:
    """From the buffer `source` to `out`; some parts read the residual stream itself."""
    match one:
        case GatedMLP() | MLP():
            return _mlp(one, source, out, deltas)
        case Experts():
            return _experts(one, stream, source, out, deltas)
        case ParallelMLPs():
            return _parallel(one, stream, source, out, deltas)


def _mlp(one: GatedMLP | MLP, source: str, out: str, deltas: Deltas) -> list[Instruction]:
    if isinstance(one, MLP):
        gate, up = sized(GATE, one.up), ""
        outs = ((one.up, gate),)
        limit = 0.0
    else:
        gate, up = sized(GATE, one.gate), sized(UP, one.up)
        outs = ((one.gate, gate), (one.up, up))
        limit = one.limit
    activated: Instruction
    if isinstance(one.activation, ExpandedIntegral):
        unit = one.activation
        activated = ops.Xielu(gate, unit.positive, unit.negative, unit.beta, unit.epsilon)
    else:
        activated = ops.Gate(gate, up, one.activation, gate, limit)
    inner = one.inner_norm if isinstance(one, GatedMLP) else None
    deviations = one.deviations if isinstance(one, GatedMLP) else None
    return [
        products(source, outs, deltas),
        *([] if deviations is None else [GaussianTopK(gate, deviations)]),
        activated,
        *([] if inner is None else [norm(inner, gate, gate)]),
        products(gate, ((one.down, out),), deltas),
    ]


def _experts(one: Experts, stream: str, source: str, out: str, deltas: Deltas) -> list[Instruction]:
    """The router, the experts, and the expert that all share."""
    made: list[Instruction] = []
    routes, read, into = sized(ROUTES, one.router), source, out
    if one.router_norm is not None:
        read = sized(ROUTER_INPUT, one.router, columns=True)
        made.append(norm(one.router_norm, stream, read))
    made.append(products(read, ((one.router, routes),), deltas))
    x = source
    if one.before is not None:
        x = sized(SMALL, one.before)
        into = f"{MIXTURE} {one.down.weights[0].shape[0]}"
        made.append(products(source, ((one.before, x),), deltas))
    up = one.up
    made.append(
        ops.Experts(
            x=x,
            scores=routes,
            gates=one.gate.weights,
            ups=() if up is None else up.weights,
            downs=one.down.weights,
            routing=one.routing,
            activation=one.activation,
            out=into,
            limit=one.limit,
            gate_bias=one.gate.bias,
            up_bias=None if up is None else up.bias,
            down_bias=one.down.bias,
            gate_scale=one.gate.scale,
            up_scale=None if up is None else up.scale,
            down_scale=one.down.scale,
            weighs_input=one.weighs_input,
            gate_rotation=one.gate.rotation,
            up_rotation=None if up is None else up.rotation,
            down_rotation=one.down.rotation,
            gate_changes=deltas(one.gate.name, one.gate.part),
            up_changes=() if up is None else deltas(up.name, up.part),
            down_changes=deltas(one.down.name, one.down.part),
        )
    )
    if one.after is not None:
        made.append(products(into, ((one.after, out),), deltas))
    if one.shared is not None:
        shared = sized(SHARED, one.shared.down)
        made += _mlp(one.shared, source, shared, deltas)
        if one.shared_gate is not None:
            made.append(products(source, ((one.shared_gate, SHARED_GATE),), deltas))
            made.append(ops.HeadGate(shared, SHARED_GATE, Activation.SIGMOID))
        made.append(ops.Add(out, shared))
    if one.output_scale != 1.0:
        made.append(ops.Scale(out, one.output_scale))
    return made


def _parallel(
    one: ParallelMLPs, stream: str, source: str, out: str, deltas: Deltas
) -> list[Instruction]:
    """The first branch writes to `out`, the others are added."""
    made: list[Instruction] = []
    for at, branch in enumerate(one.branches):
        into = BRANCH if at else out
        made += _branch(branch, stream, source, into, deltas)
        if at:
            made.append(ops.Add(out, BRANCH))
    return made


def _branch(one: Branch, stream: str, source: str, out: str, deltas: Deltas) -> list[Instruction]:
    made: list[Instruction] = []
    if one.norm is not None:
        made.append(norm(one.norm, stream, BRANCH_INPUT))
        source = BRANCH_INPUT
    made += feed_forward(one.mlp, stream, source, out, deltas)
    return made if one.after is None else [*made, norm(one.after, out, out)]
