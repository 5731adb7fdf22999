"""Names of a file's weight format as users know them: "Q4_K_M", "Q4_1", "Q1_0"."""

from __future__ import annotations

from engine.gguf.reader import GGUFFile
from engine.loading.preflight import main_format

# The mixes of several formats among llama.cpp's values of `general.file_type`. The name of any
# other file is that of its matrices, since converters write a wrong type for newer formats.
_MIXES = {
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    31: "IQ1_M",
}


def format_name(file: GGUFFile) -> str:
    """The quantization mix that the file states, else the format of most of its weights.

    "" when the file has no matrices. A stated mix counts only if some matrix has one of its
    formats, such as Q4_K in a file of type Q4_K_M.
    """
    main = main_format(file)
    if main is None:
        return ""
    mix = _MIXES.get(_file_type(file), "")
    held = {info.format.name for info in file.tensors.values() if len(info.shape) > 1}
    family = mix.partition("_")[0]  # "Q4" of "Q4_K_M": such files also hold Q5_0 and Q6_K
    return mix if mix and any(name.startswith(family) for name in held) else main.name


def _file_type(file: GGUFFile) -> int:
    found = file.metadata.get("general.file_type")
    return found if isinstance(found, int) else -1
