"""Every metadata key that llama.cpp reads or its converter writes, and what this program does with it.

The keys are facts, taken by `tests/recorders/llamacpp_keys.py` from the key names of llama.cpp and of
its Python package; "{arch}" stands for an architecture, "{name}" and "{id}" for any text.
"""

from __future__ import annotations

# Read, with what of the key stands in the source where that composes it.
READ: dict[str, str] = {
    "adapter.alora.invocation_tokens": "adapter.alora.invocation_tokens",
    "adapter.lora.alpha": "adapter.lora.alpha",
    "adapter.type": "adapter.type",
    "clip.has_vision_encoder": "clip.has_vision_encoder",
    "clip.projector_type": "clip.projector_type",
    "clip.use_silu": "clip.use_silu",
    "clip.vision.attention.head_count": "attention.head_count",
    "clip.vision.attention.layer_norm_epsilon": "attention.layer_norm_epsilon",
    "clip.vision.block_count": "block_count",
    "clip.vision.embedding_length": "embedding_length",
    "clip.vision.feed_forward_length": "feed_forward_length",
    "clip.vision.image_max_pixels": "image_max_pixels",
    "clip.vision.image_mean": "image_mean",
    "clip.vision.image_min_pixels": "image_min_pixels",
    "clip.vision.image_size": "image_size",
    "clip.vision.image_std": "image_std",
    "clip.vision.is_deepstack_layers": "is_deepstack_layers",
    "clip.vision.patch_size": "patch_size",
    "clip.vision.preproc_image_size": "preproc_image_size",
    "clip.vision.preproc_max_tiles": "_tiles",
    "clip.vision.preproc_min_tiles": "_tiles",
    "clip.vision.projection_dim": "projection_dim",
    "clip.vision.projector.scale_factor": "projector.scale_factor",
    "clip.vision.projector_type": "projector_type",
    "clip.vision.spatial_merge_size": "spatial_merge_size",
    "clip.vision.wa_layer_indexes": "wa_layer_indexes",
    "general.alignment": "general.alignment",
    "general.architecture": "general.architecture",
    "general.file_type": "general.file_type",
    "general.finetune": "general.finetune",
    "general.name": "general.name",
    "general.quantization_version": "general.quantization_version",
    "general.sampling.min_p": "min_p",
    "general.sampling.mirostat": "mirostat",
    "general.sampling.mirostat_eta": "mirostat_eta",
    "general.sampling.mirostat_tau": "mirostat_tau",
    "general.sampling.penalty_last_n": "penalty_last_n",
    "general.sampling.penalty_repeat": "penalty_repeat",
    "general.sampling.sequence": "sequence",
    "general.sampling.temp": "temp",
    "general.sampling.top_k": "top_k",
    "general.sampling.top_p": "top_p",
    "general.sampling.xtc_probability": "xtc_probability",
    "general.sampling.xtc_threshold": "xtc_threshold",
    "general.type": "general.type",
    "split.count": "split.count",
    "split.no": "split.no",
    "split.tensors.count": "split.tensors.count",
    "tokenizer.chat_template": "tokenizer.chat_template",
    "tokenizer.ggml.add_bos_token": "add_bos_token",
    "tokenizer.ggml.add_eos_token": "add_eos_token",
    "tokenizer.ggml.add_sep_token": "add_sep_token",
    "tokenizer.ggml.add_space_prefix": "add_space_prefix",
    "tokenizer.ggml.bos_token_id": "bos",
    "tokenizer.ggml.cls_token_id": "cls",
    "tokenizer.ggml.eom_token_id": "eom",
    "tokenizer.ggml.eos_token_id": "eos",
    "tokenizer.ggml.eot_token_id": "eot",
    "tokenizer.ggml.fim_mid_token_id": "fim_mid",
    "tokenizer.ggml.fim_pad_token_id": "fim_pad",
    "tokenizer.ggml.fim_pre_token_id": "fim_pre",
    "tokenizer.ggml.fim_rep_token_id": "fim_rep",
    "tokenizer.ggml.fim_sep_token_id": "fim_sep",
    "tokenizer.ggml.fim_suf_token_id": "fim_suf",
    "tokenizer.ggml.mask_token_id": "mask",
    "tokenizer.ggml.padding_token_id": "padding",
    "tokenizer.ggml.merges": "tokenizer.ggml.merges",
    "tokenizer.ggml.model": "tokenizer.ggml.model",
    "tokenizer.ggml.normalizer.lowercase": "normalizer.lowercase",
    "tokenizer.ggml.normalizer.strip_accents": "normalizer.strip_accents",
    "tokenizer.ggml.pre": "tokenizer.ggml.pre",
    "tokenizer.ggml.precompiled_charsmap": "tokenizer.ggml.precompiled_charsmap",
    "tokenizer.ggml.remove_extra_whitespaces": "remove_extra_whitespaces",
    "tokenizer.ggml.scores": "scores",
    "tokenizer.ggml.seperator_token_id": "seperator",
    "tokenizer.ggml.suppress_tokens": "tokenizer.ggml.suppress_tokens",
    "tokenizer.ggml.token_type": "tokenizer.ggml.token_type",
    "tokenizer.ggml.tokens": "tokenizer.ggml.tokens",
    "tokenizer.ggml.unknown_token_id": "unknown",
    "tokenizer.huggingface.json": "tokenizer.huggingface.json",
    "xielu.alpha_n": "alpha_n",
    "xielu.alpha_p": "alpha_p",
    "xielu.beta": "beta",
    "xielu.eps": "eps",
    "{arch}.activation_sparsity_scale": "activation_sparsity_scale",
    "{arch}.altup.active_idx": "altup.active_idx",
    "{arch}.altup.num_inputs": "altup.num_inputs",
    "{arch}.attention.causal": "attention.causal",
    "{arch}.attention.head_count": "attention.head_count",
    "{arch}.attention.head_count_kv": "attention.head_count_kv",
    "{arch}.attention.key_length": "attention.key_length",
    "{arch}.attention.key_length_mla": "attention.key_length_mla",
    "{arch}.attention.key_length_swa": "attention.key_length_swa",
    "{arch}.attention.kv_lora_rank": "attention.kv_lora_rank",
    "{arch}.attention.layer_norm_epsilon": "attention.layer_norm_epsilon",
    "{arch}.attention.layer_norm_rms_epsilon": "attention.layer_norm_rms_epsilon",
    "{arch}.attention.q_lora_rank": "attention.q_lora_rank",
    "{arch}.attention.recurrent_layers": "attention.recurrent_layers",
    "{arch}.attention.rope_pattern": "attention.rope_pattern",
    "{arch}.attention.scale": "attention.scale",
    "{arch}.attention.shared_kv_layers": "attention.shared_kv_layers",
    "{arch}.attention.sliding_window": "attention.sliding_window",
    "{arch}.attention.sliding_window_pattern": "attention.sliding_window_pattern",
    "{arch}.attention.temperature_length": ".attention.temperature",
    "{arch}.attention.temperature_scale": "attention.temperature_scale",
    "{arch}.attention.value_length": "attention.value_length",
    "{arch}.attention.value_length_mla": "value_length_mla",
    "{arch}.attention.value_length_swa": "attention.value_length_swa",
    "{arch}.attn_logit_softcapping": "attn_logit_softcapping",
    "{arch}.block_count": "block_count",
    "{arch}.context_length": "context_length",
    "{arch}.embedding_length": "embedding_length",
    "{arch}.embedding_length_per_layer_input": "embedding_length_per_layer_input",
    "{arch}.embedding_scale": "embedding_scale",
    "{arch}.expert_count": "expert_count",
    "{arch}.expert_feed_forward_length": "expert_feed_forward_length",
    "{arch}.expert_gating_func": "expert_gating_func",
    "{arch}.expert_group_count": "expert_group_count",
    "{arch}.expert_group_scale": "expert_group_scale",
    "{arch}.expert_group_used_count": "expert_group_used_count",
    "{arch}.expert_shared_count": "expert_shared_count",
    "{arch}.expert_shared_feed_forward_length": "expert_shared_feed_forward_length",
    "{arch}.expert_used_count": "expert_used_count",
    "{arch}.expert_weights_norm": "expert_weights_norm",
    "{arch}.expert_weights_scale": "expert_weights_scale",
    "{arch}.feed_forward_length": "feed_forward_length",
    "{arch}.final_logit_softcapping": "final_logit_softcapping",
    "{arch}.full_attention_interval": "full_attention_interval",
    "{arch}.hidden_activation": "hidden_activation",
    "{arch}.interleave_moe_layer_step": "interleave_moe_layer_step",
    "{arch}.kda.gate_lower_bound": "kda.gate_lower_bound",
    "{arch}.kda.head_dim": "kda.head_dim",
    "{arch}.kda.safe_gate": "kda.safe_gate",
    "{arch}.leading_dense_block_count": "leading_dense_block_count",
    "{arch}.logit_scale": "logit_scale",
    "{arch}.moe_latent_size": "moe_latent_size",
    "{arch}.nextn_predict_layers": "nextn_predict_layers",
    "{arch}.num_loops": "num_loops",
    "{arch}.pooling_type": "pooling_type",
    "{arch}.residual_scale": "residual_scale",
    "{arch}.rope.dimension_count": "rope.dimension_count",
    "{arch}.rope.dimension_count_swa": "rope.dimension_count_swa",
    "{arch}.rope.dimension_sections": "rope.dimension_sections",
    "{arch}.rope.freq_base": "rope.freq_base",
    "{arch}.rope.freq_base_swa": "rope.freq_base_swa",
    "{arch}.rope.scale_linear": "rope.scale_linear",
    "{arch}.rope.scaling.alpha": "rope.scaling.alpha",
    "{arch}.rope.scaling.attn_factor": "rope.scaling.attn_factor",
    "{arch}.rope.scaling.factor": "rope.scaling.factor",
    "{arch}.rope.scaling.finetuned": "rope.scaling.finetuned",
    "{arch}.rope.scaling.original_context_length": "rope.scaling.original_context_length",
    "{arch}.rope.scaling.type": "rope.scaling.type",
    "{arch}.rope.scaling.yarn_attn_factor": "rope.scaling.yarn_attn_factor",
    "{arch}.rope.scaling.yarn_beta_fast": "yarn_beta_fast",
    "{arch}.rope.scaling.yarn_beta_slow": "yarn_beta_slow",
    "{arch}.rope.scaling.yarn_ext_factor": "yarn_ext_factor",
    "{arch}.rope.scaling.yarn_log_multiplier": "rope.scaling.yarn_log_multiplier",
    "{arch}.shortconv.l_cache": "shortconv.l_cache",
    "{arch}.skip_loop_final_norm": "skip_loop_final_norm",
    "{arch}.ssm.conv_kernel": "ssm.conv_kernel",
    "{arch}.ssm.group_count": "group_count",
    "{arch}.ssm.inner_size": "inner_size",
    "{arch}.ssm.state_size": "state_size",
    "{arch}.ssm.time_step_rank": "time_step_rank",
    "{arch}.swiglu_clamp_exp": ".swiglu_clamp_",
    "{arch}.swiglu_clamp_shexp": ".swiglu_clamp_",
}

_IGNORED = {
    "The listed models have no such vision stack: pictures are refused.": """
        {arch}.deepstack_mapping {arch}.n_deepstack_layers
    """,
    "Of classifiers and of encoders of other widths, whose extra tensors are refused.": """
        {arch}.classifier.output_labels {arch}.classifier.pooling_type {arch}.embedding_length_out
        {arch}.features_length {arch}.{dense}_feat_in {arch}.{dense}_feat_out {arch}.dense_2_feat_in
        {arch}.dense_2_feat_out {arch}.dense_3_feat_in {arch}.dense_3_feat_out
    """,
    "The rows of token_embd.weight say it.": """
        {arch}.vocab_size
    """,
    "The shapes of the tensors say it.": """
        {arch}.tensor_data_layout
    """,
    "Says whose work the model is, and where it came from.": """
        general.author general.base_model.count general.base_model.{id}.author
        general.base_model.{id}.description general.base_model.{id}.doi general.base_model.{id}.name
        general.base_model.{id}.organization general.base_model.{id}.repo_url
        general.base_model.{id}.url general.base_model.{id}.uuid general.base_model.{id}.version
        general.basename general.dataset.count general.dataset.{id}.author
        general.dataset.{id}.description general.dataset.{id}.doi general.dataset.{id}.name
        general.dataset.{id}.organization general.dataset.{id}.repo_url general.dataset.{id}.url
        general.dataset.{id}.uuid general.dataset.{id}.version general.description general.doi
        general.languages general.license general.license.link general.license.name
        general.organization general.quantized_by general.repo_url general.size_label
        general.source.doi general.source.huggingface.repository general.source.repo_url
        general.source.url general.source.uuid general.tags general.url general.uuid general.version
    """,
    "Chooses how exactly another program multiplies; the weights are the same.": """
        general.tensor_extra.name general.tensor_extra.prec_a4
    """,
    "Names of templates for other uses than a chat; the one for ranking is read by its own name.": """
        tokenizer.chat_templates tokenizer.chat_template.{name}
    """,
    "The rows of the tensor of token types say it.": """
        tokenizer.ggml.token_type_count
    """,
    "Older names of the tokens for filling in: these are found by their texts.": """
        tokenizer.ggml.prefix_token_id tokenizer.ggml.suffix_token_id tokenizer.ggml.middle_token_id
    """,
    "Of an adapter: what it was made for, in words.": """
        adapter.lora.task_name adapter.lora.prompt_prefix
    """,
}

_REFUSED = {
    "Of diffusion models, which the architecture refuses.": """
        diffusion.shift_logits
    """,
    "Of vocabularies whose kind is refused.": """
        tokenizer.rwkv.world
    """,
    "Of files that are no model, which are refused.": """
        clip.audio.attention.head_count clip.audio.attention.layer_norm_epsilon
        clip.audio.block_count clip.audio.chunk_size clip.audio.conv_kernel_size
        clip.audio.embedding_length clip.audio.feature_layer clip.audio.feed_forward_length
        clip.audio.local_block_count clip.audio.local_group_size clip.audio.max_pos_emb
        clip.audio.num_mel_bins clip.audio.projection_dim clip.audio.projector.downsample_rate
        clip.audio.projector.head_count clip.audio.projector.stack_factor
        clip.audio.projector.window_size clip.audio.projector_type clip.audio.rvq.codebook_size
        clip.audio.rvq.num_quantizers clip.audio.subsampling_factor clip.audio.wa_pattern_mode
        clip.audio.window_size clip.gen.audio.attention.head_count
        clip.gen.audio.attention.head_count_kv clip.gen.audio.attention.layer_norm_epsilon
        clip.gen.audio.block_count clip.gen.audio.embedding_length
        clip.gen.audio.feed_forward_length clip.gen.audio.model_variant
        clip.gen.audio.projection_dim clip.gen.audio.projector_type clip.has_audio_encoder
        clip.has_gen_audio_encoder clip.has_llava_projector clip.use_gelu
        clip.vision.attention.head_count_kv clip.vision.attention.head_dim
        clip.vision.expert_count_per_layer clip.vision.expert_used_count clip.vision.feature_layer
        clip.vision.image_grid_pinpoints
        clip.vision.n_wa_pattern
        clip.vision.projector.query_side clip.vision.projector.spatial_offsets
        clip.vision.projector.window_side
        clip.vision.sam.block_count clip.vision.sam.embedding_length clip.vision.sam.head_count
        clip.vision.swiglu_clamp clip.vision.wa_pattern_mode
        clip.vision.window_size imatrix.chunk_count imatrix.chunk_size imatrix.datasets
    """,
    "Of architectures that are not listed: the architecture is refused.": """
        {arch}.activation.situ_beta {arch}.activation.situ_linear_beta {arch}.adapters.count
        {arch}.adapters.lora_rank {arch}.adapters.router_gain {arch}.adapters.token_ids_activate
        {arch}.adapters.token_ids_substitute {arch}.attention.clamp_kqv
        {arch}.attention.compress_ratios {arch}.attention.compress_rope_freq_base
        {arch}.attention.decay_lora_rank {arch}.attention.gate_lora_rank
        {arch}.attention.group_norm_epsilon {arch}.attention.group_norm_groups
        {arch}.attention.iclr_lora_rank {arch}.attention.indexer.block_size
        {arch}.attention.indexer.head_count {arch}.attention.indexer.key_length
        {arch}.attention.indexer.kpool {arch}.attention.indexer.kpool_select_tail
        {arch}.attention.indexer.local_blocks {arch}.attention.indexer.top_k
        {arch}.attention.indexer.types {arch}.attention.key_length_mla_swa
        {arch}.attention.kv_lora_rank_swa {arch}.attention.max_alibi_bias
        {arch}.attention.output_group_count {arch}.attention.output_lora_rank
        {arch}.attention.output_scale {arch}.attention.relative_buckets_count
        {arch}.attention.value_length_mla_swa {arch}.attention.value_residual_mix_lora_rank
        {arch}.attention.value_scale {arch}.attn_res.block_size {arch}.block_size
        {arch}.conv_group_size {arch}.conv_kernel_size {arch}.convnext.block_count
        {arch}.convnext.embedding_length {arch}.decision.block_count {arch}.decision.head_count
        {arch}.decision.max_head_tokens {arch}.decision.routing_block_count
        {arch}.decision.temperature.{name} {arch}.decision.type {arch}.decoder_block_count
        {arch}.decoder_start_token_id {arch}.expert_chunk_feed_forward_length
        {arch}.expert_latent_length {arch}.experts_per_group {arch}.has_confidence_head
        {arch}.hash_layer_count {arch}.hrm.h_cycles {arch}.hrm.l_cycles {arch}.hrm.layers_per_stack
        {arch}.hrm.prefix_lm {arch}.hyper_connection.count {arch}.hyper_connection.epsilon
        {arch}.hyper_connection.low_rank {arch}.hyper_connection.magnitude
        {arch}.hyper_connection.sinkhorn_iterations {arch}.moe_every_n_layers {arch}.norm_before_fc
        {arch}.norm_before_residual {arch}.ple.conv_kernel {arch}.ple.eos_token_id
        {arch}.ple.head_offsets {arch}.ple.head_vocab_sizes {arch}.ple.heads_per_ngram
        {arch}.ple.image_token_id {arch}.ple.layer_multipliers {arch}.ple.layers
        {arch}.ple.ngram_size {arch}.posnet.block_count {arch}.posnet.embedding_length
        {arch}.rescale_every_n_layers {arch}.router_logit_softcapping {arch}.sample_from_anchor
        {arch}.selector_rank {arch}.selector_top_k {arch}.ssm.dt_b_c_rms {arch}.swin_norm
        {arch}.target_hidden_size {arch}.target_layers {arch}.time_decay_extra_dim
        {arch}.time_mix_extra_dim {arch}.token_shift_count {arch}.use_parallel_residual
        {arch}.wkv.head_size
    """,
}

IGNORED = {key: reason for reason, keys in _IGNORED.items() for key in keys.split()}
REFUSED = {key: reason for reason, keys in _REFUSED.items() for key in keys.split()}
