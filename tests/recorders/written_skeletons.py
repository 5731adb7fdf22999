"""Skeletons of architectures that llama.cpp's own test writes no file of: Apertus, Gemma 4, Qwen3-VL.

The metadata are those that its converters write, at small sizes; the shapes are those that it loads.
"""

from __future__ import annotations

from typing import Any

from architecture_files import Skeleton

VOCABULARY, CONTEXT, WINDOW = 128, 256, 32
Shapes = dict[str, tuple[int, ...]]


def skeletons() -> dict[str, Skeleton]:
    """All of them, by the name under which they are recorded."""
    return {
        "apertus": _apertus(),
        "bitnet": _bitnet(),
        "gemma3n": _gemma3n(),
        "gemma4": _gemma4(),
        "gemma4-moe": _gemma4_moe(),
        "qwen2vl": _qwen_vl("qwen2vl"),
        "qwen3vl": _qwen_vl("qwen3vl"),
        "qwen3vlmoe": _qwen_vl("qwen3vlmoe"),
    }


def _skeleton(name: str, keys: dict[str, Any], tensors: Shapes) -> Skeleton:
    metadata: dict[str, tuple[str, Any]] = {"general.architecture": ("STRING", name)}
    usual = {
        "vocab_size": VOCABULARY,
        "context_length": CONTEXT,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }
    for key, value in (usual | keys).items():
        whole = key if key.startswith("xielu.") else f"{name}.{key}"
        first = value[0] if isinstance(value, list) else value
        kinds = {bool: "BOOL", int: "UINT32", float: "FLOAT32", str: "STRING"}
        kind = kinds[type(first)]
        if isinstance(value, list):
            kind = "INT32[]" if kind == "UINT32" else f"{kind}[]"
        metadata[whole] = kind, value
    return Skeleton(name, metadata, tensors)


def _sizes(layers: int, D: int, H: int, K: int, C: int, F: int | list[int]) -> dict[str, Any]:  # noqa: N803
    return {
        "block_count": layers,
        "embedding_length": D,
        "feed_forward_length": F,
        "attention.head_count": H,
        "attention.head_count_kv": K,
        "attention.key_length": C,
        "attention.value_length": C,
        "rope.dimension_count": C,
        "rope.freq_base": 10_000.0,
    }


def _ends(D: int, *, head: bool) -> Shapes:  # noqa: N803
    ends: Shapes = {"token_embd.weight": (VOCABULARY, D), "output_norm.weight": (D,)}
    return ends | ({"output.weight": (VOCABULARY, D)} if head else {})


def _layer(index: int, shapes: Shapes) -> Shapes:
    return {f"blk.{index}.{name}.weight": shape for name, shape in shapes.items()}


def _attention(D: int, H: int, K: int, C: int) -> Shapes:  # noqa: N803
    return {
        "attn_norm": (D,),
        "attn_q": (H * C, D),
        "attn_k": (K * C, D),
        "attn_v": (K * C, D),
        "attn_output": (D, H * C),
    }


def _mlp(D: int, F: int) -> Shapes:  # noqa: N803
    return {"ffn_norm": (D,), "ffn_gate": (F, D), "ffn_up": (F, D), "ffn_down": (D, F)}


def _apertus() -> Skeleton:
    D, H, K, C, F = 128, 4, 2, 32, 192  # noqa: N806
    tensors = _ends(D, head=True)
    for index in range(2):
        shapes = _attention(D, H, K, C) | _mlp(D, F) | {"attn_q_norm": (C,), "attn_k_norm": (C,)}
        del shapes["ffn_gate"]
        tensors |= _layer(index, shapes)
    factors = {"alpha_n": [0.8, 0.5], "alpha_p": [0.7, 0.9], "beta": [0.5, 0.4]}
    keys = {f"xielu.{name}": values for name, values in factors.items()}
    keys["xielu.eps"] = [-1e-6, -1e-6]
    return _skeleton("apertus", _sizes(2, D, H, K, C, F) | keys, tensors)


def _bitnet() -> Skeleton:
    D, H, K, C, F = 128, 4, 2, 32, 192  # noqa: N806
    tensors = _ends(D, head=False)
    for index in range(2):
        norms = {"attn_sub_norm": (D,), "ffn_sub_norm": (F,)}
        tensors |= _layer(index, _attention(D, H, K, C) | _mlp(D, F) | norms)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
            tensors[f"blk.{index}.{name}.scale"] = (1,)
    return _skeleton("bitnet", _sizes(2, D, H, K, C, F), tensors)


def _gemma3n() -> Skeleton:
    # llama.cpp fixes the layer that keys are shared from, the sparse layers and these three widths.
    layers, shared, sparse, streams, rank, P = 25, 20, 10, 4, 64, 256  # noqa: N806
    D, H, K, C, F = 64, 2, 1, 32, 96  # noqa: N806
    tensors = _ends(D, head=False) | {
        "altup_proj.weight": (streams - 1, D, D),
        "altup_unembd_proj.weight": (streams - 1, D, D),
        "per_layer_token_embd.weight": (VOCABULARY, P * layers),
        "per_layer_model_proj.weight": (P * layers, D),
        "per_layer_proj_norm.weight": (P,),
    }
    for index in range(layers):
        more: Shapes = {
            "attn_q_norm": (C,),
            "attn_k_norm": (C,),
            "post_attention_norm": (D,),
            "post_ffw_norm": (D,),
            "inp_gate": (P, D),
            "proj": (D, P),
            "post_norm": (D,),
            "altup_correct_coef": (streams, streams),
            "altup_correct_scale": (D,),
            "altup_predict_coef": (streams * streams, streams),
            "altup_router": (streams, D),
            "altup_router_norm": (D,),
            "laurel_l": (rank, D),
            "laurel_r": (D, rank),
            "laurel_post_norm": (D,),
        }
        tensors |= _layer(index, _attention(D, H, K, C) | _mlp(D, F) | more)
    keys = _sizes(layers, D, H, K, C, F) | {
        "attention.sliding_window": WINDOW,
        "attention.sliding_window_pattern": [bool((index + 1) % 5) for index in range(layers)],
        "attention.shared_kv_layers": layers - shared,
        "embedding_length_per_layer_input": P,
        "altup.active_idx": 0,
        "altup.num_inputs": streams,
        # The 95 % quantile of a normal distribution, as the converter computes it.
        "activation_sparsity_scale": [1.6448534727096558] * sparse
        + [float("-inf")] * (layers - sparse),
        "rope.freq_base": 1_000_000.0,
    }
    return _skeleton("gemma3n", keys, tensors)


def _gemma4_layer(D: int, H: int, K: int, C: int, F: int, *, kv: bool) -> Shapes:  # noqa: N803
    shapes = _attention(D, H, K, C) | _mlp(D, F)
    shapes |= {
        "attn_q_norm": (C,),
        "attn_k_norm": (C,),
        "post_attention_norm": (D,),
        "post_ffw_norm": (D,),
        "layer_output_scale": (1,),
    }
    if not kv:
        for name in ("attn_k", "attn_v", "attn_k_norm"):
            del shapes[name]
    return shapes


def _gemma4_keys(C: int, local: int, windows: list[bool]) -> dict[str, Any]:  # noqa: N803
    return {
        "attention.key_length": C,
        "attention.value_length": C,
        "attention.key_length_swa": local,
        "attention.value_length_swa": local,
        "attention.sliding_window": WINDOW,
        "attention.sliding_window_pattern": windows,
        "rope.dimension_count": C,
        "rope.dimension_count_swa": local,
        "rope.freq_base": 1_000_000.0,
        "rope.freq_base_swa": 10_000.0,
        "final_logit_softcapping": 30.0,
    }


def _gemma4() -> Skeleton:
    """Like E2B: per-layer embeddings, the last layers without keys and values and twice as wide."""
    D, H, K, C, local, F, P = 96, 4, 1, 64, 32, 128, 32  # noqa: N806
    windows, first_shared = [True, False, True, False, True, False], 4
    layers = len(windows)
    widths = [F if index < first_shared else 2 * F for index in range(layers)]
    tensors = _ends(D, head=False) | {
        "rope_freqs.weight": (C // 2,),
        "per_layer_token_embd.weight": (VOCABULARY, P * layers),
        "per_layer_model_proj.weight": (P * layers, D),
        "per_layer_proj_norm.weight": (P,),
    }
    for index, is_local in enumerate(windows):
        head = local if is_local else C
        shapes = _gemma4_layer(D, H, K, head, widths[index], kv=index < first_shared)
        shapes |= {"inp_gate": (P, D), "proj": (D, P), "post_norm": (D,)}
        tensors |= _layer(index, shapes)
    keys = _sizes(layers, D, H, K, C, widths) | _gemma4_keys(C, local, windows)
    keys |= {
        "attention.shared_kv_layers": layers - first_shared,
        "embedding_length_per_layer_input": P,
    }
    return _skeleton("gemma4", keys, tensors)


def _gemma4_moe() -> Skeleton:
    """Like 26B-A4B: experts beside the MLP; layers without a window take keys as values."""
    D, H, K, C, local, F, E, X = 96, 4, [2, 1, 2], 64, 32, 128, 4, 48  # noqa: N806
    windows = [True, False, True]
    tensors = _ends(D, head=False) | {"rope_freqs.weight": (C // 2,)}
    for index, is_local in enumerate(windows):
        shapes = _gemma4_layer(D, H, K[index], local if is_local else C, F, kv=True)
        if not is_local:
            del shapes["attn_v"]
        shapes |= {
            "ffn_gate_inp": (E, D),
            "pre_ffw_norm_2": (D,),
            "post_ffw_norm_1": (D,),
            "post_ffw_norm_2": (D,),
            "ffn_gate_up_exps": (E, 2 * X, D),
            "ffn_down_exps": (E, D, X),
        }
        tensors |= _layer(index, shapes)
        tensors[f"blk.{index}.ffn_gate_inp.scale"] = (D,)
        tensors[f"blk.{index}.ffn_down_exps.scale"] = (E,)
    keys = _sizes(len(windows), D, H, 1, C, F) | _gemma4_keys(C, local, windows)
    keys |= {
        "attention.head_count_kv": K,
        "attention.shared_kv_layers": 0,
        "embedding_length_per_layer_input": 0,
        "expert_count": E,
        "expert_used_count": 2,
        "expert_feed_forward_length": X,
    }
    return _skeleton("gemma4", keys, tensors)


def _qwen_vl(name: str) -> Skeleton:
    D, H, K, C, F, experts = 128, 4, 2, 32, 192, 6  # noqa: N806
    tensors, is_mixture = _ends(D, head=True), name == "qwen3vlmoe"
    for index in range(2):
        shapes = _attention(D, H, K, C) | _mlp(D, F)
        if is_mixture:
            for part in ("gate", "up"):
                shapes[f"ffn_{part}_exps"] = (experts, F, D)
                del shapes[f"ffn_{part}"]
            del shapes["ffn_down"]
            shapes |= {"ffn_down_exps": (experts, D, F), "ffn_gate_inp": (experts, D)}
        if name != "qwen2vl":
            shapes |= {"attn_q_norm": (C,), "attn_k_norm": (C,)}
        tensors |= _layer(index, shapes)
        if name == "qwen2vl":
            for part, rows in (("q", H * C), ("k", K * C), ("v", K * C)):
                tensors[f"blk.{index}.attn_{part}.bias"] = (rows,)
    keys = _sizes(2, D, H, K, C, F) | {"rope.dimension_sections": [6, 5, 5, 0]}
    if name == "qwen2vl":
        keys["attention.layer_norm_rms_epsilon"] = 1e-12  # llama.cpp reads none, and adds 0
    else:
        keys["n_deepstack_layers"] = 2
    if is_mixture:
        keys |= {"expert_count": experts, "expert_used_count": 3, "expert_feed_forward_length": F}
    return _skeleton(name, keys, tensors)
