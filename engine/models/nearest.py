"""The nearest architecture that runs, for the error of one that does not.

Every architecture has one relative: the one it was derived from, or that shares most parts with it.
"""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

# Names of `general.architecture`, by their relative.
_DERIVED = {
    "arcee": "afmoe",
    "bailingmoe2": "bailingmoe bailingmoe3",
    "bert": "jina-bert-v2 modern-bert nomic-bert t5encoder",
    "cohere2": "cohere2moe",
    "command-r": "cohere2",
    "deepseek2": (
        "deepseek deepseek2-ocr deepseek32 deepseek4 dots3note kimi-linear minicpm3 mistral4 plm"
    ),
    "ernie4_5": "ernie4_5-moe paddleocr",
    "exaone4": "exaone exaone-moe",
    "gemma": "gemma2",
    "gemma2": "gemma3",
    "gemma3": "gemma-embedding gemma3n gemma4 plamo3",
    "gemma4": "gemma4-assistant",
    "gemma-embedding": "llama-embed",
    "glm4": "chatglm glm4moe",
    "glm4moe": "glm-dsa glm5-next",
    "gpt2": "jais",
    "granite": "granite_swa granitemoe graniteswitch",
    "granitehybrid": "falcon-h1 jamba mamba2 nemotron_h plamo2",
    "granitemoe": "granitehybrid",
    "hunyuan-dense": "hunyuan-moe hunyuan_vl hy_v3",
    "hy_v3": "hy_v4",
    "kimi-linear": "kimi-k3",
    "lfm2": "lfm2moe",
    "llama": (
        "apertus arcee baichuan bitnet chameleon clip cogvlm command-r dbrx deci eagle3 ernie4_5 "
        "gemma glm4 granite grok hrm_text internlm2 jais2 llada llama4 mistral3 minicpm nanbeige "
        "olmo2 openelm orion pangu-embedded phi2 phi3 plamo pockettts qwen2 smollm3 spark2_5 "
        "starcoder t5 wavtokenizer-dec xverse"
    ),
    "llama4": "muse-glimmer",
    "mamba2": "mamba rwkv6 rwkv7",
    "nemotron_h": "nemotron nemotron_h_moe",
    "nomic-bert": "eurobert jina-bert-v3 neo-bert nomic-bert-moe",
    "olmo2": "exaone4 olmo olmoe",
    "olmoe": "llada-moe",
    "phi2": "falcon gptj gptneox stablelm",
    "phi3": "phimoe",
    "qwen2": "arwkv7 dream qwen qwen2vl qwen3 rwkv6qwen2 seed_oss",
    "qwen3": "dflash hunyuan-dense lfm2 maincoder qwen3moe qwen3tts qwen3vl talkie",
    "qwen3moe": (
        "arctic bailingmoe2 deepseek2 dots1 gpt-oss grovemoe laguna maple mellum mimo2 minimax-01 "
        "minimax-m2 minimax-m3 qwen2moe qwen3next qwen3vlmoe rnd1 smallthinker step35"
    ),
    "qwen3next": "qwen35",
    "qwen35": "clef qwen35moe qwen4exp",
    "starcoder": "bloom codeshell gpt2 mpt refact starcoder2",
}
_RELATIVES = {name: relative for relative, names in _DERIVED.items() for name in names.split()}
# What users know; an architecture of another name is known by that.
_TITLES = {
    "bert": "BERT encoders",
    "cohere2": "Command R7B",
    "command-r": "Command R",
    "deepseek2": "DeepSeek V2 and V3",
    "ernie4_5": "ERNIE 4.5",
    "exaone4": "EXAONE 4",
    "falcon-h1": "Falcon-H1",
    "gemma": "Gemma",
    "gemma-embedding": "EmbeddingGemma",
    "gemma2": "Gemma 2",
    "gemma3": "Gemma 3",
    "gemma3n": "Gemma 3n",
    "gemma4": "Gemma 4",
    "glm4": "GLM-4",
    "glm4moe": "GLM-4.5",
    "granite": "Granite 3",
    "granitehybrid": "Granite 4",
    "hunyuan-dense": "Hunyuan",
    "lfm2": "LFM2",
    "llama": "Llama and Mistral",
    "llama4": "Llama 4",
    "mamba2": "Mamba-2",
    "mistral3": "Ministral 3",
    "nemotron_h": "Nemotron 3",
    "nomic-bert": "Nomic Embed",
    "olmo2": "OLMo 2",
    "olmoe": "OLMoE",
    "phi2": "Phi-2",
    "phi3": "Phi-3 and Phi-4",
    "qwen2": "Qwen2.5",
    "qwen3": "Qwen3",
    "qwen35": "Qwen3.5",
    "qwen35moe": "Qwen3.5 MoE",
    "qwen3moe": "Qwen3 MoE",
    "qwen3next": "Qwen3-Next",
    "starcoder": "StarCoder",
    "starcoder2": "StarCoder2",
}


def nearest(name: str, running: Collection[str]) -> str:
    """The name in `running` that is most closely related to `name`.

    An architecture that was never heard of is taken for that with the most similar name. "" if
    there is none, and for a name like no other.
    """
    known = {*_DERIVED, *_RELATIVES, *running}
    if name not in known:
        name = next(iter(get_close_matches(name.lower(), sorted(known), 1, 0.6)), "")
    while name and name not in running:
        name = _RELATIVES.get(name, "")
    return name


def title(name: str) -> str:
    """An architecture as users know it, with its name: "Qwen3.5 models (qwen35)"."""
    known = _TITLES.get(name)
    return f"{known} models ({name})" if known else f"{name} models"
