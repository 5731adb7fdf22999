"""Instructions of what runs beside the residual stream: embeddings for layers, further streams."""

from __future__ import annotations

from engine.models.altup import AltUp, AltUpLayer
from engine.models.forward_parts import NORMED, STREAM, SUBLAYER_OUT, Deltas, norm, products
from engine.models.layers import LayerInput, LayerInputs
from kernels import ops
from kernels.ops import Instruction

# Buffer names. Of embeddings for single layers: those of all layers, and what one makes of its own.
LAYER_INPUTS, LAYER_INPUT, LAYER_GATE = "layer inputs", "layer input", "layer gate"
STREAMS, OTHER, ROUTED, MODALITIES = "streams", "other stream", "routed", "modalities"
PREDICTIONS, CORRECTIONS, LOW, SIDE = "predictions", "corrections", "side low", "side path"


def layer_inputs(one: LayerInputs, deltas: Deltas) -> list[Instruction]:
    """The embeddings of each token for all layers."""
    return [
        products(STREAM, ((one.projection, LAYER_INPUTS),), deltas),
        ops.Scale(LAYER_INPUTS, one.projection_scale),
        ops.HeadNorm(LAYER_INPUTS, one.norm.weight, one.norm.epsilon, one.norm.centred),
        ops.AddRows(LAYER_INPUTS, one.table, one.table_scale),
        ops.Scale(LAYER_INPUTS, one.scale),
    ]


def layer_input(one: LayerInput, deltas: Deltas) -> list[Instruction]:
    """The term of a layer's own embedding, from the stream to `SUBLAYER_OUT`."""
    width = one.gate.weight.shape[0]
    return [
        ops.Columns(LAYER_INPUTS, one.layer * width, width, LAYER_INPUT),
        products(STREAM, ((one.gate, LAYER_GATE),), deltas),
        ops.Gate(LAYER_GATE, LAYER_INPUT, one.activation, LAYER_GATE),
        products(LAYER_GATE, ((one.output, SUBLAYER_OUT),), deltas),
        norm(one.norm, SUBLAYER_OUT, SUBLAYER_OUT),
    ]


def divided(one: AltUp, deltas: Deltas) -> list[Instruction]:
    """All streams, of the embedding in the first."""
    made: list[Instruction] = []
    names = [f"{OTHER} {at}" for at in range(1, one.count)]
    for projection, name in zip(one.inputs, names, strict=True):
        made.append(products(STREAM, ((projection, name),), deltas))
        made.append(ops.MatchMagnitude(name, STREAM, one.epsilon))
    return [*made, ops.Join((STREAM, *names), STREAMS)]


def united(one: AltUp, deltas: Deltas) -> list[Instruction]:
    """The mean of all streams, each scaled like the first."""
    width = one.outputs[0].weight.shape[0]
    made: list[Instruction] = [ops.Columns(STREAMS, 0, width, STREAM)]
    names = [f"{OTHER} {at}" for at in range(1, one.count)]
    for at, (projection, name) in enumerate(zip(one.outputs, names, strict=True), 1):
        made.append(ops.Columns(STREAMS, at * width, width, SUBLAYER_OUT))
        made.append(products(SUBLAYER_OUT, ((projection, name),), deltas))
        made.append(ops.MatchMagnitude(name, STREAM, one.epsilon))
    made += [ops.Add(STREAM, name) for name in names]
    return [*made, ops.Scale(STREAM, 1 / one.count)]


def predicted(one: AltUpLayer, deltas: Deltas) -> list[Instruction]:
    """Predict all streams by each other, and take the first."""
    width = one.scale.shape[0]
    return [
        ops.Columns(STREAMS, 0, width, STREAM),
        *_modalities(one, deltas),
        products(MODALITIES, ((one.predict, PREDICTIONS),), deltas),
        ops.MixStreams(STREAMS, PREDICTIONS),
        ops.Columns(STREAMS, 0, width, STREAM),
    ]


def side_path(one: AltUpLayer, deltas: Deltas) -> list[Instruction]:
    """Add the side path of attention, which has the same input, to the stream."""
    return [
        products(NORMED, ((one.low, LOW),), deltas),
        products(LOW, ((one.high, SIDE),), deltas),
        norm(one.side_norm, SIDE, SIDE),
        ops.Add(SIDE, NORMED),
        ops.Add(STREAM, SIDE),
        ops.Scale(STREAM, one.side_scale),
    ]


def corrected(one: AltUpLayer, own: LayerInput | None, deltas: Deltas) -> list[Instruction]:
    """Correct all streams by what the layer changed, then all but the first by its own embedding."""
    width = one.scale.shape[0]
    made = [
        *_modalities(one, deltas),
        products(MODALITIES, ((one.correct, CORRECTIONS),), deltas),
        ops.Columns(STREAMS, 0, width, SUBLAYER_OUT),
        ops.Add(STREAM, SUBLAYER_OUT, -1.0),
        ops.AddToStreams(STREAMS, STREAM, CORRECTIONS),
    ]
    if own is None:
        return made
    return [
        *made,
        ops.Columns(STREAMS, 0, width, STREAM),
        ops.ScaleChannels(STREAM, one.scale),
        *layer_input(own, deltas),
        ops.AddToStreams(STREAMS, SUBLAYER_OUT, first=1),
    ]


def _modalities(one: AltUpLayer, deltas: Deltas) -> list[Instruction]:
    """What the router sees in the first stream: S values from -1 to 1."""
    return [
        norm(one.norm, STREAM, ROUTED),
        products(ROUTED, ((one.router, MODALITIES),), deltas),
        ops.Softcap(MODALITIES, 1.0),  # tanh
    ]
