"""Parts of the tiny configurations of `transformers_cases.py` that several have in common.

The functions change a saved configuration where the converter expects the keys of published models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

Config = dict[str, Any]
WINDOW = 16
GEMMA3N_WIDTH = 64  # of feed-forwards

SHARED: Config = {
    "vocab_size": 96,
    "hidden_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 80,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@dataclass(frozen=True)
class Case:
    """One model: transformers' name of its kind, and what its configuration has of its own."""

    kind: str
    config: Config
    # Changes the saved configuration for the converter.
    rename: Callable[[Config], None] | None = None
    ineffective: tuple[str, ...] = ()  # ends of the names of parameters that change no logits

    @property
    def vocabulary(self) -> int:
        """The number of tokens."""
        return SHARED["vocab_size"]


LINEAR, FULL, SLIDING, CONV = "linear_attention", "full_attention", "sliding_attention", "conv"
ROPE = {"rope_type": "default", "rope_theta": 10_000.0}
HALF_ROPE = ROPE | {"partial_rotary_factor": 0.5}  # of a half of the channels of a head
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 32,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
DELTA_NETS = {
    "head_dim": 16,
    "rope_parameters": HALF_ROPE,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "layer_types": [LINEAR, LINEAR, LINEAR, FULL],
}
MROPE = {
    "rope_parameters": HALF_ROPE | {"mrope_section": [2, 1, 1], "mrope_interleaved": True},
}
MIXTURE = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24}
GRANITE = {
    "embedding_multiplier": 6.0,
    "attention_multiplier": 0.2,
    "residual_multiplier": 0.4,
    "logits_scaling": 3.0,
}
MAMBA = {
    "mamba_n_heads": 6,
    "mamba_d_head": 16,
    "mamba_n_groups": 2,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_chunk_size": 32,
}
GEMMA4 = {
    "num_hidden_layers": 6,
    "layer_types": [SLIDING, SLIDING, FULL, SLIDING, SLIDING, FULL],
    "sliding_window": WINDOW,
    "head_dim": 8,
    "global_head_dim": 16,
    "intermediate_size": 64,
    "vocab_size_per_layer_input": 96,
    "hidden_size_per_layer_input": 16,
    "rope_parameters": {
        SLIDING: ROPE,
        FULL: {
            "rope_type": "proportional",
            "partial_rotary_factor": 0.5,
            "rope_theta": 1_000_000.0,
        },
    },
    "final_logit_softcapping": 3.0,
    "tie_word_embeddings": True,
}
SIGMOID_MOE = {
    "num_hidden_layers": 3,
    "first_k_dense_replace": 1,
    "n_routed_experts": 6,
    "num_experts_per_tok": 3,
    "n_shared_experts": 1,
    "moe_intermediate_size": 24,
    "routed_scaling_factor": 2.5,
}
LATENT = {
    "num_key_value_heads": 6,
    "q_lora_rank": 32,
    "kv_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 12,
    "rope_parameters": ROPE,
}
NEMOTRON = {
    "head_dim": 16,
    "mamba_num_heads": 4,  # the converter expects an inner width that is a multiple of 64
    "mamba_head_dim": 16,
    "ssm_state_size": 16,
    "n_groups": 2,
    "conv_kernel": 4,
    "chunk_size": 32,
}


def mamba_layers(config: Config) -> None:
    """The names of layers in published Granite models."""
    names = {LINEAR: "mamba", FULL: "attention"}
    config["layer_types"] = [names[one] for one in config["layer_types"]]


def sample_deviation(config: Config) -> None:
    """The cutoff of sparse layers: llama.cpp divides by one channel less in standard deviations."""
    normal, factor = NormalDist(), (1 - 1 / GEMMA3N_WIDTH) ** 0.5
    config["activation_sparsity_pattern"] = [
        normal.cdf(normal.inv_cdf(part) * factor) if part else 0.0
        for part in config["activation_sparsity_pattern"]
    ]


def no_rope_layers(config: Config) -> None:
    """Which layers have positions, as published models state it."""
    config["no_rope_layers"] = [int(base > 0) for base in config["layer_rope_theta"]]


def scoring_function(config: Config) -> None:
    """Published models state it, and transformers computes no other."""
    config["scoring_func"] = "sigmoid"


def mistral4(config: Config) -> None:
    """The only class that the converter knows for this kind."""
    config["architectures"] = ["Mistral3ForConditionalGeneration"]


def dense_nemotron(config: Config) -> None:
    """A model without experts, as published: the converter goes by the presence of keys."""
    letters = {LINEAR: "M", FULL: "*", "mlp": "-"}
    layers = config.get("layers_block_type") or config["layer_types"]
    # For a type that transformers knows, the converter would get their defaults.
    del config["num_experts_per_tok"], config["n_routed_experts"]
    config |= {"model_type": "dense", "num_hidden_layers": len(layers)}
    config.pop("layers_block_type", None)
    config["hybrid_override_pattern"] = "".join(letters[one] for one in layers)
