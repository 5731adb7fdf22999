"""Model configuration read from GGUF metadata: the sizes common to all architectures."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.errors import ModelFileError, UnsupportedModel
from engine.gguf.reader import GGUFFile

# The others: RMS norm.
_LAYER_NORM = ("bert", "cohere2", "command-r", "nomic-bert", "phi2", "starcoder", "starcoder2")

# Their layers are Mamba mixers alone. Keys that llama.cpp wants nevertheless are 0 or arbitrary.
WITHOUT_ATTENTION = ("mamba2",)


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of a decoder as stated by its file; those that differ by layer: see `layer_configs`.

    Of heads and feed-forward 0 in a model without attention and feed-forward.
    """

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
    loops: int = 1  # times that a token runs through all layers


def read_config(file: GGUFFile) -> Config:
    """Read the configuration; raises ModelFileError naming the key that is missing or invalid."""
    name = file.string("general.architecture")
    if name in WITHOUT_ATTENTION:
        return _config_without_attention(file, name)
    heads = _largest(file, f"{name}.attention.head_count")
    kv_heads = _largest(file, f"{name}.attention.head_count_kv", heads)
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
    # In latent attention a value is a part of the cached key.
    latent = file.integer(f"{name}.attention.kv_lora_rank", 0, minimum=0, maximum=65_536)
    if value_width != head_width and not latent:
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
    layers = _layers(file, name)
    return Config(
        architecture=name,
        layers=layers,
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
        loops=file.integer(f"{name}.num_loops", 1, minimum=1, maximum=4_096 // layers),
    )


def _config_without_attention(file: GGUFFile, name: str) -> Config:
    return Config(
        architecture=name,
        layers=_layers(file, name),
        width=file.integer(f"{name}.embedding_length", minimum=1, maximum=1 << 20),
        heads=0,
        kv_heads=0,
        head_width=0,
        rotary_dim=0,
        feed_forward=0,
        vocabulary=_embedding_rows(file),
        context=file.integer(f"{name}.context_length", minimum=1, maximum=1 << 30),
        epsilon=_epsilon(file, name),
        rope_base=0.0,
    )


def layer_configs(file: GGUFFile, config: Config) -> list[Config]:
    """The configuration of each layer, with its own heads, feed-forward width and experts.

    A layer without attention has 0 key/value heads, one without feed-forward the width 0. Raises
    ModelFileError naming the key whose list has another length or impossible values.
    """
    name, layers = config.architecture, range(config.layers)
    heads = per_layer(file, f"{name}.attention.head_count", config.layers, config.heads)
    kv_heads = per_layer(file, f"{name}.attention.head_count_kv", config.layers, config.kv_heads)
    key = f"{name}.feed_forward_length"
    expert_key = f"{name}.expert_feed_forward_length"
    if config.experts and expert_key in file.metadata:
        key = expert_key
    widths = per_layer(file, key, config.layers, config.feed_forward)
    chosen = [0] * config.layers
    if config.experts:
        key = f"{name}.expert_used_count"
        chosen = per_layer(file, key, config.layers, 0, maximum=config.experts)
    for at in layers:
        if kv_heads[at] and (not heads[at] or heads[at] % kv_heads[at]):
            raise ModelFileError(
                f"{heads[at]} attention heads of layer {at} cannot share {kv_heads[at]} key/value "
                "heads evenly.",
                "The file is damaged or made by a faulty converter; get another copy.",
            )
    return [
        replace(
            config,
            heads=heads[at],
            kv_heads=kv_heads[at],
            feed_forward=widths[at],
            experts_per_token=chosen[at],
        )
        for at in layers
    ]


def per_layer(
    file: GGUFFile, key: str, layers: int, default: int, maximum: int = 1 << 24
) -> list[int]:
    """Values of a key that holds a number for all layers or a list with one for each."""
    found = file.metadata.get(key, default)
    if not isinstance(found, list):
        return [file.integer(key, default, minimum=0, maximum=maximum)] * layers
    values = [one for one in found if isinstance(one, int) and 0 <= one <= maximum]
    if len(values) < len(found) or len(found) < layers:
        raise ModelFileError(
            f"The key '{key}' has {len(found):,} values for {layers:,} layers, or others than whole "
            f"numbers from 0 to {maximum:,}.",
            "The file is damaged or made by a faulty converter; get another copy.",
        )
    return [int(one) for one in values[:layers]]


def _layers(file: GGUFFile, name: str) -> int:
    """Layers that are run: those that only predict further tokens follow them in the file."""
    count = file.integer(f"{name}.block_count", minimum=1, maximum=4_096)
    return count - file.integer(f"{name}.nextn_predict_layers", 0, minimum=0, maximum=count - 1)


def _largest(file: GGUFFile, key: str, default: int | None = None) -> int:
    """A number, or the largest one of a list with one for each layer."""
    found = file.metadata.get(key, default)
    if isinstance(found, list) and found and all(isinstance(one, int) for one in found):
        found = max(int(one) for one in found if isinstance(one, int))
        if 1 <= found <= 65_536:
            return found
    return file.integer(key, default, minimum=1, maximum=65_536)


def _epsilon(file: GGUFFile, name: str) -> float:
    """The epsilon of layer norms or of RMS norms, which have different keys."""
    layer_norm = f"{name}.attention.layer_norm_epsilon"
    rms_norm = f"{name}.attention.layer_norm_rms_epsilon"
    stated = layer_norm in file.metadata and rms_norm not in file.metadata
    return file.number(
        layer_norm if stated or name in _LAYER_NORM else rms_norm, minimum=0.0, maximum=1.0
    )


def _feed_forward(file: GGUFFile, name: str, experts: int) -> int:
    """The hidden width of the feed-forward, or of one expert."""
    expert_key = f"{name}.expert_feed_forward_length"
    key = expert_key if experts and expert_key in file.metadata else f"{name}.feed_forward_length"
    found = file.metadata.get(key)
    if isinstance(found, list):
        return max(max(per_layer(file, key, len(found), 0), default=0), 1)
    return file.integer(key, minimum=1, maximum=1 << 24)


def _experts_per_token(file: GGUFFile, name: str, experts: int) -> int:
    """The experts of each token, in the layer with most."""
    if not experts:
        return 0
    key = f"{name}.expert_used_count"
    found = file.metadata.get(key)
    if isinstance(found, list):
        return max(per_layer(file, key, len(found), 0, maximum=experts), default=0)
    return file.integer(key, minimum=1, maximum=experts)


def _embedding_rows(file: GGUFFile) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelFileError(
            "The tensor 'token_embd.weight' is missing or not a table.",
            "The file is incomplete; download it again or choose another.",
        )
    return embedding.shape[0]


def sliding_window(file: GGUFFile, default: int = 0) -> int:
    """The sliding attention window of local layers, in tokens; 0: unlimited."""
    name = file.string("general.architecture")
    return file.integer(f"{name}.attention.sliding_window", default, minimum=0, maximum=1 << 30)


def sliding_rope(file: GGUFFile, config: Config) -> Config:
    """The configuration with the RoPE base and the rotated channels of sliding-window layers."""
    name, C = config.architecture, config.head_width
    base = file.number(f"{name}.rope.freq_base_swa", config.rope_base, minimum=1.0, maximum=1e12)
    key = f"{name}.rope.dimension_count_swa"
    rotated = file.integer(key, config.rotary_dim, minimum=2, maximum=C)
    if rotated % 2:
        raise ModelFileError(
            f"The key '{key}' is {rotated}; an even number up to the head's {C} channels is wanted.",
            "The file is damaged or made by a faulty converter; get another copy.",
        )
    return replace(config, rope_base=base, rotary_dim=rotated)


def sliding_layers(
    file: GGUFFile, config: Config, every: int, *, full_first: bool = False
) -> list[bool]:
    """Which layers use the sliding window: all but each `every`-th, unless the file overrides it.

    A file may store a list with one boolean per layer, or another number in place of `every`. Of
    every so many layers the last one has full attention, or the first.
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
    full = 0 if full_first or not every else every - 1
    return [not every or index % every != full for index in range(config.layers)]
