"""Reader of PEFT's adapter_config.json: the scale of each pair, and unsupported features.

PEFT features other than plain LoRA change the model's output, so each is refused by name. Keys that
only matter for training are ignored. Defaults are those of PEFT.

Source: https://github.com/huggingface/peft/blob/v0.18.0/src/peft/tuners/lora/config.py
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import AdapterError, DamagedAdapter

CONFIG = "adapter_config.json"

_MAX_BYTES = 1 << 20
_LARGEST_ALPHA = 1e6
_MAX_PATTERNS = 1_024
_MAX_PATTERN_LENGTH = 256
_PLAIN = "Choose an adapter that was trained as plain LoRA."
_NAME_MODULES = "Name the modules in full, or choose another adapter."
_DAMAGED = "The folder is damaged or incomplete; get another copy."

_REFUSED = {
    "use_dora": "DoRA",
    "use_qalora": "QALoRA",
    "use_bdlora": "BD-LoRA",
    "kasa_config": "KaSA",
    "monteclora_config": "MonteCLoRA",
    "arrow_config": "Arrow routing",
    "alora_invocation_tokens": "activated LoRA",
    "lora_bias": "LoRA biases",
    "modules_to_save": "fully trained modules",
    "trainable_token_indices": "trained token embeddings",
    "target_parameters": "LoRA on bare parameters",
    "layer_replication": "repeated layers",
    "ensure_weight_tying": "a shared pair for embedding and head",
}
# These initializations change the base weights, so the pairs alone do not give the trained model.
_CHANGED_BASE = re.compile(r"pissa(_niter_\d+)?|olora|corda|loftq|lora_ga")
# Patterns are untrusted regular expressions: exclude those prone to catastrophic backtracking.
_RISKY = re.compile(r"\(\?|\)[*+?{]|\{|\\\d|\[\[|--|&&|\|\||~~")
_COMPLEX = re.compile(r"[*+?(]")
_MAX_COMPLEX_PARTS = 2  # repeats and groups in one pattern
_MAX_COMPLEX_PATTERNS = 16


@dataclass(frozen=True, slots=True)
class PeftConfig:
    """The configuration keys that determine scales."""

    alpha: float
    alphas: Mapping[re.Pattern[str], float]  # by module name pattern; the first match wins
    stabilized: bool  # rsLoRA: alpha / sqrt(R) in place of alpha / R
    ranks: frozenset[int]  # ranks stated in the file
    base_model: str  # "" if not stated

    def scale(self, module: str, rank: int) -> float:
        """The scale of a module's pair: alpha / R, or alpha / sqrt(R) for rsLoRA."""
        matching = (alpha for pattern, alpha in self.alphas.items() if pattern.match(module))
        alpha = next(matching, self.alpha)
        return alpha / (math.sqrt(rank) if self.stabilized else rank)


def read_config(path: Path) -> PeftConfig:
    """Read and check the file; raises AdapterError naming the faulty key, or OSError."""
    keys = _read_keys(path)
    kind = keys.get("peft_type")
    if not isinstance(kind, str) or kind.upper() != "LORA":
        raise AdapterError(
            f"The key 'peft_type' of {CONFIG} is {_shown(kind)}; only 'LORA' is supported.",
            "Choose a LoRA adapter.",
        )
    _refuse_variants(keys)
    if "lora_alpha" not in keys:
        raise DamagedAdapter(f"The key 'lora_alpha' is missing from {CONFIG}.", _DAMAGED)
    alphas = _mapping(keys, "alpha_pattern")
    if sum(bool(_COMPLEX.search(text)) for text in alphas) > _MAX_COMPLEX_PATTERNS:
        raise AdapterError(
            f"The key 'alpha_pattern' of {CONFIG} holds more than {_MAX_COMPLEX_PATTERNS} "
            "patterns with repeats or groups.",
            _NAME_MODULES,
        )
    ranks = [keys["r"]] if "r" in keys else []
    ranks += _mapping(keys, "rank_pattern").values()
    base_model = keys.get("base_model_name_or_path")
    return PeftConfig(
        alpha=_number("lora_alpha", keys["lora_alpha"]),
        alphas={_pattern(key): _number("alpha_pattern", value) for key, value in alphas.items()},
        stabilized=keys.get("use_rslora") is True,
        ranks=frozenset(rank for rank in ranks if isinstance(rank, int)),
        base_model=base_model[:100] if isinstance(base_model, str) else "",
    )


def _read_keys(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        stored = file.read(_MAX_BYTES + 1)
    if len(stored) > _MAX_BYTES:
        raise DamagedAdapter(f"'{CONFIG}' is larger than {_MAX_BYTES:,} bytes.", _DAMAGED)
    try:
        keys = json.loads(stored)
    except (ValueError, RecursionError):
        raise DamagedAdapter(f"'{CONFIG}' is not JSON.", _DAMAGED) from None
    if not isinstance(keys, dict):
        raise DamagedAdapter(f"'{CONFIG}' holds {_shown(keys)} instead of a JSON object.", _DAMAGED)
    return keys


def _refuse_variants(keys: Mapping[str, Any]) -> None:
    for key, what in _REFUSED.items():
        if keys.get(key):
            raise AdapterError(
                f"The adapter uses {what} (the key '{key}' of {CONFIG}), which this version "
                "does not support.",
                _PLAIN,
            )
    bias = keys.get("bias", "none")
    if bias not in ("none", None):
        raise AdapterError(
            f"The adapter was trained with biases: the key 'bias' of {CONFIG} is {_shown(bias)}; "
            "'none' is wanted.",
            _PLAIN,
        )
    initialization = keys.get("init_lora_weights")
    if isinstance(initialization, str) and _CHANGED_BASE.fullmatch(initialization):
        raise AdapterError(
            f"The adapter was trained on a changed base model: the key 'init_lora_weights' of "
            f"{CONFIG} is {initialization!r}.",
            "Convert it to plain LoRA with PEFT, or choose another.",
        )


def _mapping(keys: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = keys.get(key) or {}
    if not isinstance(found, dict) or len(found) > _MAX_PATTERNS:
        raise DamagedAdapter(
            f"The key '{key}' of {CONFIG} holds {_shown(found)}; up to {_MAX_PATTERNS:,} patterns "
            "are wanted.",
            _DAMAGED,
        )
    return found


def _number(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DamagedAdapter(
            f"The key '{key}' of {CONFIG} holds {_shown(value)}; a number is wanted.", _DAMAGED
        )
    # Not "> _LARGEST_ALPHA": a NaN must fail too.
    if not -_LARGEST_ALPHA <= value <= _LARGEST_ALPHA:
        raise DamagedAdapter(
            f"The key '{key}' of {CONFIG} holds {_shown(value)}; at most {_LARGEST_ALPHA:,.0f} is "
            "wanted.",
            _DAMAGED,
        )
    return float(value)


def _pattern(text: str) -> re.Pattern[str]:
    """A pattern as PEFT applies it: matches a whole module name or its part after a dot."""
    parts = len(_COMPLEX.findall(text))
    if len(text) <= _MAX_PATTERN_LENGTH and parts <= _MAX_COMPLEX_PARTS and not _RISKY.search(text):
        try:
            return re.compile(rf"(.*\.)?({text})$")
        except re.error:
            pass
    raise AdapterError(
        f"The key 'alpha_pattern' of {CONFIG} holds the pattern {_shown(text)}, which is "
        "invalid or too complex.",
        _NAME_MODULES,
    )


def _shown(value: object) -> str:
    """A value shortened for an error message."""
    match value:
        case None:
            return "nothing"
        case dict() | list():
            return f"a {type(value).__name__} of {len(value):,}"
        case _:
            text = repr(value) if not isinstance(value, int) or abs(value) < 1e18 else "huge"
            return text if len(text) <= 64 else text[:61] + "..."
