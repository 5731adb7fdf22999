"""Records the prompts of conversations with pictures that transformers' processors make.

    python tests/recorders/golden_image_prompts.py

The processors' own functions write what stands in place of a placeholder; the tokenizer is a small one
of the `tokenizers` library. Modules of torchvision, which they import, may be missing.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np
import torch
import transformers
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast, ProcessorMixin

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from image_cases import CASES, RECORDED, Case, Size, collapsed, conversation  # noqa: E402

_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def main() -> None:
    """Write the recorded file."""
    cases = {name: recorded(case) for name, case in CASES.items()}
    origin = f"Prompts by transformers {transformers.__version__}'s processors and tokenizers"
    text = json.dumps({"origin": origin, "cases": cases}, indent=1, ensure_ascii=False)
    RECORDED.write_text(f"{text}\n", encoding="utf-8")


def recorded(case: Case) -> dict[str, Any]:
    """Text and ids of the prompt of a case, runs of rows as in `collapsed`."""
    tokenizer = tokenizer_of(case)
    messages = conversation(case.sizes)
    text = tokenizer.apply_chat_template(
        messages, chat_template=case.template, tokenize=False, add_generation_prompt=True
    )
    assert isinstance(text, str)
    placeholder, replacement = REPLACEMENTS[case.projector]
    pieces = text.split(placeholder)
    assert len(pieces) == 1 + len(case.sizes)
    inner = [replacement(case, size) for size in case.sizes]
    if replacement is _minicpm:
        numbered = _processor("minicpmv4_6", "MiniCPMV4_6Processor")._prepend_local_ids
        inner = numbered(_minicpm_tokens(case), [text], inner, placeholder)
    whole = "".join(a + b for a, b in zip(pieces, (*inner, ""), strict=True))
    ids = tokenizer(whole, add_special_tokens=False)["input_ids"]
    rows = {tokenizer.convert_tokens_to_ids(one) for one in case.rows}
    return {"text": text, "ids": collapsed(ids, rows)}


def tokenizer_of(case: Case) -> PreTrainedTokenizerFast:
    """The small vocabulary of a case as transformers' tokenizer."""
    keys = case.vocabulary
    tokens = keys["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in keys["tokenizer.ggml.merges"]]
    made = Tokenizer(models.BPE({token: at for at, token in enumerate(tokens)}, merges))
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN2), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    kinds = keys["tokenizer.ggml.token_type"]
    controls = [token for token, kind in zip(tokens, kinds, strict=True) if kind == 3]
    begin = tokens[keys["tokenizer.ggml.bos_token_id"]]
    fast = PreTrainedTokenizerFast(tokenizer_object=made, bos_token=begin)
    fast.add_special_tokens({"additional_special_tokens": controls})
    return fast


def _processor(module: str, name: str) -> Any:
    path = f"transformers.models.{module}.processing_{module}"
    try:
        return getattr(importlib.import_module(path), name)
    except ModuleNotFoundError as error:
        if "torchvision" not in str(error):
            raise
    missing = ("", ".transforms", ".transforms.v2", ".transforms.v2.functional", ".io", ".ops")
    with patch.dict(sys.modules, {f"torchvision{one}": MagicMock() for one in missing}):
        return getattr(importlib.import_module(path), name)


def _qwen(case: Case, size: Size) -> str:
    grid = torch.tensor([1, 2 * size.lines, 2 * size.columns])
    given = SimpleNamespace(
        image_processor=SimpleNamespace(merge_size=2), image_token="<|image_pad|>"
    )
    inputs = {"image_grid_thw": [grid]}
    return _processor("qwen3_vl", "Qwen3VLProcessor").replace_image_token(given, inputs, 0)


def _gemma4uv(case: Case, size: Size) -> str:
    return _gemma4(case, size, "gemma4_unified", "Gemma4UnifiedProcessor")


def _gemma4(case: Case, size: Size, module: str = "gemma4", name: str = "Gemma4Processor") -> str:
    given = SimpleNamespace(boi_token="<|image>", image_token="<|image|>", eoi_token="<image|>")
    inputs = {"num_soft_tokens_per_image": [size.lines * size.columns]}
    return _processor(module, name).replace_image_token(given, inputs, 0)


def _gemma3(case: Case, size: Size) -> str:
    kind = _processor("gemma3", "Gemma3Processor")
    tokenizer = SimpleNamespace(
        boi_token_id=0,
        boi_token="<start_of_image>",
        image_token="<image_soft_token>",
        eoi_token="<end_of_image>",
    )
    with patch.object(ProcessorMixin, "__init__"):
        made = kind(None, tokenizer, image_seq_length=size.lines * size.columns)
    return made.replace_image_token({"num_crops": [0]}, 0)


def _pixtral(case: Case, size: Size) -> str:
    given = SimpleNamespace(
        patch_size=8,
        spatial_merge_size=2,
        image_token="[IMG]",
        image_break_token="[IMG_BREAK]",
        image_end_token="[IMG_END]",
    )
    inputs = {"image_sizes": [(16 * size.lines, 16 * size.columns)]}
    return _processor("pixtral", "PixtralProcessor").replace_image_token(given, inputs, 0)


def _lfm2(case: Case, size: Size) -> str:
    given = SimpleNamespace(
        image_token="<image>",
        image_start_token="<|image_start|>",
        image_end_token="<|image_end|>",
        image_thumbnail_token="<|img_thumbnail|>",
    )
    count = size.lines * size.columns
    whole = count + size.columns if size.has_overview else count
    build = _processor("lfm2_vl", "Lfm2VlProcessor")._build_image_tokens
    return build(given, *size.grid, count, whole, size.has_overview, True)


def _idefics3(case: Case, size: Size) -> str:
    given = SimpleNamespace(
        fake_image_token="<fake_token_around_image>",
        image_token="<image>",
        global_image_tag="<global-img>",
        image_seq_len=size.lines * size.columns,
    )
    lines, columns = (0, 0) if size.grid == (1, 1) else size.grid
    inputs = {"rows": [[lines]], "cols": [[columns]]}
    return _processor("idefics3", "Idefics3Processor").replace_image_token(given, inputs, 0)


def _glm4v(case: Case, size: Size) -> str:
    grid = torch.tensor([1, 2 * size.lines, 2 * size.columns])
    given = SimpleNamespace(image_processor=SimpleNamespace(merge_size=2), image_token="<|image|>")
    inputs = {"image_grid_thw": [grid]}
    return _processor("glm4v", "Glm4vProcessor").replace_image_token(given, inputs, 0)


def _internvl(case: Case, size: Size) -> str:
    given = SimpleNamespace(
        start_image_token="<img>",
        image_token="<IMG_CONTEXT>",
        end_image_token="</img>",
        image_seq_length=size.lines * size.columns,
    )
    inputs = {"num_patches": [size.grid[0] * size.grid[1] + size.has_overview]}
    return _processor("internvl", "InternVLProcessor").replace_image_token(given, inputs, 0)


def _minicpm_tokens(case: Case) -> SimpleNamespace:
    return SimpleNamespace(
        image_token=case.rows[0],
        image_start_token="<image>",
        image_end_token="</image>",
        slice_start_token="<slice>",
        slice_end_token="</slice>",
        image_id_start_token="<image_id>",
        image_id_end_token="</image_id>",
        slice_mode=True,
    )


def _minicpm(case: Case, size: Size) -> str:
    lines, columns = size.grid
    patches = [4 * size.lines, 4 * size.columns]
    more = size.has_overview and case.projector == "minicpmv4_6"
    overview = [4 * (size.lines + more), 4 * size.columns]
    divided = [patches] * (lines * columns) if size.has_overview else []
    inputs = {
        "grids": [[lines, columns] if size.has_overview else [0, 0]],
        "num_patches_per_image": [1 + len(divided)],
        "target_sizes": np.array([overview, *divided]),
    }
    replace = _processor("minicpmv4_6", "MiniCPMV4_6Processor").replace_image_token
    return replace(_minicpm_tokens(case), inputs, 0, image_token_divisor=16)


def _llama4(case: Case, size: Size) -> str:
    split = _processor("llama4", "Llama4Processor")._prompt_split_image
    return split(None, size.grid, size.lines * size.columns)


REPLACEMENTS: dict[str, tuple[str, Callable[[Case, Size], str]]] = {
    "qwen3vl_merger": ("<|image_pad|>", _qwen),
    "gemma4v": ("<|image|>", _gemma4),
    "gemma4uv": ("<|image|>", _gemma4uv),
    "gemma3": ("<start_of_image>", _gemma3),
    "pixtral": ("[IMG]", _pixtral),
    "lfm2": ("<image>", _lfm2),
    "idefics3": ("<image>", _idefics3),
    "internvl": ("<IMG_CONTEXT>", _internvl),
    "glm4v": ("<|image|>", _glm4v),
    "minicpmv4_6": ("<|image_pad|>", _minicpm),
    "llama4": ("<|image|>", _llama4),
    "resampler": ("(<image>./</image>)", _minicpm),
}

if __name__ == "__main__":
    main()
