"""Builder of latent attention, which the architectures of DeepSeek's kind share."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.errors import ModelFileError, UnsupportedModel
from engine.gguf.reader import GGUFFile
from engine.models.builder import interleaved, norm, projection, projections
from engine.models.config import Config
from engine.models.mixers import LatentAttention
from engine.models.parts import Norm, Projection, Rope
from engine.models.weights import Weights


@dataclass(frozen=True, slots=True)
class LatentWidths:
    """Channels of the heads of latent attention."""

    key: int  # N + R, of a head before its query is mapped to the latent space
    value: int  # V
    latent: int  # L
    rotated: int  # R
    compressed: int  # Q; 0: queries are not compressed

    @property
    def plain(self) -> int:
        """N, channels of a head's query that are not rotated."""
        return self.key - self.rotated


def read_widths(file: GGUFFile, config: Config) -> LatentWidths:
    """The widths that the file states; raises ModelFileError or UnsupportedModel naming a key."""
    name, largest = config.architecture, 1 << 16
    old = f"{name}.attention.key_length_mla"
    if not file.integer(old, 0, minimum=0, maximum=largest):
        raise UnsupportedModel(
            f"The file has no key '{old}': old files of latent attention have its matrices in another "
            "form, which this version does not support.",
            "Choose a newer file of this model, converted since May 2025.",
        )
    key, value, latent = (
        file.integer(f"{name}.attention.{part}", minimum=1, maximum=largest)
        for part in ("key_length_mla", "value_length_mla", "kv_lora_rank")
    )
    if key <= config.rotary_dim:
        raise ModelFileError(
            f"The key '{old}' is {key}; more than the {config.rotary_dim} rotated channels are wanted.",
            "The file is damaged or made by a faulty converter; get another copy.",
        )
    compressed = file.integer(f"{name}.attention.q_lora_rank", 0, minimum=0, maximum=largest)
    return LatentWidths(key, value, latent, config.rotary_dim, compressed)


def latent_attention(
    weights: Weights, config: Config, index: int, rope: Rope, widths: LatentWidths, scale: float
) -> LatentAttention:
    """Latent attention of block `index`."""
    D, H, name = config.width, config.heads, f"blk.{index}"
    L, R, Q = widths.latent, widths.rotated, widths.compressed
    key_name, value_name = f"{name}.attn_k_b.weight", f"{name}.attn_v_b.weight"
    compressed: Projection | None = None
    compressed_norm: Norm | None = None
    query_name, columns = f"{name}.attn_q", D
    if Q and not weights.has(f"{query_name}.weight"):
        compressed = projection(weights, f"{name}.attn_q_a", Q, D)
        compressed_norm = norm(weights, config, f"{name}.attn_q_a_norm", Q)
        query_name, columns = f"{name}.attn_q_b", Q
    query, query_rope = interleaved(weights, query_name, H, (widths.plain, R), columns)
    latent, key_rope = projections(weights, f"{name}.attn_kv_a_mqa", (L, R), D)
    return LatentAttention(
        query=query,
        query_rope=query_rope,
        latent=latent,
        key_rope=key_rope,
        latent_norm=norm(weights, config, f"{name}.attn_kv_a_norm", L),
        absorb=tuple(weights.heads(key_name, H, L, widths.plain)),
        expand=tuple(weights.heads(value_name, H, widths.value, L)),
        names=(key_name, value_name),
        output=projection(weights, f"{name}.attn_output", D, H * widths.value),
        rope=replace(rope, frequencies=weights.beside(name, rope.frequencies)),
        scale=scale,
        compressed=compressed,
        compressed_norm=compressed_norm,
    )
