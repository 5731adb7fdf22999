"""Files saved by llama.cpp itself have every key that it knows: those without a value are left out.

Its converters write the keys of one architecture. `llama_model_save_to_file`, which writes its
random test models and what it trained, adds those of all others: 0, -1 or another default, which
would be taken for what the model asks for.

Source: https://github.com/ggml-org/llama.cpp/blob/master/src/llama-model-saver.cpp
"""

from __future__ import annotations

import math

from engine.gguf.values import Array, Metadata, Stored, Text

# Keys of three architectures that no converter writes into one file.
_SIGNATURE = ("posnet.block_count", "wkv.head_size", "token_shift_count")
# Here 0 is a value like any other.
_ZERO_COUNTS = (
    "attention.head_count",
    "attention.head_count_kv",
    "attention.sliding_window",
    "expert_count",
    "feed_forward_length",
    "leading_dense_block_count",
    "rope.dimension_count",
)
_DEFAULTS: dict[str, tuple[float, ...]] = {
    "attn_logit_softcapping": (50.0,),
    "final_logit_softcapping": (30.0,),
    "router_logit_softcapping": (30.0,),
    "expert_group_scale": (0.05,),
    "expert_weights_norm": (False,),
}
_UNSET = (0, -1, (1 << 32) - 1)
_CAPPED = ("gemma", "grok")  # beginnings of names: of these the caps are no defaults


def without_unset(metadata: Metadata) -> Metadata:
    """The metadata without the keys that llama.cpp adds; that of other files as it is."""
    name = metadata.get("general.architecture")
    if not all(f"{name}.{key}" in metadata.stored for key in _SIGNATURE):
        return metadata
    prefix = f"{name}."
    kept = {
        key: value
        for key, value in metadata.stored.items()
        if not key.startswith((prefix, "xielu."))
        or _is_set(key.removeprefix(prefix), value, prefix)
    }
    if f"{prefix}rope.scaling.factor" not in kept:
        kept.pop(f"{prefix}rope.scaling.type", None)  # "linear", of a model without scaling
    return Metadata(kept)


def _is_set(key: str, stored: Stored, prefix: str) -> bool:
    if isinstance(stored, Text):
        return True
    if isinstance(stored, Array):
        values = stored.read()
        # A list for every layer is one number where all layers have the same.
        return any(isinstance(value, str) or value not in (*_UNSET, False) for value in values)
    if key in _DEFAULTS and not prefix.startswith(_CAPPED):
        return not any(math.isclose(stored, default, rel_tol=1e-6) for default in _DEFAULTS[key])
    if isinstance(stored, bool) or key in _ZERO_COUNTS:
        return True
    return math.isfinite(stored) and stored not in _UNSET
