r"""Pre-tokenizers of byte-level BPE vocabularies: the split patterns by name, as in ggml.

A file names its rule in `tokenizer.ggml.pre`. A rule is a sequence of patterns; each splits the
pieces left by the one before, keeping both matches and the text between them. Patterns use the
syntax of Oniguruma, the engine of the `tokenizers` library. Where ggml has `(?=\p{L})[^a-z]`, these
intersect character classes, which matches the same without backtracking.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

_CONTRACTION = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_SPACES = r"\s+(?!\S)|\s+"
_LINES_AND_SPACES = rf"\s*[\r\n]+|{_SPACES}"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_MARKS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_UPPER = r"[\p{L}&&[^a-z]]"  # a letter, no ASCII lower case
_LOWER = r"[\p{L}&&[^A-Z]]"
_CASED = rf"[^\r\n\p{{L}}\p{{N}}]?(?:{_UPPER}*{_LOWER}+|{_UPPER}+{_LOWER}*)"
_WITHOUT_CONTRACTION = rf"{_WORD}|\p{{N}}|{_MARKS}|{_LINES_AND_SPACES}"
_ASCII_MARK_WORD = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"

_GPT2 = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|{_SPACES}"
_LLAMA3 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}{{1,3}}|{_MARKS}|{_LINES_AND_SPACES}"
_QWEN2 = rf"{_CONTRACTION}|{_WITHOUT_CONTRACTION}"
_QWEN35 = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_LINES_AND_SPACES}"
)
_TEKKEN = rf"{_CASED}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_LINES_AND_SPACES}"
_GPT4O = (
    rf"{_CASED}(?:{_CONTRACTION})?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*"
    rf"|{_LINES_AND_SPACES}"
)
_MARKED_WORDS = rf"{_ASCII_MARK_WORD}|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
_DEEPSEEK3 = rf"{_MARKED_WORDS}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_LINES_AND_SPACES}"
_SPARK = rf"{_MARKED_WORDS}| ?[\p{{P}}\p{{S}}]+|[\r\n]|{_SPACES}"
_BAILING = (
    rf"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|{_WORD}|\p{{N}}|{_MARKS}|\s*[\r\n]|{_SPACES}"
)
_SEED_CODER = rf"{_CONTRACTION}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_LINES_AND_SPACES}"
_MINICPM5 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}+|{_MARKS}|{_LINES_AND_SPACES}"
_EXAONE_MOE = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]?|\s*[\r\n]|{_SPACES}"
)
_CAPITAL, _SMALL = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"


def _words_by_case(within: str = "") -> str:
    """Words in which small letters follow capital ones, with a contraction; of characters `within`."""
    capital, small = f"[{_CAPITAL}{within}]", f"[{_SMALL}{within}]"
    word = f"{capital}*{small}+|{capital}+{small}*"
    return rf"[^\r\n\p{{L}}\p{{N}}]?(?:{word})(?:{_CONTRACTION})?"


_MARKS_AND_SLASH = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_LINES_AND_SPACES}"
_TINY_AYA = rf"{_words_by_case()}|\p{{N}}{{1,3}}|{_MARKS_AND_SLASH}"
_YOUTU = rf"{_words_by_case()}|\p{{N}}|{_MARKS_AND_SLASH}"
_YOUTU_SCRIPTS = (
    r"[\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+"
    r"|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}"
    r"\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+"
    r"|[\x{3105}-\x{312F}]+|[\x{4E00}-\x{9FA5}\x{3040}-\x{30FF}]+"
)
# These two as the models were trained: ggml groups the digits of "1234abc" from the right too, and
# does not end a word of small letters at a capital one.
_DIGITS_FROM_RIGHT = r"\d{1,3}(?=(?:\d{3})*\b)"
_OTHER_THAN_HAN = r"&&[^\p{Han}]"
_KIMI = rf"\p{{Han}}+|{_words_by_case(_OTHER_THAN_HAN)}|\p{{N}}{{1,3}}|{_MARKS}|{_LINES_AND_SPACES}"
_LINES = r"\n+"
_IDEOGRAPHS_AND_KANA = r"[\x{4E00}-\x{9FA5}\x{3040}-\x{30FF}]+"
_BLOOM = r" ?[^(\s|.,!?)\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C}]+"
# Without the wide spaces in that range, which ggml treats as ASCII spaces.
_CJK = r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}&&[^\s]]+"
# Cased letters of the Unicode version the model was trained with; hexadecimal.
_DEEPSEEK_LETTERS = (
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 "
    "388-38A 38C 38E-3A1 3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD "
    "1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D "
    "1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 "
    "1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 "
    "212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE "
    "2CF2 2CF3 A640-A66D A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 "
    "FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 "
    "118A0-118DF 1E900-1E943"
)


def _character_class(ranges: str) -> str:
    """Convert ranges such as `41-5A B5` to the inside of a character class."""
    return "".join(
        "-".join(rf"\x{{{code}}}" for code in part.split("-")) for part in ranges.split()
    )


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """One rule: split patterns in order, and defaults implied by its name.

    whole_words: a word that is a token is not merged. add_bos, add_sep: the defaults when the file
    does not state them. is_characters: characters are merged, not bytes, and spelled as in
    SentencePiece; the text is split at runs of newlines alone. composes: characters are composed
    first (Unicode NFC), which no key of a file states.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    add_bos: bool = False
    add_sep: bool = False
    is_characters: bool = False
    composes: bool = False


_DEFAULT_RULE = PreTokenizer((r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"))
_GPT2_RULE = PreTokenizer((_GPT2,))
_DIGITS_RULE = PreTokenizer((r"\p{N}", _GPT2))
_LLAMA3_RULE = PreTokenizer((_LLAMA3,), whole_words=True, add_bos=True)
_LLAMA3_MERGED_RULE = PreTokenizer((_LLAMA3,))
_QWEN2_RULE = PreTokenizer((_QWEN2,))
_DEEPSEEK3_RULE = PreTokenizer((r"\p{N}{1,3}", _IDEOGRAPHS_AND_KANA, _DEEPSEEK3))
_GPT4O_RULE = PreTokenizer((_GPT4O,))
_BAILING_RULE = PreTokenizer((_BAILING,))
_BLOOM_RULE = PreTokenizer((_BLOOM,))

_NAMES_BY_RULE: tuple[tuple[PreTokenizer, str], ...] = (
    (_DEFAULT_RULE, "default"),
    (
        _GPT2_RULE,
        "gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 mellum gigachat a.x-4.0 "
        "jina-es jina-de jina-v2-es jina-v2-de modern-bert",
    ),
    (PreTokenizer((_GPT2,), add_sep=True), "jina-v1-en jina-v2-code roberta-bpe"),
    (_DIGITS_RULE, "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2"),
    (
        _LLAMA3_RULE,
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
    ),
    (_LLAMA3_MERGED_RULE, "dbrx smaug-bpe chatglm-bpe"),
    (PreTokenizer((_LLAMA3,), whole_words=True), "glm4 glm5"),
    (
        _QWEN2_RULE,
        "qwen2 stablelm2 deepseek-r1-qwen megrez hunyuan solar-open grok-2 kormo f2llmv2",
    ),
    (PreTokenizer((_QWEN35,)), "qwen35"),
    (PreTokenizer((r"\p{N}{1,3}", _MINICPM5), whole_words=True), "minicpm5"),
    (PreTokenizer((_TEKKEN,), whole_words=True, add_bos=True), "tekken"),
    (PreTokenizer((_LINES, _QWEN2)), "laguna"),
    (PreTokenizer((_WITHOUT_CONTRACTION,)), "ufakzeka"),
    (PreTokenizer((_EXAONE_MOE,)), "exaone-moe"),
    (PreTokenizer((_DIGITS_FROM_RIGHT, _TINY_AYA)), "tiny_aya cohere2moe"),
    (PreTokenizer((_KIMI,)), "kimi-k2"),
    (PreTokenizer((r"\p{N}+", r"(?=(?:\d{3})+(?!\d))")), "superbpe"),
    (PreTokenizer((_YOUTU_SCRIPTS, _YOUTU), whole_words=True), "youtu"),
    (_GPT4O_RULE, "gpt-4o llama4 kanana2 talkie minimax-m2"),
    (_BAILING_RULE, "bailingmoe bailingmoe2 llada-moe"),
    (PreTokenizer((_SEED_CODER,)), "seed-coder"),
    (_DEEPSEEK3_RULE, "deepseek-v3 hunyuan-dense joyai-llm hy_v4"),
    (
        PreTokenizer((r"\p{N}{1,3}", _IDEOGRAPHS_AND_KANA, _SPARK, r"\p{N}")),
        "spark2_5",
    ),
    (
        PreTokenizer((_LINES,), is_characters=True),
        "gemma4 granite-embed-multi-311m sarvam-moe",
    ),
    (
        PreTokenizer(
            (
                r"[\r\n]",
                rf"\s?[{_character_class(_DEEPSEEK_LETTERS)}]+",
                r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3001}-\x{3002}]+",
                r"\s+\z",
                _CJK,
                r"\p{N}+",
            )
        ),
        "deepseek-llm",
    ),
    (
        PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}")),
        "deepseek-coder",
    ),
    (PreTokenizer((r"[\p{P}$+<=>^~|`]+", _GPT2, "[0-9][0-9][0-9]")), "falcon"),
    (_BLOOM_RULE, "poro-chat bloom gpt3-finnish"),
    (PreTokenizer((_BLOOM, r"\p{N}")), "viking"),
)

# The names whose tokenizers compose characters, by what says so. With `normalizers.NFC`: the
# classes Qwen2Tokenizer, Qwen3_5Tokenizer, CohereTokenizer and GPTNeoXTokenizer (MPT, OLMo) of
# transformers 5. With `unicodedata.normalize("NFC", text)`: the tokenizers that come with StableLM 2
# (Arcade100kTokenizer) and Hunyuan A13B (HYTokenizer). ggml composes none of them.
_COMPOSED = frozenset(
    ["qwen2", "qwen35", "command-r", "tiny_aya", "mpt", "olmo", "stablelm2", "hunyuan"]
)

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    name: replace(rule, composes=name in _COMPOSED)
    for rule, names in _NAMES_BY_RULE
    for name in names.split()
}
