"""Model configuration read from GGUF metadata: the sizes common to all architectures."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import Fault, FaultKind, ModelFileError, UnsupportedModel
from engine.gguf.reader import GGUFFile

# The others: RMS norm.
_LAYER_NORM = ("bert", "cohere2", "command-r", "nomic-bert", "phi2", "starcoder", "starcoder2")


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of a decoder as stated by its file."""

    architecture: str
    layers: int
    width: int  # D
    heads: int  # H
    kv_heads: int  # K
    head_width: int  # C
    rotary_dim: int  # channels of a head that RoPE rotates
    feed_forward: int  # F
    vocabulary: int  # V
    context: int  # tokens it was trained for
    epsilon: float
    rope_base: float
    experts: int = 0  # E; 0: one feed-forward for all tokens
    experts_per_token: int = 0


def read_config(file: GGUFFile) -> Config:
    """Read the configuration; raises ModelFileError naming the key that is missing or invalid."""
    name = file.string("general.architecture")
    heads = file.integer(f"{name}.attention.head_count", minimum=1, maximum=65_536)
    kv_heads = file.integer(f"{name}.attention.head_count_kv", heads, minimum=1, maximum=65_536)
    width = file.integer(f"{name}.embedding_length", minimum=1, maximum=1 << 20)
    head_width = file.integer(
        f"{name}.attention.key_length", max(width // heads, 1), minimum=2, maximum=65_536
    )
    value_width = file.integer(f"{name}.attention.value_length", head_width)
    rotary_dim = file.integer(f"{name}.rope.dimension_count", head_width)
    if heads % kv_heads:
        raise ModelFileError(
            f"{heads} attention heads cannot share {kv_heads} key/value heads evenly.",
            "The file is damaged or made by a faulty converter; get another copy.",
        )
    if value_width != head_width:
        raise UnsupportedModel(
            f"This {name} file has key and value widths {head_width} and {value_width}; they must be "
            "one number.",
            "Choose another model of this family.",
        )
    if rotary_dim > head_width or rotary_dim % 2:
        raise ModelFileError(
            f"The key '{name}.rope.dimension_count' is {rotary_dim}; an even number up to the head's "
            f"{head_width} channels is wanted.",
            "The file is damaged or made by a faulty converter; get another copy.",
        )
    experts = file.integer(f"{name}.expert_count", 0, minimum=0, maximum=4_096)
    return Config(
        architecture=name,
        layers=file.integer(f"{name}.block_count", minimum=1, maximum=4_096),
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        head_width=head_width,
        rotary_dim=rotary_dim,
        feed_forward=_feed_forward(file, name, experts),
        vocabulary=_embedding_rows(file),
        context=file.integer(f"{name}.context_length", minimum=1, maximum=1 << 30),
        epsilon=_epsilon(file, name),
        rope_base=file.number(f"{name}.rope.freq_base", 10_000.0, minimum=1.0, maximum=1e12),
        experts=experts,
        experts_per_token=_experts_per_token(file, name, experts),
    )


def _epsilon(file: GGUFFile, name: str) -> float:
    """The epsilon of layer norms or of RMS norms, which have different keys."""
    layer_norm = f"{name}.attention.layer_norm_epsilon"
    if layer_norm in file.metadata or name in _LAYER_NORM:
        return file.number(layer_norm, minimum=0.0, maximum=1.0)
    return file.number(f"{name}.attention.layer_norm_rms_epsilon", minimum=0.0, maximum=1.0)


def _feed_forward(file: GGUFFile, name: str, experts: int) -> int:
    """The hidden width of the feed-forward, or of one expert."""
    expert_key = f"{name}.expert_feed_forward_length"
    key = expert_key if experts and expert_key in file.metadata else f"{name}.feed_forward_length"
    return file.integer(key, minimum=1, maximum=1 << 24)


def _experts_per_token(file: GGUFFile, name: str, experts: int) -> int:
    if not experts:
        return 0
    return file.integer(f"{name}.expert_used_count", minimum=1, maximum=experts)


def _embedding_rows(file: GGUFFile) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelFileError(
            "The tensor 'token_embd.weight' is missing or not a table: the file holds no model.",
            "A vocabulary-only file cannot answer; open a complete model.",
            Fault(FaultKind.OTHER_TYPE, "vocabulary"),
        )
    return embedding.shape[0]


def sliding_window(file: GGUFFile, default: int = 0) -> int:
    """The sliding attention window of local layers, in tokens; 0: unlimited."""
    name = file.string("general.architecture")
    return file.integer(f"{name}.attention.sliding_window", default, minimum=0, maximum=1 << 30)


def sliding_layers(file: GGUFFile, config: Config, every: int) -> list[bool]:
    """Which layers use the sliding window: all but each `every`-th, unless the file overrides it.

    A file may store a list with one boolean per layer, or another number in place of `every`.
    """
    key = f"{config.architecture}.attention.sliding_window_pattern"
    found = file.metadata.get(key, every)
    if isinstance(found, list):
        if len(found) < config.layers or not all(isinstance(one, bool | int) for one in found):
            raise ModelFileError(
                f"The key '{key}' has {len(found):,} values for {config.layers:,} layers, or others "
                "than true and false.",
                "The file is damaged or made by a faulty converter; get another copy.",
            )
        return [bool(one) for one in found[: config.layers]]
    every = file.integer(key, every, minimum=0)
    return [not every or (index + 1) % every != 0 for index in range(config.layers)]
