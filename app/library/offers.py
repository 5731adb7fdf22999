"""Offers: files of a hub repository, with their quantization layout and a recommended one.

The layout of a file that is not downloaded is taken from its name. `RUNS` lists the layouts this
version runs; a test compares it with the table of formats.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from app.net.hub import HubFile, Source
from app.state.library import Memory, Offer
from app.system.translation import tr
from engine import model_name

# Layouts this version runs, as they appear in file names. RECOMMENDED has fast kernels, in order
# of preference; the rest of RUNS has none, or loses much quality.
RECOMMENDED = (
    "Q4_K_M", "Q4_K_S", "Q4_K", "IQ4_XS", "IQ4_NL", "Q4_1", "Q4_0", "MXFP4", "Q5_K_M", "Q5_K_S",
    "Q5_K", "Q5_1", "Q5_0", "Q6_K", "Q8_0", "F8_E4M3", "F8_E5M2", "Q3_K_L", "Q3_K_M", "Q3_K_S",
    "Q3_K", "Q2_0_G64", "Q2_0", "PQ2_0", "PTQ1_0", "TQ2_0", "TQ2_0_G128", "TQ1_0", "Q1_0", "Q2_K",
    "Q2_K_S", "F16", "BF16", "F32",
)  # fmt: skip
RUNS = (
    *RECOMMENDED, "NVFP4", "IQ3_M", "IQ3_S", "IQ3_XS", "IQ3_XXS", "IQ2_M", "IQ2_S", "IQ2_XS",
    "IQ2_XXS", "IQ1_M", "IQ1_S", "Q8_1", "Q8_K",
)  # fmt: skip
_LAYOUT = re.compile(
    r"(?:^|[-_.])((?:I?Q\d|[PT]+Q\d)(?:_[A-Z0-9]+)*|B?F16|F32|F8_E4M3|F8_E5M2|MXFP4|NVFP4)(?=[-_.]|$)",
    re.IGNORECASE,
)
_MEMORY_SHARE = 0.75  # share of the available memory that a recommended file may fill


def offers(
    files: Sequence[HubFile],
    available_bytes: int,
    here: Callable[[Source], Path | None],
    coming: Callable[[Source], bool],
    wanted: str = "",
) -> tuple[Offer, ...]:
    """The files of a repository, usable ones first; `wanted` is the file a link names."""
    made = [_offer(file, available_bytes, here, coming) for file in files]
    best = wanted or _best(made, available_bytes)
    shown = sorted(made, key=lambda each: (each.source.file != best, bool(each.problem)))
    return tuple(
        replace(each, recommended=True) if each.source.file == best and not wanted else each
        for each in shown
    )


def layout_of(file: str) -> str:
    """The layout in a file's name, such as "Q4_K_M"; empty when there is none."""
    found = _LAYOUT.findall(file.rpartition("/")[2].removesuffix(".gguf").removesuffix(".GGUF"))
    return str(found[-1]).upper() if found else ""


def in_words(layout: str) -> str:
    """A layout in words, derived from its name: "4-bit"."""
    if layout.startswith(("TQ", "PTQ")):
        return tr("Ternary")
    bits = re.search(r"\d+", layout)
    return tr("{bits}-bit", bits=bits[0]) if bits else ""


def _offer(
    file: HubFile,
    available_bytes: int,
    here: Callable[[Source], Path | None],
    coming: Callable[[Source], bool],
) -> Offer:
    layout = layout_of(file.file)
    memory = Memory(file.size_bytes, available_bytes, at_least=True) if file.size_bytes else None
    return Offer(
        file.source,
        model_name(Path(file.file)),
        in_words(layout),
        layout,
        problem=_problem(file.kind, layout),
        memory=memory,
        here=here(file.source),
        coming=coming(file.source),
    )


def _problem(kind: str, layout: str) -> str:
    """Why a file of this kind and layout cannot be used; empty if it can."""
    match kind:
        case "projector":
            return tr("Adds image input to another model. Tokonoma only reads text.")
        case "adapter":
            return tr("An adapter (LoRA): it changes another model and cannot chat alone.")
        case "incomplete":
            return tr("Some parts of this model are missing on the server.")
        case _ if layout and layout not in RUNS:
            return tr("{format} is not supported yet.", format=layout)
        case _:
            return ""


def _best(made: Sequence[Offer], available_bytes: int) -> str:
    """The recommended file: the first of `RECOMMENDED` that fits the memory; empty if none."""
    for layout in RECOMMENDED:
        for each in made:
            fits = 0 < each.source.size_bytes <= available_bytes * _MEMORY_SHARE
            if each.format == layout and not each.problem and fits:
                return each.source.file
    return ""
