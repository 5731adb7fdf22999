"""Pre-tokenizers: every name that llama.cpp reads or its converter writes, and how they split."""

from __future__ import annotations

import pytest
from tokenizers import Regex, pre_tokenizers

import tiny
from engine.frontend.tokenizer.pretokenizers import PRE_TOKENIZERS
from engine.frontend.tokenizer.tokenizer import Tokenizer

# Of b11434: `tokenizer_pre ==` in src/llama-vocab.cpp, and `res =` in conversion/base.py.
NAMES = """
    a.x-4.0 afmoe bailingmoe bailingmoe2 bert-bge bert-bge-large bloom chameleon chatglm-bpe
    codeshell cohere2moe command-r dbrx deepseek-coder deepseek-llm deepseek-r1-qwen
    deepseek-v3 default exaone exaone-moe exaone4 f2llmv2 falcon falcon-h1 falcon3 gemma4
    gigachat glm4 glm5 gpt-2 gpt-4o gpt3-finnish granite-docling granite-embed-multi-311m
    granite-embed-multi-97m grok-2 hunyuan hunyuan-dense hy_v4 jais jais-2 jina-de jina-es
    jina-v1-en jina-v2-code jina-v2-de jina-v2-en jina-v2-es jina-v5-nano joyai-llm kanana2
    kimi-k2 kormo laguna lfm2 llada-moe llama-bpe llama-v3 llama3 llama4 megrez mellum
    mellum2 midm-2.0 minerva-7b minicpm5 minimax-m2 mmbert modern-bert mpt olmo phi-2
    pixtral poro-chat qwen2 qwen35 refact roberta-bpe sarvam-moe seed-coder smaug-bpe smollm
    solar-open spark2_5 stablelm2 starcoder superbpe talkie tekken tiny_aya trillion
    ufakzeka viking whitespace youtu
"""
# Names in files of architectures that do not run here.
OTHER_FAMILIES = {
    "afmoe": "afmoe",
    "chameleon": "chameleon",
    "granite-embed-multi-97m": "modern-bert",
    "jais-2": "jais2",
    "mmbert": "modern-bert",
    "whitespace": "jina-bert-v2",
}
# Names of WordPiece vocabularies, which have one rule: the name is not read.
WORDPIECE = {"bert-bge", "bert-bge-large", "jina-v2-en"}
# The pieces were compared with llama-server's ids on a vocabulary of 152,000 tokens for 298 texts.
SPLITS = [
    ("laguna", "It's a\n\n  b 12", ["It", "'s", " a", "\n\n", " ", " b", " ", "1", "2"]),
    ("ufakzeka", "Ali'nin 12 evi", ["Ali", "'nin", " ", "1", "2", " evi"]),
    (
        "exaone-moe",
        "I'm at home now. 12\n\n x",
        ["I", "'m", " at home now", ".", " ", "1", "2", "\n\n", " x"],
    ),
    # Digits before a letter are not grouped from the right.
    (
        "tiny_aya",
        "HelloWorld'S 1234567 x1234a",
        ["Hello", "World'S", " ", "1", "234", "567", " x", "123", "4", "a"],
    ),
    ("cohere2moe", "12345", ["12", "345"]),
    (
        "kimi-k2",
        "\u4e2d\u6587Abc DEfg's 1234, \ud55c\uad6d",
        ["\u4e2d\u6587", "Abc", " DEfg's", " ", "123", "4", ",", " \ud55c\uad6d"],
    ),
    ("superbpe", "a 1234567b", ["a ", "1", "234", "567", "b"]),
    (
        "youtu",
        "\ud55c\uad6d\uc5b4abc\uff0c\u3002\u4e2d\u6587\u304b\u306a12",
        ["\ud55c\uad6d\uc5b4", "abc", "\uff0c\u3002", "\u4e2d\u6587\u304b\u306a", "1", "2"],
    ),
    (
        "spark2_5",
        "a!b\r\n\n \u4e2d\u65871234 ok..\n",
        ["a", "!b", "\r", "\n", "\n", " ", "\u4e2d\u6587", "1", "2", "3", "4", " ok", "..", "\n"],
    ),
    ("roberta-bpe", "It's  a 12", ["It", "'s", " ", " a", " 12"]),
    ("sarvam-moe", "a b\n\nc d", ["a b", "\n\n", "c d"]),
]


def test_every_name_of_llama_cpp_is_known_or_of_another_family() -> None:
    unknown = set(NAMES.split()) - PRE_TOKENIZERS.keys()
    assert unknown == OTHER_FAMILIES.keys() | WORDPIECE


@pytest.mark.parametrize(("name", "text", "pieces"), SPLITS)
def test_texts_are_split_as_llama_cpp_does(name: str, text: str, pieces: list[str]) -> None:
    steps = [
        pre_tokenizers.Split(Regex(pattern), "isolated")
        for pattern in PRE_TOKENIZERS[name].patterns
    ]
    found = pre_tokenizers.Sequence(steps).pre_tokenize_str(text)
    assert [piece for piece, _ in found] == pieces


def test_a_vocabulary_of_sarvam_merges_characters_and_not_bytes() -> None:
    tokens = ["<unk>", "<s>", "\u2581", "\u0905", "a", "b", "\u2581a", "\u2581ab", "\n", "<0xE0>"]
    keys = {
        "model": "gpt2",
        "pre": "sarvam-moe",
        "tokens": tokens,
        "merges": ["\u2581 a", "\u2581a b"],
        "token_type": [tiny.UNKNOWN, tiny.CONTROL] + [tiny.NORMAL] * 7 + [tiny.BYTE],
        "unknown_token_id": 0,
        "bos_token_id": 1,
        "add_bos_token": False,
    }
    tokenizer = Tokenizer.from_metadata(
        {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
    )
    assert tokenizer.encode("ab ab\n\u0905") == [4, 5, 7, 8, 3]
    assert tokenizer.decode([4, 5, 7, 8, 3]) == "ab ab\n\u0905"
