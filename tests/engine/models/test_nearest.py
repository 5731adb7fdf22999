"""Architectures that are refused: the nearest that runs, and what is known of the file all the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tiny
from engine.cli.commands import main
from engine.errors import FaultKind
from engine.loading.inspect import inspect_model
from engine.models import ARCHITECTURES, ENCODERS
from engine.models.nearest import nearest, title

# Every name that llama.cpp 0.6.0-dev knows.
_LLAMACPP = """
    clip llama llama4 deci falcon grok gpt2 gptj gptneox mpt baichuan starcoder refact bert
    modern-bert nomic-bert nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 eurobert bloom
    stablelm qwen qwen2 qwen2moe qwen2vl qwen3 qwen3moe qwen3next qwen3vl qwen3vlmoe qwen35
    qwen35moe clef qwen4exp phi2 phi3 phimoe plamo plamo2 plamo3 codeshell orion internlm2
    minicpm minicpm3 gemma gemma2 gemma3 gemma3n gemma4 gemma4-assistant gemma-embedding
    starcoder2 mamba mamba2 maple jamba falcon-h1 xverse command-r cohere2 cohere2moe dbrx olmo
    olmo2 olmoe muse-glimmer openelm arctic deepseek deepseek2 deepseek2-ocr deepseek32
    deepseek4 chatglm glm4 glm4moe glm-dsa bitnet t5 t5encoder jais jais2 nemotron nemotron_h
    nemotron_h_moe exaone exaone4 exaone-moe rwkv6 rwkv6qwen2 rwkv7 arwkv7 granite granitemoe
    granitehybrid graniteswitch granite_swa chameleon wavtokenizer-dec plm bailingmoe
    bailingmoe2 bailingmoe3 dots1 dots3note arcee afmoe laguna ernie4_5 ernie4_5-moe hunyuan-moe
    hunyuan-dense hunyuan_vl hy_v3 hy_v4 smollm3 gpt-oss lfm2 lfm2moe dream smallthinker llada
    llada-moe seed_oss grovemoe apertus minimax-01 hrm_text minimax-m2 minimax-m3 cogvlm rnd1
    pangu-embedded mistral3 eagle3 dflash mistral4 paddleocr mimo2 step35 spark2_5 llama-embed
    maincoder kimi-linear kimi-k3 glm5-next talkie mellum nanbeige qwen3tts pockettts
"""
NAMES = _LLAMACPP.split()
RUNNING = ARCHITECTURES | ENCODERS


def test_every_known_architecture_has_a_nearest_that_runs() -> None:
    for name in NAMES:
        found = nearest(name, RUNNING)
        assert found in RUNNING, name
        assert name not in RUNNING or found == name
        assert nearest(name, {"llama", "bert"}), name  # whatever else runs


@pytest.mark.parametrize(
    ("name", "running", "wanted"),
    [
        ("qwen4exp", {"qwen35", "qwen3", "llama"}, "Qwen3.5 models (qwen35)"),
        ("qwen4exp", {"qwen3", "llama"}, "Qwen3 models (qwen3)"),
        ("qwen2vl", {"qwen2", "qwen3"}, "Qwen2.5 models (qwen2)"),
        ("deepseek4", {"deepseek2", "llama"}, "DeepSeek V2 and V3 models (deepseek2)"),
        ("minimax-m3", {"qwen3moe", "llama"}, "Qwen3 MoE models (qwen3moe)"),
        ("glm5-next", {"glm4", "llama"}, "GLM-4 models (glm4)"),
        ("graniteswitch", {"granite", "llama"}, "Granite 3 models (granite)"),
        ("jamba", {"granitehybrid", "llama"}, "Granite 4 models (granitehybrid)"),
        ("jina-bert-v3", {"nomic-bert", "bert", "llama"}, "Nomic Embed models (nomic-bert)"),
        ("xverse", {"llama", "qwen3"}, "Llama and Mistral models (llama)"),
        ("maple", {"maple", "llama"}, "maple models"),
        # Of later versions than this one.
        ("qwen36", {"qwen3", "llama"}, "Qwen3 models (qwen3)"),
        ("deepseek5", {"deepseek2", "llama"}, "DeepSeek V2 and V3 models (deepseek2)"),
        ("Gemma5", {"gemma3", "gemma", "llama"}, "Gemma models (gemma)"),
    ],
)
def test_the_nearest_is_of_the_same_lineage(name: str, running: set[str], wanted: str) -> None:
    assert title(nearest(name, running)) == wanted


def test_a_name_like_no_other_has_no_nearest(tmp_path: Path) -> None:
    assert nearest("zzz", RUNNING) == ""
    path = tiny.write(tmp_path / "m.gguf", metadata={"general.architecture": "zzz"})
    assert "such as Llama, Qwen or Gemma" in inspect_model(path).remedy


def test_info_of_a_refused_architecture_names_it_and_its_contents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "rwkv7"
    sizes = {f"{name}.block_count": 2, f"{name}.context_length": 512}
    path = tiny.write(tmp_path / "m.gguf", metadata={"general.architecture": name, **sizes})
    assert main(["info", "-m", str(path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["architecture"] == name
    assert facts["problem"].startswith("The file is ")
    assert facts["formats"][0]["format"] == "F32"
    assert facts["formats"][0]["tensors"] > 10
    assert facts["parameters"] > 10_000
    assert (facts["layers"], facts["context"]) == (2, 512)
    assert facts["vocabulary"] == 307
    assert facts["vocabulary_from"] == "the file's own keys"
    assert main(["info", "-m", str(path)]) == 0
    assert f"architecture: {name}\n" in capsys.readouterr().out


def test_the_refusal_names_the_nearest_and_the_window_does_too(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", metadata={"general.architecture": "deci"})
    facts = inspect_model(path)
    assert facts.problem == "The file is a 'deci' model, an architecture this version cannot run."
    near = "Llama and Mistral models (llama)"
    assert facts.remedy == f"The nearest family that runs is {near}; choose one of these."
    assert facts.fault is not None
    assert facts.fault.kind is FaultKind.ARCHITECTURE
    assert (facts.fault.about, facts.fault.nearest) == ("deci", near)


def test_info_of_a_file_with_another_fault_still_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tiny.write(tmp_path / "m.gguf", metadata={"general.type": "adapter"})
    assert main(["info", "-m", str(path)]) == 1
    assert "is an adapter" in capsys.readouterr().err
