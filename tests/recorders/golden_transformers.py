"""Transformers' float32 logits of tiny random models, and the files llama.cpp makes of them, recorded.

Run from the project's folder with transformers installed. LLAMA_CPP is a folder of llama.cpp's
source; its `conversion` and `gguf-py` turn the saved models to GGUF files.

    python tests/recorders/golden_transformers.py LLAMA_CPP [NAME...]

Without names it records all cases of `transformers_cases.py`, else these, and keeps the others. It
refuses a case in which some parameter changes no logits, because then nothing would be compared.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from transformers_cases import CASES  # noqa: E402
from transformers_configs import SHARED, Case  # noqa: E402

TOKENS = 96  # 80 more than the windows have
STEP = 16  # weights are multiples of 1/16, which compress well and are exact in float16
LEAST_EFFECT = 1e-3  # of a parameter on some logit, in standard deviations of its row


def make(case: Case, seed: int) -> Any:
    """The model of a case in float32 with weights drawn from this seed."""
    import transformers

    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(case.kind, **SHARED | case.config)
    # Not all of them are known to AutoModelForCausalLM.
    kind = type(config).__name__.removesuffix("Config").removesuffix("Text")
    made = getattr(transformers, f"{kind}ForCausalLM")
    model = made._from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for name, parameter in weights(model).items():
            parameter.copy_(draw(name, parameter))
    return model


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The parameters by name, and the buffers that are saved with them."""
    saved = model.state_dict().keys()
    buffers = {name: one for name, one in model.named_buffers() if name in saved}
    return dict(model.named_parameters()) | buffers


def draw(name: str, before: torch.Tensor) -> torch.Tensor:
    """Random weights like those of trained models: norms around their initial 0 or 1, slow decays."""
    normal = torch.randn_like(before)
    if name.endswith("A_log"):
        drawn = torch.rand_like(before) * 3.5 - 3  # a token keeps 0.2 to 0.97 of the state
    elif name.endswith("dt_bias"):
        drawn = normal * 0.5
    elif "conv" in name and before.ndim == 3:
        drawn = normal * 0.4
    elif name.endswith("sinks"):
        drawn = normal
    elif before.ndim <= 1 and before.numel() and bool((before == before.flatten()[0]).all()):
        drawn = before + 0.25 * normal  # norms, biases and single factors
    elif "embed" in name:
        drawn = 0.3 * normal
    else:
        drawn = 0.15 * normal
    return torch.round(drawn * STEP) / STEP


def logits(model: Any, tokens: list[int]) -> torch.Tensor:
    """Logits [T, V] in float32."""
    with torch.inference_mode():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].float()


def check(model: Any, case: Case, tokens: list[int], expected: torch.Tensor) -> None:
    """Refuse a model in which a parameter changes no logits; raises SystemExit."""
    idle = []
    spread = expected.std(1, keepdim=True)
    for name, parameter in weights(model).items():
        before = parameter.detach().clone()
        with torch.no_grad():
            parameter.copy_(before + 0.25 * torch.randn_like(before))
            change = (logits(model, tokens) - expected).abs() / spread
            parameter.copy_(before)
        if not float(change.max()) > LEAST_EFFECT and not name.endswith(case.ineffective or " "):
            idle.append(f"{name} {float(change.max()):.1e}")
    if idle:
        raise SystemExit(f"{case.kind}: no logit depends on {', '.join(idle)}")


def convert(folder: Path, path: Path) -> None:
    """Write the saved model of a folder as a GGUF file in F32 without a vocabulary."""
    import conversion
    import gguf

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    converter = conversion.get_model_class(config["architectures"][0])
    # That of Mistral 3 chooses one of the classes it contains.
    inner = [one for one in vars(converter).values() if isinstance(one, type)]
    for one in (converter, *inner):
        one.set_vocab = one._set_vocab_none
        one.no_mtp = True  # leaves out heads that predict several tokens
    with torch.inference_mode():
        converter(folder, gguf.LlamaFileType.ALL_F32, path, eager=True).write()


def record(name: str, folder: Path) -> Any:
    """Run and convert one case."""
    import transformers_files

    case = CASES[name]
    model = make(case, zlib.crc32(name.encode()))
    tokens = (
        np.random.default_rng(zlib.crc32(name.encode()))
        .integers(0, case.vocabulary, TOKENS)
        .tolist()
    )
    rows = logits(model, tokens)
    check(model, case, tokens, rows)
    saved = folder / name
    model.save_pretrained(saved)
    if case.rename:
        config = json.loads((saved / "config.json").read_text(encoding="utf-8"))
        case.rename(config)
        (saved / "config.json").write_text(json.dumps(config), encoding="utf-8")
    # Gemma's converter counts the tokens there.
    words = {f"<{token}>": token for token in range(case.vocabulary)}
    text = json.dumps({"model": {"vocab": words}, "added_tokens": []})
    (saved / "tokenizer.json").write_text(text, encoding="utf-8")
    path = folder / f"{name}.gguf"
    convert(saved, path)
    return transformers_files.read(path, tokens, rows.numpy())


def main() -> int:
    """Record the cases named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("llama_cpp", type=Path)
    parser.add_argument("names", nargs="*", choices=[[], *CASES], metavar="NAME")
    options = parser.parse_args()
    sys.path[:0] = [str(options.llama_cpp / "gguf-py"), str(options.llama_cpp)]
    logging.disable(logging.INFO)
    import transformers

    import transformers_files as files

    names = options.names or list(CASES)
    cases = files.recorded() if options.names and files.RECORDED.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            cases[name] = record(name, Path(folder))
            size = sum(one.size for one in cases[name].tensors.values())
            print(f"{name}: {cases[name].skeleton.architecture}, {size:,} weights", flush=True)
    origin = f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager"
    files.save({name: cases[name] for name in CASES if name in cases}, origin)
    print(f"{files.RECORDED.name}: {files.RECORDED.stat().st_size:,} bytes, {origin}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
