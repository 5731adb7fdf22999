"""Tiny configurations of transformers, one or more for each family that it shares with llama.cpp.

Each has every kind of layer of its family in few layers, several query heads to a key/value head,
and windows and original contexts far shorter than the recorded tokens. Multipliers that the converter
applies to weights are such that float16 still holds these.

Left out, because llama.cpp computes or converts them otherwise: Phi-3.5-MoE (RMS norms in place of
layer norms, and shares that are a softmax of the chosen) and BitNet (its norms are not converted).
"""

from __future__ import annotations

from transformers_configs import (
    CONV,
    DELTA_NETS,
    FULL,
    GEMMA3N_WIDTH,
    GEMMA4,
    GRANITE,
    HALF_ROPE,
    LATENT,
    LINEAR,
    LLAMA3,
    MAMBA,
    MIXTURE,
    MROPE,
    NEMOTRON,
    ROPE,
    SIGMOID_MOE,
    SLIDING,
    WINDOW,
    YARN,
    Case,
    dense_nemotron,
    mamba_layers,
    mistral4,
    no_rope_layers,
    sample_deviation,
    scoring_function,
)

CASES = {
    "qwen35": Case("qwen3_5_text", DELTA_NETS | MROPE),
    "qwen35moe": Case(
        "qwen3_5_moe_text", DELTA_NETS | MROPE | MIXTURE | {"shared_expert_intermediate_size": 40}
    ),
    "qwen3next": Case(
        "qwen3_next",
        DELTA_NETS | MIXTURE | {"shared_expert_intermediate_size": 40},
    ),
    "lfm2": Case(
        "lfm2",
        {
            "layer_types": [CONV, CONV, FULL, CONV],
            "conv_L_cache": 3,
            "block_auto_adjust_ff_dim": False,
            "tie_word_embeddings": True,
        },
    ),
    "lfm2moe": Case(
        "lfm2_moe",
        MIXTURE
        | {
            "layer_types": [CONV, FULL, CONV, FULL],
            "conv_L_cache": 3,
            "num_dense_layers": 1,
            "tie_word_embeddings": True,
        },
    ),
    "granite": Case("granite", GRANITE | {"tie_word_embeddings": True}),
    "granitehybrid": Case(
        "granitemoehybrid",
        GRANITE
        | MAMBA
        | {
            "layer_types": [LINEAR, LINEAR, FULL, LINEAR],
            "position_embedding_type": "nope",
            "num_local_experts": 5,
            "num_experts_per_tok": 2,
            "intermediate_size": 24,
            "shared_intermediate_size": 40,
        },
        mamba_layers,
    ),
    "granitehybrid-dense": Case(
        "granitemoehybrid",
        GRANITE
        | MAMBA
        | {
            "layer_types": [LINEAR, FULL, LINEAR],
            "num_hidden_layers": 3,
            "position_embedding_type": "nope",
            "num_local_experts": 0,
            "num_experts_per_tok": 0,
            "shared_intermediate_size": 80,
            "tie_word_embeddings": True,
        },
        mamba_layers,
    ),
    "granitehybrid-attention": Case(
        "granitemoehybrid",
        GRANITE
        | MAMBA
        | {
            "layer_types": [FULL, FULL],
            "num_hidden_layers": 2,
            # Only without recurrent layers the converter notes that positions are rotated.
            "position_embedding_type": "rope",
            "num_local_experts": 0,
            "num_experts_per_tok": 0,
            "shared_intermediate_size": 80,
            "tie_word_embeddings": True,
        },
        mamba_layers,
    ),
    "granitemoe": Case(
        "granitemoe",
        GRANITE | {"num_hidden_layers": 3, "num_local_experts": 5, "intermediate_size": 24},
    ),
    "granite_swa": Case(
        "granite_swa",
        GRANITE
        | {
            "layer_types": [FULL, SLIDING, SLIDING, SLIDING],
            "sliding_window": WINDOW,
            "layer_rope_theta": [0.0, 10_000.0, 10_000.0, 10_000.0],
        },
        no_rope_layers,
    ),
    "smollm3": Case("smollm3", {"tie_word_embeddings": True}),
    "ministral3": Case(
        "ministral3",
        {
            "head_dim": 16,
            "rope_parameters": YARN
            | {"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1},
        },
    ),
    "olmo3": Case(
        "olmo3",
        {
            "layer_types": [SLIDING, SLIDING, SLIDING, FULL],
            "sliding_window": WINDOW,
            "rope_parameters": {
                FULL: YARN,
                SLIDING: ROPE,
            },
        },
    ),
    "exaone4": Case(
        "exaone4",
        {"layer_types": [SLIDING, SLIDING, SLIDING, FULL], "sliding_window": WINDOW, "head_dim": 8},
    ),
    "exaone4-full": Case(
        "exaone4",
        {
            "layer_types": [FULL, FULL, FULL],
            "num_hidden_layers": 3,
            "sliding_window": None,
            "head_dim": 16,
            "rope_parameters": LLAMA3,
            "tie_word_embeddings": True,
        },
    ),
    "ernie4_5": Case("ernie4_5", {"head_dim": 16, "tie_word_embeddings": True}),
    "seed_oss": Case("seed_oss", {"head_dim": 16, "attention_dropout": 0.0}),
    "apertus": Case(
        "apertus",
        {"rope_parameters": LLAMA3, "hidden_act": "xielu"},
        ineffective=("act_fn.eps",),  # it bounds values that are near 0
    ),
    "hunyuan-dense": Case(
        "hunyuan_v1_dense",
        {
            "head_dim": 16,
            "max_position_embeddings": 32_768,  # the converter expects that of Hunyuan
            "rope_parameters": {
                "rope_type": "dynamic",
                "rope_theta": 10_000.0,
                "alpha": 100.0,
                "factor": 1.0,
            },
            "tie_word_embeddings": True,
        },
    ),
    "glm4": Case(
        "glm4",
        {
            "head_dim": 16,
            "rope_parameters": HALF_ROPE,
        },
    ),
    "falcon-h1": Case(
        "falcon_h1",
        MAMBA
        | {
            "num_hidden_layers": 3,
            "head_dim": 16,
            "mamba_d_ssm": 96,
            "mamba_rms_norm": False,
            "lm_head_multiplier": 0.75,
            "embedding_multiplier": 1.5,
            "mlp_multipliers": [0.75, 1.25],
            "key_multiplier": 0.75,
            "attention_in_multiplier": 1.5,
            "attention_out_multiplier": 0.75,
            "ssm_multipliers": [1.25, 0.75, 1.5, 0.5, 1.25],
            "ssm_in_multiplier": 0.75,
            "ssm_out_multiplier": 1.25,
        },
    ),
    "falcon-h1-norm": Case(
        "falcon_h1",
        MAMBA
        | {
            "num_hidden_layers": 2,
            "head_dim": 16,
            "mamba_d_ssm": 96,
            "mamba_rms_norm": True,
            "mamba_norm_before_gate": False,
            "tie_word_embeddings": True,
        },
    ),
    "arcee": Case("arcee", {"rope_parameters": YARN, "hidden_act": "relu2"}),
    "gpt-oss": Case(
        "gpt_oss",
        {
            "head_dim": 16,
            "num_local_experts": 5,
            "num_experts_per_tok": 2,
            "intermediate_size": 24,
            "layer_types": [SLIDING, FULL, SLIDING, FULL],
            "sliding_window": WINDOW,
            "rope_parameters": YARN | {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": False},
        },
    ),
    "gemma4": Case(
        "gemma4_text",
        GEMMA4 | {"num_kv_shared_layers": 3, "use_double_wide_mlp": True},
        ineffective=("layers.5.layer_scalar",),  # of the last layer: a norm follows
    ),
    "gemma4-moe": Case(
        "gemma4_text",
        GEMMA4
        | {
            "num_hidden_layers": 3,
            "layer_types": [SLIDING, SLIDING, FULL],
            "hidden_size_per_layer_input": 0,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
            "enable_moe_block": True,
            "num_experts": 6,
            "top_k_experts": 3,
            "moe_intermediate_size": 24,
        },
        ineffective=("layers.2.layer_scalar",),
    ),
    "gemma3n": Case(
        "gemma3n_text",
        {
            "num_hidden_layers": 6,
            "layer_types": [SLIDING, SLIDING, FULL, SLIDING, SLIDING, FULL],
            "sliding_window": WINDOW,
            "num_kv_shared_layers": 3,
            "activation_sparsity_pattern": [0.9, 0.9, 0.0, 0.0, 0.0, 0.0],
            "hidden_size": 32,
            "head_dim": 16,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "intermediate_size": GEMMA3N_WIDTH,
            "vocab_size_per_layer_input": 96,
            "hidden_size_per_layer_input": 8,
            "laurel_rank": 4,
            "altup_num_inputs": 4,
            "final_logit_softcapping": 3.0,
            "tie_word_embeddings": True,
        },
        sample_deviation,
    ),
    "ernie4_5-moe": Case(
        "ernie4_5_moe",
        {
            "num_hidden_layers": 3,
            # The converter divides it by the key/value heads for the width of the shared expert.
            "intermediate_size": 96,
            "moe_intermediate_size": 24,
            "moe_k": 3,
            "moe_num_experts": 6,
            "moe_num_shared_experts": 2,
            "moe_layer_start_index": 1,
        },
    ),
    "glm4moe": Case(
        "glm4_moe",
        SIGMOID_MOE
        | {
            "head_dim": 16,
            "attention_bias": True,
            "use_qk_norm": True,
            "rope_parameters": HALF_ROPE,
        },
    ),
    "glm4moe-lite": Case(
        "glm4_moe_lite",
        SIGMOID_MOE
        | LATENT
        # Published models have 1e-5, but the norms of latents always 1e-6, which no file states.
        | {"mlp_layer_types": ["dense", "sparse", "sparse"], "rms_norm_eps": 1e-6},
        scoring_function,
    ),
    "deepseek3": Case(
        "deepseek_v3",
        LATENT
        | SIGMOID_MOE
        | {
            "n_group": 3,
            "topk_group": 2,
            "rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0},
        },
        scoring_function,
    ),
    "mistral4": Case(
        "mistral4",
        LATENT
        | SIGMOID_MOE
        | {
            "first_k_dense_replace": 0,
            "num_hidden_layers": 2,
            "rope_parameters": YARN
            | {
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.0,  # which the converter leaves out of the file
                "partial_rotary_factor": 1 / 3,
            },
        },
        mistral4,
    ),
    "mamba2": Case(
        "mamba2",
        {
            "num_hidden_layers": 3,
            "intermediate_size": 96,  # the converter takes it for the inner width
            "num_heads": 6,
            "head_dim": 16,
            "state_size": 16,
            "n_groups": 2,
            "conv_kernel": 4,
            "expand": 2,
            "chunk_size": 32,
        },
    ),
    "nemotron_h": Case(
        "nemotron_h",
        NEMOTRON | {"layers_block_type": [LINEAR, "mlp", FULL, "mlp"]},
        dense_nemotron,
    ),
    "nemotron_h_moe": Case(
        "nemotron_h",
        NEMOTRON
        | {
            "layers_block_type": [LINEAR, "moe", FULL, "moe"],
            "n_routed_experts": 6,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 24,
            "moe_shared_expert_intermediate_size": 40,
            "routed_scaling_factor": 2.5,
        },
    ),
    "olmoe": Case(
        "olmoe",
        {
            "num_hidden_layers": 3,
            "num_experts": 6,
            "num_experts_per_tok": 3,
            "intermediate_size": 24,
        },
    ),
    "mellum": Case(
        "mellum",
        MIXTURE
        | {
            "head_dim": 16,
            "layer_types": [SLIDING, SLIDING, SLIDING, FULL],
            "sliding_window": WINDOW,
            "rope_parameters": {
                FULL: YARN,
                SLIDING: ROPE,
            },
        },
    ),
    "laguna": Case(
        "laguna",
        MIXTURE
        | {
            "head_dim": 16,
            "layer_types": [FULL, SLIDING, SLIDING, SLIDING],
            "num_attention_heads_per_layer": [4, 6, 6, 6],
            "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
            "sliding_window": WINDOW,
            "shared_expert_intermediate_size": 40,
            "moe_routed_scaling_factor": 2.5,
            "rope_parameters": {
                FULL: YARN | {"partial_rotary_factor": 0.5},
                SLIDING: ROPE,
            },
        },
    ),
    "cohere2moe": Case(
        "cohere2_moe",
        {
            "head_dim": 16,
            "layer_types": [SLIDING, SLIDING, SLIDING, FULL],
            "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
            "sliding_window": WINDOW,
            "num_experts": 6,
            "num_experts_per_tok": 3,
            "num_shared_experts": 1,
            "intermediate_size": 24,
            "prefix_dense_intermediate_size": 80,
            "expert_selection_fn": "sigmoid",
            "logit_scale": 0.25,
            "tie_word_embeddings": True,
        },
    ),
    "llama4": Case(
        "llama4_text",
        {
            "num_hidden_layers": 4,
            "head_dim": 16,
            "intermediate_size": 24,
            "intermediate_size_mlp": 80,
            "num_local_experts": 4,
            "num_experts_per_tok": 1,
            "interleave_moe_layer_step": 2,
            "no_rope_layers": [1, 1, 1, 0],
            "attention_chunk_size": 8_192,  # fixed in llama.cpp, as is the next length
            "use_qk_norm": True,
            "attn_temperature_tuning": True,
            "floor_scale": 8_192,
            "attn_scale": 0.1,
            "rope_parameters": LLAMA3,
        },
    ),
}
