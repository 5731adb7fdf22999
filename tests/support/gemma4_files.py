"""Small Gemma 4 models: like E2B, with per-layer embeddings and shared keys, or with experts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import architecture_files as files

V, D, HEADS, WIDTH, LOCAL_WIDTH, F, P = 128, 64, 4, 32, 16, 96, 16
EXPERTS, EXPERT_WIDTH = 4, 48
WINDOWS = [True, False, True, False, True, False]
SHARED = 2  # layers
TABLE = "per_layer_token_embd.weight"
Shapes = dict[str, tuple[int, ...]]
Keys = dict[str, tuple[str, Any] | None]


def write(path: Path, changes: Keys | None = None, tensors: Shapes | None = None) -> Path:
    """Write one like E2B, with other values of some keys, without the prefix, and more tensors."""
    layers, first = len(WINDOWS), len(WINDOWS) - SHARED
    widths = [F if at < first else 2 * F for at in range(layers)]
    shapes: Shapes = {
        "rope_freqs.weight": (WIDTH // 2,),
        TABLE: (V, P * layers),
        "per_layer_model_proj.weight": (P * layers, D),
        "per_layer_proj_norm.weight": (P,),
    }
    for at, local in enumerate(WINDOWS):
        layer = _layer(LOCAL_WIDTH if local else WIDTH, widths[at])
        layer |= {"inp_gate": (P, D), "proj": (D, P), "post_norm": (D,)}
        if at >= first:
            layer = {name: layer[name] for name in layer if name[:6] not in ("attn_k", "attn_v")}
        shapes |= _named(at, layer)
    keys: Keys = {
        "block_count": ("UINT32", layers),
        "feed_forward_length": ("INT32[]", widths),
        "attention.sliding_window_pattern": ("BOOL[]", WINDOWS),
        "attention.shared_kv_layers": ("UINT32", SHARED),
        "embedding_length_per_layer_input": ("UINT32", P),
    }
    return _write(path, keys | (changes or {}), shapes | (tensors or {}))


def write_mixture(path: Path, changes: Keys | None = None, tensors: Shapes | None = None) -> Path:
    """Write one with experts; its second layer has no window and takes keys as values."""
    shapes: Shapes = {"rope_freqs.weight": (WIDTH // 2,)}
    for at, local in enumerate([True, False]):
        layer = _layer(LOCAL_WIDTH if local else WIDTH, F)
        layer |= {
            "ffn_gate_inp": (EXPERTS, D),
            "pre_ffw_norm_2": (D,),
            "post_ffw_norm_1": (D,),
            "post_ffw_norm_2": (D,),
            "ffn_gate_up_exps": (EXPERTS, 2 * EXPERT_WIDTH, D),
            "ffn_down_exps": (EXPERTS, D, EXPERT_WIDTH),
        }
        if not local:
            del layer["attn_v"]
        shapes |= _named(at, layer)
        shapes[f"blk.{at}.ffn_gate_inp.scale"] = (D,)
        shapes[f"blk.{at}.ffn_down_exps.scale"] = (EXPERTS,)
    keys: Keys = {
        "block_count": ("UINT32", 2),
        "feed_forward_length": ("UINT32", F),
        "attention.sliding_window_pattern": ("BOOL[]", [True, False]),
        "expert_count": ("UINT32", EXPERTS),
        "expert_used_count": ("UINT32", 2),
        "expert_feed_forward_length": ("UINT32", EXPERT_WIDTH),
    }
    return _write(path, keys | (changes or {}), shapes | (tensors or {}))


def _write(path: Path, changes: Keys, shapes: Shapes) -> Path:
    keys: Keys = {
        "vocab_size": ("UINT32", V),
        "context_length": ("UINT32", 256),
        "embedding_length": ("UINT32", D),
        "attention.head_count": ("UINT32", HEADS),
        "attention.head_count_kv": ("UINT32", 1),
        "attention.key_length": ("UINT32", WIDTH),
        "attention.value_length": ("UINT32", WIDTH),
        "attention.key_length_swa": ("UINT32", LOCAL_WIDTH),
        "attention.value_length_swa": ("UINT32", LOCAL_WIDTH),
        "attention.sliding_window": ("UINT32", 32),
        "attention.layer_norm_rms_epsilon": ("FLOAT32", 1e-6),
        "rope.freq_base": ("FLOAT32", 1e6),
        "final_logit_softcapping": ("FLOAT32", 30.0),
    }
    kept = {f"gemma4.{key}": value for key, value in (keys | changes).items() if value is not None}
    ends = {"token_embd.weight": (V, D), "output_norm.weight": (D,)}
    metadata = {"general.architecture": ("STRING", "gemma4")} | kept
    return files.write(files.Skeleton("gemma4", metadata, ends | shapes), path)


def _layer(width: int, inner: int) -> Shapes:
    return {
        "attn_norm": (D,),
        "attn_q": (HEADS * width, D),
        "attn_k": (width, D),
        "attn_v": (width, D),
        "attn_output": (D, HEADS * width),
        "attn_q_norm": (width,),
        "attn_k_norm": (width,),
        "post_attention_norm": (D,),
        "ffn_norm": (D,),
        "ffn_gate": (inner, D),
        "ffn_up": (inner, D),
        "ffn_down": (D, inner),
        "post_ffw_norm": (D,),
        "layer_output_scale": (1,),
    }


def _named(index: int, shapes: Shapes) -> Shapes:
    return {f"blk.{index}.{name}.weight": shape for name, shape in shapes.items()}
