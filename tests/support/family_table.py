"""The README's table of model families: what each is known for, and what it is tested against.

`python tests/support/family_table.py` writes it again between its marks in the README.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import architecture_files  # noqa: E402
import oracle  # noqa: E402
import transformers_files  # noqa: E402
from engine.models import ARCHITECTURES  # noqa: E402
from oracle_families import FAMILIES  # noqa: E402

README = ROOT / "README.md"
BEGIN, END = "<!-- families -->", "<!-- /families -->"
# Families as users know them, their architectures, and what they are known for.
ROWS: tuple[tuple[str, str, str], ...] = (
    ("Qwen3.5 to 3.8, Bonsai 27B", "qwen35 qwen35moe qwen3next", "reasoning; long texts in little memory"),
    ("Qwen2.5, Qwen3, VL, Bonsai 8B", "qwen2 qwen2vl qwen3 qwen3moe qwen3vl qwen3vlmoe", "all-round models of every size; 1-bit Bonsai"),
    ("Gemma 4, Gemma 3n", "gemma4 gemma3n", "phones and laptops: embeddings for every layer"),
    ("Gemma 1 to 3", "gemma gemma2 gemma3", "many languages"),
    ("gpt-oss", "gpt-oss", "OpenAI's open mixtures; MXFP4"),
    ("Llama 1 to 3, Mistral 7B, Mixtral", "llama", "what most models are derived from"),
    ("Llama 4", "llama4", "mixture of large experts"),
    ("Ministral 3, Mistral 4", "mistral3 mistral4", "European languages; tools"),
    ("LFM2, LFM2.5", "lfm2 lfm2moe", "short convolutions: quick on processors"),
    ("Granite 3, 4, 4.1", "granite granitemoe granitehybrid granite_swa", "IBM's models for offices; Mamba-2 hybrids"),
    ("Nemotron 3", "nemotron_h nemotron_h_moe", "NVIDIA's Mamba-2 hybrids"),
    ("Falcon-H1", "falcon-h1", "attention and Mamba-2 side by side"),
    ("Mamba-2", "mamba2", "no attention at all"),
    ("GLM-4.7 Flash, DeepSeek V2", "deepseek2", "latent attention, compressed in the cache"),
    ("GLM-4, GLM-4.5", "glm4 glm4moe", "code and agents"),
    ("SmolLM3", "smollm3", "open training data"),
    ("Phi-2 to Phi-4, Phi-3.5 MoE", "phi2 phi3 phimoe", "mathematics in small models"),
    ("OLMo 2 and 3, OLMoE", "olmo2 olmoe", "fully open"),
    ("Command R, R7B and mixtures", "command-r cohere2 cohere2moe", "retrieval and tools"),
    ("EXAONE 4, Seed-OSS, Hunyuan", "exaone4 seed_oss hunyuan-dense", "Korean, English, Chinese"),
    ("ERNIE 4.5, Ling 2 and 3", "ernie4_5 ernie4_5-moe bailingmoe2 bailingmoe3", "Chinese; small mixtures"),
    ("Spark-X2.5, Nanbeige 4, MiniCPM", "spark2_5 nanbeige minicpm", "small Chinese models"),
    ("Laguna, Maple, Mellum 2", "laguna maple mellum", "mixtures for code"),
    ("Apertus, Arcee, BitNet", "apertus arcee bitnet", "open European model; US model; ternary weights"),
    ("StarCoder 1 and 2", "starcoder starcoder2", "code completion"),
)  # fmt: skip


def table() -> str:
    """The table as Markdown; only what runs is in it."""
    peer, other = tested()
    lines = [
        "| Family | `general.architecture` | Known for | Tested against |",
        "|---|---|---|---|",
    ]
    for title, names, known in ROWS:
        running = [name for name in names.split() if name in ARCHITECTURES]
        if not running:
            continue
        by = [("llama.cpp", peer), ("transformers", other)]
        shown = [_evidence(oracle, running, having) for oracle, having in by]
        architectures = ", ".join(f"`{name}`" for name in running)
        lines.append(f"| {title} | {architectures} | {known} | {', '.join(filter(None, shown))} |")
    return "\n".join(lines)


def _evidence(name: str, running: list[str], having: set[str]) -> str:
    """An oracle, with the architectures it was recorded for unless these are all."""
    some = [one for one in running if one in having]
    if len(some) == len(running):
        return name
    return f"{name} ({', '.join(some)})" if some else ""


def tested() -> tuple[set[str], set[str]]:
    """Architectures with recorded logits of llama.cpp, and of transformers."""
    cases = {FAMILIES[case.family].gguf for case in oracle.CASES.values()}
    peer = {one.architecture for one in architecture_files.recorded().values()} | cases
    other = {one.skeleton.architecture for one in transformers_files.recorded().values()}
    return peer, cases | other


def listed() -> str:
    """The table that the README has."""
    return README.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0].strip()


if __name__ == "__main__":
    before, rest = README.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    README.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", encoding="utf-8")
