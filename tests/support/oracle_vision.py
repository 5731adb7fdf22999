"""Oracle: tiny random picture encoders run through Hugging Face transformers in float32.

Run as a script (in an environment with transformers) it records `golden/vision.npz`: weights,
pictures and the rows for the text model.
"""

from __future__ import annotations

import logging
import math
import sys
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vision_files import CASES, RECORDED, Array, Case, Recorded, pixels, save

STEP = 64  # weights are multiples of 1/64, which compress well and are exact in float16
_TEXT = {
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 30,
    "head_dim": 16,
}
_VISION = (
    "visual.",
    "vision_tower.",
    "vision_model.",
    "embed_vision.",
    "connector.",
    "projector.",
    ".merger.mlp.",
    "resampler.",
)
_FACTORS = (  # ends of names
    *("norm.weight", "norm1.weight", "norm2.weight", "before.weight", "after.weight"),
    *("ln_pre.weight", "ln1.weight", "ln2.weight", "ln_q.weight", "ln_kv.weight", "ln_post.weight"),
    *("std_scale", "lambda_1", "lambda_2"),
)


def build(case: Case, seed: int) -> Any:
    """The model of a case in float32 with weights drawn from this seed."""
    logging.disable(logging.WARNING)
    torch.manual_seed(seed)
    model = _model(case).float().eval()
    with torch.no_grad():
        for name, one in model.state_dict().items():
            one.copy_(torch.round(_drawn(name, one) * STEP) / STEP)
    return model


def _drawn(name: str, before: Tensor) -> Tensor:
    """Random weights like those of trained models: factors near 1, and ranges that cut some values."""
    normal = torch.randn_like(before)
    if name.endswith(("_min", "_max")):
        sign = 1 if name.endswith("_max") else -1
        return sign * (torch.rand_like(before) + 0.5)
    if name.endswith(_FACTORS):
        return (0 if "soft_emb" in name else 1) + 0.25 * normal
    if before.ndim == 1:
        return 0.25 * normal
    is_table = "position" in name or "pos_embed" in name or "cls_token" in name
    return normal * (0.4 if is_table else 1 / math.sqrt(before[0].numel()))


def _model(case: Case) -> Any:
    import transformers as hf

    text = _TEXT | {"hidden_size": case.output}
    if case.projector == "qwen3vl_merger":
        tower = {
            "depth": case.layers,
            "hidden_size": case.width,
            "num_heads": case.heads,
            "intermediate_size": case.feed_forward,
            "patch_size": case.patch,
            "spatial_merge_size": case.merge,
            "out_hidden_size": case.output,
            "num_position_embeddings": case.side**2,
            "deepstack_visual_indexes": list(case.deep),
        }
        config = hf.Qwen3VLConfig(text_config=text, vision_config=tower | case.more)
        return hf.Qwen3VLForConditionalGeneration(config)
    tower = {
        "hidden_size": case.width,
        "intermediate_size": case.feed_forward,
        "num_hidden_layers": case.layers,
        "num_attention_heads": case.heads,
        "patch_size": case.patch,
        "image_size": case.side * case.patch,
        "layer_norm_eps": case.epsilon,
        **case.more,
    }
    if case.projector == "gemma3":
        config = hf.Gemma3Config(
            text_config=text,
            vision_config=tower,
            mm_tokens_per_image=(case.side // case.merge) ** 2,
        )
        return hf.Gemma3ForConditionalGeneration(config)
    if case.projector == "gemma4v":
        tower |= {
            "num_key_value_heads": case.heads,
            "head_dim": case.width // case.heads,
            "rms_norm_eps": case.epsilon,
            "pooling_kernel_size": case.merge,
            "position_embedding_size": case.side,
        }
        text |= {
            "layer_types": ["sliding_attention", "full_attention"],
            "vocab_size_per_layer_input": 30,
            "hidden_size_per_layer_input": 8,
            "num_kv_shared_layers": 0,
        }
        config = hf.Gemma4Config(text_config=text, vision_config=tower, audio_config=None)
        return hf.Gemma4ForConditionalGeneration(config)
    if case.projector == "gemma4uv":
        tower = {
            "patch_size": case.patch,
            "pooling_kernel_size": case.merge,
            "mm_embed_dim": case.width,
            "mm_posemb_size": case.side,
            "output_proj_dims": case.width,
            "rms_norm_eps": case.epsilon,
        }
        text |= {"layer_types": ["sliding_attention", "full_attention"]}
        config = hf.Gemma4UnifiedConfig(text_config=text, vision_config=tower, audio_config=None)
        return hf.Gemma4UnifiedForConditionalGeneration(config)
    if case.projector == "llama4":
        tower |= {
            "norm_eps": case.epsilon,
            "intermediate_size": case.merge**2 * case.width,
            "pixel_shuffle_ratio": 1 / case.merge,
            "projector_input_dim": 44,
            "projector_output_dim": 44,
            "vision_output_dim": 44,
        }
        text |= {"intermediate_size_mlp": 32, "num_local_experts": 2}
        config = hf.Llama4Config(text_config=text, vision_config=tower)
        return hf.Llama4ForConditionalGeneration(config)
    if case.projector == "resampler":
        return Resampling(hf.Idefics2VisionConfig(**tower), case)
    if case.projector == "minicpmv4_6":
        linear = {
            f"linear_{part}": 8
            for part in ("key_head_dim", "value_head_dim", "num_key_heads", "num_value_heads")
        }
        text |= {
            "model_type": "qwen3_5_text",
            "layer_types": ["linear_attention", "full_attention"],
        }
        config = hf.MiniCPMV4_6Config(
            text_config=text | linear, vision_config=tower, insert_layer_id=case.merging
        )
        return hf.MiniCPMV4_6ForConditionalGeneration(config)
    if case.projector == "glm4v":
        config = hf.Glm4vConfig(
            text_config=text,
            vision_config={
                "depth": case.layers,
                "hidden_size": case.width,
                "num_heads": case.heads,
                "patch_size": case.patch,
                "spatial_merge_size": case.merge,
                "image_size": case.side * case.patch,
                "rms_norm_eps": case.epsilon,
                "out_hidden_size": case.output,
                "intermediate_size": case.projection["inner"],
                **case.more,
            },
        )
        return hf.Glm4vForConditionalGeneration(config)
    if case.projector == "internvl":
        text |= {"model_type": "qwen2"}
        config = hf.InternVLConfig(
            text_config=text, vision_config=tower, downsample_ratio=1 / case.merge
        )
        return hf.InternVLForConditionalGeneration(config)
    if case.projector == "idefics3":
        tower |= {"model_type": "smolvlm_vision"}
        text |= {"model_type": "llama"}
        config = hf.SmolVLMConfig(text_config=text, vision_config=tower, scale_factor=case.merge)
        return hf.SmolVLMForConditionalGeneration(config)
    if case.projector == "lfm2":
        tower |= {"model_type": "siglip2_vision_model", "num_patches": case.side**2}
        text |= {"model_type": "lfm2", "layer_types": ["conv", "full_attention"]}
        config = hf.Lfm2VlConfig(
            text_config=text,
            vision_config=tower,
            downsample_factor=case.merge,
            projector_hidden_size=44,
            **case.projection,
        )
        return hf.Lfm2VlForConditionalGeneration(config)
    assert case.projector == "pixtral"
    tower |= {"model_type": "pixtral", "head_dim": case.width // case.heads}
    text |= {"model_type": "ministral3", "rms_norm_eps": case.epsilon}
    config = hf.Mistral3Config(
        text_config=text,
        vision_config=tower,
        spatial_merge_size=case.merge,
        vision_feature_layer=-1,
        **case.projection,
    )
    return hf.Mistral3ForConditionalGeneration(config)


class Resampling(torch.nn.Module):
    """MiniCPM-V before 4.6, which transformers lacks: its tower is Idefics 2's.

    Behind it are the attention and norms of torch that the model's makers use.
    """

    def __init__(self, config: Any, case: Case) -> None:
        from transformers.models.idefics2.modeling_idefics2 import Idefics2VisionTransformer

        super().__init__()
        width, queries = case.output, case.projection["queries"]
        tables = {"query": torch.empty(queries, width), "proj": torch.empty(width, width)}
        self.vision_tower = Idefics2VisionTransformer(config)
        self.resampler = torch.nn.ParameterDict(tables)
        self.resampler.kv_proj = torch.nn.Linear(case.width, width, bias=False)
        self.resampler.attn = torch.nn.MultiheadAttention(width, width // 128)
        for name in ("ln_q", "ln_kv", "ln_post"):
            setattr(self.resampler, name, torch.nn.LayerNorm(width, eps=case.epsilon))

    def rows(self, image: Tensor, side: int) -> Tensor:
        """The rows [n, W] of a picture [3, height, width]."""
        parts, (_, height, width) = self.resampler, image.shape
        hidden = self.vision_tower(image[None]).last_hidden_state[0]
        values = parts.ln_kv(parts.kv_proj(hidden))
        at = torch.meshgrid(
            torch.arange(height // side), torch.arange(width // side), indexing="ij"
        )
        quarter = values.shape[1] // 4
        waves = 1 / 10000 ** (torch.arange(quarter) / quarter)
        angles = [one.reshape(-1, 1) * waves for one in (at[1], at[0])]  # the column first
        places = torch.cat([f(one) for one in angles for f in (torch.sin, torch.cos)], 1)
        made, _ = parts.attn(parts.ln_q(parts["query"]), values + places, values)
        return parts.ln_post(made) @ parts["proj"]


def state_of(model: Any, case: Case) -> dict[str, Array]:
    """The weights of the encoder by their names, and the row between lines of Pixtral's rows."""
    found = {
        name: value.half().numpy()
        for name, value in model.state_dict().items()
        if any(part in name for part in _VISION) and ".head." not in name
    }
    if case.name == "minicpmv4_6-fine":
        found = {name: value for name, value in found.items() if "vit_merger." not in name}
    if case.projector == "pixtral":
        found["img_break"] = model.get_input_embeddings().weight[1].detach().half().numpy()
    return found


def encode(model: Any, case: Case, picture: Tensor) -> Tensor:
    """The rows [n, W] of a normalised picture [height, width, 3]."""
    image, side = picture.permute(2, 0, 1), case.patch
    side *= case.merge if case.projector == "gemma4uv" else 1
    rows, columns = picture.shape[0] // side, picture.shape[1] // side
    cut = image.reshape(3, rows, side, columns, side).permute(1, 3, 2, 4, 0)
    patches = cut.reshape(1, rows * columns, -1)
    with torch.inference_mode():
        match case.projector:
            case "qwen3vl_merger" | "glm4v":
                merge = case.merge
                squares = image.reshape(
                    3, rows // merge, merge, side, columns // merge, merge, side
                ).permute(1, 4, 2, 5, 0, 3, 6)
                frames = squares[..., None, :, :].expand(*squares.shape[:5], 2, side, side)
                grid = torch.tensor([[1, rows, columns]])
                found = model.model.visual(frames.reshape(rows * columns, -1), grid_thw=grid)
                deep = getattr(found, "deepstack_features", None) or ()
                return torch.cat((found.pooler_output, *deep), -1)
            case "gemma4v" | "gemma4uv":
                at = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
                places = torch.stack(at[::-1], -1).reshape(1, -1, 2)
                found = model.model.get_image_features(patches, places)
            case "llama4":
                found = model.vision_model(image[None]).last_hidden_state
                return model.multi_modal_projector(found)[0]
            case "resampler":
                return model.rows(image, side)
            case "minicpmv4_6":
                found = model.model.get_image_features(
                    image.reshape(3, rows, side, -1).transpose(1, 2).reshape(1, 3, side, -1),
                    torch.tensor([[rows, columns]]),
                    downsample_mode="4x" if case.merge == 2 else None,
                )
            case "idefics3":
                found = model.model.get_image_features(image[None, None])
            case "lfm2":
                found = model.model.get_image_features(
                    patches,
                    spatial_shapes=torch.tensor([[rows, columns]]),
                    pixel_attention_mask=torch.ones(1, rows * columns, dtype=torch.long),
                )
            case "pixtral":
                size = torch.tensor([picture.shape[:2]])
                # Both after one another: its own function cannot take a picture of one row.
                states = model.model.vision_tower(image[None], image_sizes=size).last_hidden_state
                whole = model.model.multi_modal_projector(states[0], size)
                lines = whole.view(rows // case.merge, columns // case.merge, -1)
                line = model.get_input_embeddings().weight[1].expand(len(lines), 1, -1)
                return torch.cat((lines, line), 1).flatten(0, 1)[:-1]
            case _:
                found = model.model.get_image_features(image[None])
    rows_of = found.pooler_output
    one = rows_of[0] if isinstance(rows_of, tuple | list) else rows_of
    return one.reshape(-1, one.shape[-1])


def some_picture(height: int, width: int, seed: int) -> Array:
    """A picture [height, width, 3] u8 of noise."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def run(case: Case, seed: int, sizes: Sequence[tuple[int, int]]) -> Recorded:
    """A random model, and its rows of pictures of these heights and widths."""
    model = build(case, seed)
    pictures = tuple(some_picture(*size, seed + at) for at, size in enumerate(sizes))
    rows = tuple(encode(model, case, pixels(case, one)).numpy() for one in pictures)
    return Recorded(case, state_of(model, case), pictures, rows)


def record() -> None:
    """Write `golden/vision.npz`."""
    import transformers

    origin = f"transformers {transformers.__version__}, torch {torch.__version__}, float32"
    save({n: run(one, zlib.crc32(n.encode()), one.sizes) for n, one in CASES.items()}, origin)
    print(f"{RECORDED.name}: {RECORDED.stat().st_size:,} bytes, {origin}")


if __name__ == "__main__":
    sys.exit(record())
