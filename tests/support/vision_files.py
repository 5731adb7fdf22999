"""Files of picture encoders (`mmproj`), made of weights that have transformers' names.

Names, keys and shapes are those that llama.cpp's converter writes. `oracle_vision.py` records the
weights of tiny random models in `golden/vision.npz`, with pictures and transformers' rows of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from numpy.typing import NDArray
from torch import Tensor

RECORDED = Path(__file__).parents[1] / "golden" / "vision.npz"
Array = NDArray[Any]
Tensors = dict[str, Array]


@dataclass(frozen=True)
class Case:
    """A kind of projector with the sizes of a model, small, odd and different from each other."""

    name: str
    projector: str
    patch: int
    merge: int
    side: int  # patches of a side of the learned positions
    sizes: tuple[tuple[int, int], ...]  # height and width of the recorded pictures
    layers: int = 2
    deep: tuple[int, ...] = ()
    epsilon: float = 1e-3  # of the tower's norms, where transformers lets one choose it
    width: int = 36
    heads: int = 3
    feed_forward: int = 52
    output: int = 40
    merging: int = 0  # the layer after which patches are merged
    more: dict[str, Any] = field(default_factory=dict)  # of the tower's configuration
    projection: dict[str, Any] = field(default_factory=dict)  # of the projector's


_QWEN = Case("qwen3vl", "qwen3vl_merger", 7, 2, 5, ((42, 70), (28, 14)), epsilon=1e-6)
_INTERNVL = Case("internvl", "internvl", 7, 2, 6, ((42, 42),))
_GLM4V = Case("glm4v", "glm4v", 7, 2, 5, ((42, 70), (28, 14)), feed_forward=40)
_MINICPM = Case(
    "minicpmv4_6", "minicpmv4_6", 7, 4, 5, ((56, 84), (28, 28)), 3, merging=1, feed_forward=20
)
_GEMMA4 = Case("gemma4v", "gemma4v", 6, 3, 20, ((54, 90), (72, 18)))
CASES = {
    case.name: case
    for case in (
        _QWEN,
        Case(**vars(_QWEN) | {"name": "qwen3vl-deep", "layers": 3, "deep": (0, 2)}),
        _GEMMA4,
        Case(
            **vars(_GEMMA4)
            | {"name": "gemma4v-clipped"}
            | {"more": {"use_clipped_linears": True, "standardize": True}}
        ),
        Case("gemma4uv", "gemma4uv", 6, 3, 20, ((54, 90), (72, 18)), 0, heads=0, feed_forward=0),
        Case("gemma3", "gemma3", 7, 4, 8, ((56, 56),)),
        Case("pixtral", "pixtral", 8, 2, 6, ((48, 64), (48, 16)), epsilon=1e-5),
        Case("lfm2", "lfm2", 6, 2, 5, ((36, 48), (60, 12))),
        Case("idefics3", "idefics3", 8, 2, 4, ((32, 32), (48, 48))),
        Case(**vars(_INTERNVL) | {"more": {"attention_bias": True}}),
        Case(
            **vars(_INTERNVL)
            | {"name": "internvl-large", "epsilon": 1e-6}  # which transformers has for its keys
            | {"more": {"norm_type": "rms_norm", "use_qk_norm": True}}
        ),
        _MINICPM,
        Case(**vars(_MINICPM) | {"name": "minicpmv4_6-fine", "merge": 2, "layers": 2}),
        Case(
            *("resampler", "resampler", 7, 1, 5, ((42, 70), (28, 14))),
            feed_forward=20,
            output=128,  # a head has as many channels
            projection={"queries": 5},
        ),
        Case("llama4", "llama4", 7, 2, 6, ((42, 42),), epsilon=1e-5, feed_forward=144),
        Case(**vars(_GLM4V) | {"more": {"hidden_act": "silu"}, "projection": {"inner": 56}}),
    )
}
_PARTS = {
    "ln1": ("layer_norm1", "norm1", "attention_norm", "input_layernorm", "layernorm_before"),
    "ln2": ("layer_norm2", "norm2", "ffn_norm", "pre_feedforward_layernorm", "layernorm_after"),
    "attn_post_norm": ("post_attention_layernorm",),
    "ffn_post_norm": ("post_feedforward_layernorm",),
    "attn_q": ("q_proj",),
    "attn_k": ("k_proj",),
    "attn_v": ("v_proj",),
    "attn_qkv": ("qkv",),
    "attn_q_norm": ("q_norm",),
    "attn_k_norm": ("k_norm",),
    "attn_out": ("out_proj", "o_proj", "proj", "projection_layer"),
    "ls1": ("lambda_1",),
    "ls2": ("lambda_2",),
    "ffn_gate": ("gate_proj",),
    "ffn_up": ("up_proj", "fc1", "linear_fc1"),
    "ffn_down": ("down_proj", "fc2", "linear_fc2"),
}
_OF_BLOCK = {theirs: ours for ours, names in _PARTS.items() for theirs in names}
_BLOCK = re.compile(
    r"(?:layers?|blocks)\.(\d+)\.(?:(?:self_attn|attn|attention|mlp|feed_forward)\.)?"
    r"(\w+?)(?:\.linear)?(?:\.(\w+))?$"
)
_OTHERS = {  # ends of names without "weight" and "bias"
    "patch_embedder.position_embedding_table": "v.position_embd.weight",
    "multi_modal_projector.mm_input_projection_weight": "mm.input_projection.weight",
    "patch_embed.proj": "v.patch_embd",
    "patch_embedding": "v.patch_embd",
    "patch_embedder.input_proj": "v.patch_embd",
    "patch_conv": "v.patch_embd",
    "pos_embed": "v.position_embd",
    "position_embedding": "v.position_embd",
    "ln_pre": "v.pre_ln",
    "post_layernorm": "v.post_ln",
    "std_bias": "v.std_bias",
    "std_scale": "v.std_scale",
    "visual.post_conv_layernorm": "v.norm_embd",
    "visual.downsample": "mm.patch_merger",
    "visual.merger.proj": "mm.model.fc",
    "visual.merger.post_projection_norm": "mm.post_norm",
    "visual.merger.gate_proj": "mm.gate",
    "visual.merger.up_proj": "mm.up",
    "visual.merger.down_proj": "mm.down",
    "visual.merger.norm": "v.post_ln",
    "visual.merger.linear_fc1": "mm.0",
    "visual.merger.linear_fc2": "mm.2",
    "multi_modal_projector.mm_soft_emb_norm": "mm.soft_emb_norm",
    "multi_modal_projector.layer_norm": "mm.input_norm",
    "multi_modal_projector.norm": "mm.input_norm",
    "multi_modal_projector.patch_merger.merging_layer": "mm.patch_merger",
    "multi_modal_projector.linear_1": "mm.1",
    "multi_modal_projector.linear_2": "mm.2",
    "patch_embeddings.projection": "v.patch_embd",
    "embeddings.cls_token": "v.class_embd",
    "embeddings.position_embeddings": "v.position_embd.weight",
    "embed_vision.embedding_projection": "mm.input_projection",
    "connector.modality_projection.proj": "mm.model.fc",
    **{
        f"vit_merger.{theirs}": f"v.vit_merger.{ours}"
        for theirs, ours in (
            *((f"self_attn.{one}_proj", f"attn_{one}") for one in ("q", "k", "v", "out")),
            *(("layer_norm1", "ln1"), ("pre_norm", "ds_ln")),
            *(("linear_1", "ds_ffn_up"), ("linear_2", "ds_ffn_down")),
        )
    },
    "resampler.query": "resampler.query",
    "resampler.proj": "resampler.proj.weight",
    "resampler.kv_proj": "resampler.kv",
    "resampler.attn.out_proj": "resampler.attn.out",
    **{f"resampler.{one}": f"resampler.{one}" for one in ("ln_q", "ln_kv", "ln_post")},
    "patch_embedding.linear": "v.patch_embd",
    "vision_model.class_embedding": "v.class_embd",
    "positional_embedding_vlm": "v.position_embd.weight",
    "layernorm_pre": "v.pre_ln",
    "layernorm_post": "v.post_ln",
    "vision_adapter.mlp.fc1": "mm.model.mlp.1",
    "vision_adapter.mlp.fc2": "mm.model.mlp.2",
    "merger.mlp.0.pre_norm": "mm.input_norm",
    "merger.mlp.0.linear_1": "mm.up",
    "merger.mlp.0.linear_2": "mm.down",
    "embed_vision.patch_ln1": "v.patch_norm.1",
    "embed_vision.patch_dense": "v.patch_embd",
    "embed_vision.patch_ln2": "v.patch_norm.2",
    "embed_vision.pos_embedding": "v.position_embd.weight",
    "embed_vision.pos_norm": "v.patch_norm.3",
    "multimodal_embedder.embedding_projection": "mm.input_projection",
    "img_break": "v.token_embd.img_break",
}
_OF_PROJECTOR = {  # where a name means another tensor than in other projectors
    "llama4": {"multi_modal_projector.linear_1": "mm.model.fc"},
    "internvl": {
        "multi_modal_projector.layer_norm": "mm.model.mlp.0",
        "multi_modal_projector.linear_1": "mm.model.mlp.1",
        "multi_modal_projector.linear_2": "mm.model.mlp.3",
    },
}


def tensors(case: Case, state: Mapping[str, Array]) -> Tensors:
    """The tensors of the file, from weights by their transformers names."""
    made: Tensors = {}
    for name, value in state.items():
        if "attn.in_proj_" in name:
            for one, part in zip("qkv", np.split(value, 3), strict=True):
                made[f"resampler.attn.{one}.{name.rpartition('_')[2]}"] = part.astype(np.float32)
            continue
        ours, wide = _name(case, name), value.astype(np.float32)
        wide = wide.T if ours == "resampler.proj.weight" else wide
        if case.projector == "pixtral" and ours.endswith(("attn_q.weight", "attn_k.weight")):
            halves = wide.reshape(case.heads, 2, -1, case.width)
            wide = halves.swapaxes(1, 2).reshape(wide.shape)
        if ours == "mm.soft_emb_norm.weight":
            wide = wide + 1
        if case.projector == "gemma4uv":
            wide = _unified(case, ours, wide)
        elif ours == "v.patch_embd.weight" and wide.ndim == 2 and case.projector != "llama4":
            side = case.patch
            wide = wide.reshape(case.width, side, side, 3).transpose(0, 3, 1, 2)
        if wide.ndim == 5:  # of two frames
            made[f"{ours}.1"] = wide[:, :, 1]
            wide = wide[:, :, 0]
        made[ours] = wide.reshape(1) if wide.ndim == 0 else wide
    return made


def _unified(case: Case, name: str, value: Array) -> Array:
    """A tensor of Gemma 4 12B, whose pixels are by channel in the file."""
    if name == "v.position_embd.weight":
        return value.swapaxes(0, 1)
    if value.shape[-1] != 3 * (case.patch * case.merge) ** 2:
        return value
    return value.reshape(*value.shape[:-1], -1, 3).swapaxes(-1, -2).reshape(value.shape)


def _name(case: Case, name: str) -> str:
    if found := re.search(r"deepstack_merger_list\.(\d+)\.(?:linear_)?(.*)", name):
        return f"v.deepstack.{case.deep[int(found[1])]}.{found[2]}"
    if found := _BLOCK.search(name):
        part = _OF_BLOCK[found[2]]
        if case.projector == "llama4" and found[2] == "post_attention_layernorm":
            part = "ln2"
        return f"v.blk.{found[1]}.{part}.{found[3] or 'weight'}"
    for theirs, ours in (_OTHERS | _OF_PROJECTOR.get(case.projector, {})).items():
        if name.endswith(theirs):
            return ours
        for part in (".weight", ".bias"):
            if name.endswith(theirs + part):
                return ours + part
    raise KeyError(name)


def keys(case: Case) -> dict[str, Any]:
    """The metadata of the file."""
    of_merge = {
        "qwen3vl_merger": "spatial_merge_size",
        "pixtral": "spatial_merge_size",
    }
    made: dict[str, Any] = {
        "projection_dim": case.output,
        "image_size": case.side * case.patch,
        "patch_size": case.patch,
        "embedding_length": case.width,
        "feed_forward_length": case.projection.get("inner", case.feed_forward),
        "block_count": case.layers,
        "attention.head_count": case.heads,
        "attention.layer_norm_epsilon": case.epsilon,
        "image_mean": [_moments(case)[0]] * 3,
        "image_std": [_moments(case)[1]] * 3,
    }
    if case.merge != {"gemma3": 4, "gemma4v": 3, "gemma4uv": 3, "glm4v": 2}.get(case.projector):
        made[of_merge.get(case.projector, "projector.scale_factor")] = case.merge
    if case.projector == "qwen3vl_merger":
        made["is_deepstack_layers"] = [at in case.deep for at in range(case.layers)]
    if case.projector == "minicpmv4_6":
        made["wa_layer_indexes"] = [case.merging]
    use = f"clip.use_{'silu' if case.more.get('hidden_act') == 'silu' else 'gelu'}"
    is_gemma4 = case.projector.startswith("gemma4")
    kind = "clip.vision.projector_type" if is_gemma4 else "clip.projector_type"
    more: dict[str, Any] = {}
    if case.projector == "resampler":
        made["projection_dim"] = 0
        more = {"clip.minicpmv_version": 3, "clip.minicpmv_query_num": case.projection["queries"]}
    return {
        "clip.has_vision_encoder": True,
        **more,
        **{f"clip.vision.{key}": value for key, value in made.items()},
        kind: case.projector,
        **({} if is_gemma4 else {use: True}),
    }


def _moments(case: Case) -> tuple[float, float]:
    """Mean and deviation that pixels are normalised by; Gemma 4's are not."""
    return (0.0, 1.0) if case.projector.startswith("gemma4") else (0.5, 0.5)


def write(
    path: Path,
    metadata: Mapping[str, Any],
    weights: Mapping[str, Array],
    format: str = "F32",
    architecture: str = "clip",
) -> Path:
    """Write a file; its matrices have this format where their rows allow it."""
    writer = GGUFWriter(path, architecture)
    for key, value in metadata.items():
        match value:
            case list():
                writer.add_array(key, value)
            case str():
                writer.add_string(key, value)
            case bool():
                writer.add_bool(key, value)
            case float():
                writer.add_float32(key, value)
            case _ if key == "clip.minicpmv_version" and value < 1 << 31:
                writer.add_int32(key, value)
            case _:
                writer.add_uint32(key, value)
    for name, value in weights.items():
        whole = np.ascontiguousarray(value, dtype=np.float32)
        stored = _format(name, whole, format)
        writer.add_tensor(name, quantize(whole, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _format(name: str, value: Array, format: str) -> GGMLQuantizationType:
    """The format of a tensor, as llama.cpp's converter and its quantizer choose it."""
    if value.ndim == 1 or name == "v.position_embd.weight":
        return GGMLQuantizationType.F32
    if name.startswith("v.patch_embd") or (format == "Q8_0" and value.shape[-1] % 32):
        return GGMLQuantizationType.F32 if format == "F32" else GGMLQuantizationType.F16
    return GGMLQuantizationType[format]


def widened(
    metadata: Mapping[str, Any], weights: Mapping[str, Array], times: int
) -> tuple[dict[str, Any], Tensors]:
    """A file with so many times as many channels, of which the weights are drawn anew."""
    random = np.random.default_rng(7)
    made: Tensors = {}
    for name, value in weights.items():
        shape = [times * size for size in value.shape]
        if value.ndim == 4:  # a convolution
            shape[2:] = value.shape[2:]
        if name.startswith("v.patch_norm.1"):  # of pixels
            shape = list(value.shape)
        if name.startswith("v.patch_embd"):
            shape[1:] = value.shape[1:]
        elif name.startswith(("v.position_embd", "v.class_embd", "resampler.query")):
            shape = [*value.shape[:-1], shape[-1]]
        elif value.shape == (1,):
            shape = [1]
        spread = 1 / np.sqrt(np.prod(shape[1:])) if len(shape) > 1 else 0.1
        drawn = spread * random.standard_normal(shape)
        made[name] = value if shape == [1] else drawn + 1 if _is_factor(name) else drawn
    wide = ("projection_dim", "embedding_length", "feed_forward_length")
    stretched = {f"clip.vision.{key}": times * metadata[f"clip.vision.{key}"] for key in wide}
    return {**metadata, **stretched}, made


def _is_factor(name: str) -> bool:
    """Whether a tensor is the weight of a norm, or another factor."""
    return "scale" in name or bool(re.search(r"(norm|ln\d?|ln)\.weight$", name))


@dataclass(frozen=True)
class Recorded:
    """A model, pictures, and the rows that transformers makes of them."""

    case: Case
    state: Tensors  # weights by their transformers names
    pictures: tuple[Array, ...]  # [height, width, 3] u8
    rows: tuple[Array, ...]  # [n, W] f32

    def write(self, path: Path, format: str = "F32") -> Path:
        """Write the file of the model."""
        return write(path, keys(self.case), tensors(self.case, self.state), format)


def pixels(case: Case, picture: Array) -> Tensor:
    """A picture u8, normalised for a model."""
    mean, deviation = _moments(case)
    return (torch.from_numpy(picture.astype(np.float32)) / 255 - mean) / deviation


def save(models: Mapping[str, Recorded], origin: str) -> None:
    """Write the file of all models; the weights of one are joined, which compresses better."""
    made: Tensors = {"origin": np.array(origin)}
    for name, one in models.items():
        shapes = json.dumps({key: value.shape for key, value in one.state.items()})
        made[f"{name}/shapes"] = np.frombuffer(shapes.encode(), np.uint8)
        made[f"{name}/weights"] = np.concatenate([value.ravel() for value in one.state.values()])
        for at, (picture, rows) in enumerate(zip(one.pictures, one.rows, strict=True)):
            made |= {f"{name}/picture {at}": picture, f"{name}/rows {at}": rows}
    np.savez_compressed(RECORDED, **made)


def recorded() -> dict[str, Recorded]:
    """The recorded models by the names of their cases."""
    with np.load(RECORDED) as rows:
        return {name: _restore(case, rows) for name, case in CASES.items()}


def _restore(case: Case, rows: Mapping[str, Array]) -> Recorded:
    shapes = json.loads(rows[f"{case.name}/shapes"].tobytes())
    flat, state, start = rows[f"{case.name}/weights"], {}, 0
    for name, shape in shapes.items():
        end = start + int(np.prod(shape))
        state[name] = flat[start:end].reshape(shape)
        start = end
    pictures, found = (
        tuple(rows[f"{case.name}/{part} {at}"] for at in range(len(case.sizes)))
        for part in ("picture", "rows")
    )
    return Recorded(case, state, pictures, found)
