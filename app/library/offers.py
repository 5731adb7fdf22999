"""Offers: files of a hub repository, with their quantization layout and a recommended one.

What a file is and whether it runs is first guessed from its name, until the beginning of the file
has been read (`BeginningFacts`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from app.library.pictures import PictureChoices, encoders_for
from app.net.hub import HubFile, Source, kind_of
from app.state.faults import explain
from app.state.library import Memory, Offer
from app.system.translation import tr
from engine import FORMAT_NAMES, BeginningFacts, Fault, FaultKind, model_name

# Layouts this version runs, as they appear in file names: formats and mixes of them. RECOMMENDED has
# fast kernels, in order of preference; the rest of RUNS has none, or loses much quality.
RECOMMENDED = (
    "Q4_K_M", "Q4_K_XL", "Q4_K_L", "Q4_K_S", "Q4_K", "IQ4_XS", "IQ4_NL", "Q4_1", "Q4_0", "MXFP4", "Q5_K_M", "Q5_K_XL", "Q5_K_L", "Q5_K_S",
    "Q5_K", "Q5_1", "Q5_0", "Q6_K", "Q6_K_XL", "Q6_K_L", "Q8_0", "Q8_K_XL", "F8_E4M3", "F8_E5M2", "Q3_K_XL", "Q3_K_L", "Q3_K_M", "Q3_K_S",
    "Q3_K", "Q2_0_G64", "Q2_0", "PQ2_0", "PTQ1_0", "TQ2_0", "TQ2_0_G128", "TQ1_0", "Q1_0", "Q2_K_XL", "Q2_K_L", "Q2_K",
    "Q2_K_S", "F16", "BF16", "F32",
)  # fmt: skip
RUNS = (*RECOMMENDED, "IQ3_M", "IQ3_XS", "IQ2_M", *FORMAT_NAMES)
_LAYOUT = re.compile(
    rf"(?:^|[-_.])((?:I?Q\d|[PT]+Q\d)(?:_[A-Z0-9]+)*|{'|'.join(FORMAT_NAMES)})(?=[-_.]|$)",
    re.IGNORECASE,
)
_PART = re.compile(r"(-\d{5}-of-\d{5})?\.gguf$", re.IGNORECASE)
_MEMORY_SHARE = 0.75  # share of the available memory that a recommended file may fill
_KINDS = {  # what a file is, by `Fault.about` of a file that is no model
    "mmproj": "projector",
    "imatrix": "imatrix",
    "vocabulary": "vocabulary",
    "adapter": "adapter",
}


def offers(
    files: Sequence[HubFile],
    available_bytes: int,
    here: Callable[[Source], Path | None],
    coming: Callable[[Source], bool],
    wanted: str = "",
    read: Mapping[Source, BeginningFacts] | None = None,
    choices: PictureChoices | None = None,
) -> tuple[Offer, ...]:
    """The files of a repository, usable ones first; `wanted` is the file a link names.

    `read` has what the beginnings of some files say. They do not change the order, which is by the
    names, so that no row moves while the user looks at it. `choices` has the picture encoders that
    the user wants with the models.
    """
    read = read or {}
    guessed = [_offer(file, available_bytes, here, coming) for file in files]
    made = [_offer(file, available_bytes, here, coming, read.get(file.source)) for file in files]
    made = _with_encoders(files, made, read, choices or PictureChoices())
    best, first = _best(made, available_bytes), wanted or _best(guessed, available_bytes)
    labels = _labels([file.file for file in files])
    order = sorted(
        range(len(files)),
        key=lambda at: (files[at].file != first, bool(guessed[at].problem)),
    )
    return tuple(
        replace(
            made[at],
            label=labels[at],
            recommended=made[at].source.file == best and not wanted,
        )
        for at in order
    )


def _offer(
    file: HubFile,
    available_bytes: int,
    here: Callable[[Source], Path | None],
    coming: Callable[[Source], bool],
    read: BeginningFacts | None = None,
) -> Offer:
    """One file as an offer."""
    layout = layout_of(file.file) or (read.format if read else "")
    memory = Memory(file.size_bytes, available_bytes, at_least=True) if file.size_bytes else None
    return Offer(
        file.source,
        model_name(Path(file.file)),
        in_words(layout),
        layout,
        problem=_problem(file, layout, read),
        memory=memory,
        here=here(file.source),
        coming=coming(file.source),
    )


def _with_encoders(
    files: Sequence[HubFile],
    made: Sequence[Offer],
    read: Mapping[Source, BeginningFacts],
    choices: PictureChoices,
) -> list[Offer]:
    """The offers of the models with the picture encoders of the repository that suit them."""
    kinds = [_kind(file, read.get(file.source)) for file in files]
    encoders = [
        (file, layout_of(file.file))
        for file, kind in zip(files, kinds, strict=True)
        if kind == "projector" and not file.pieces
    ]
    models = [file.file for file, kind in zip(files, kinds, strict=True) if kind == "model"]
    return [
        choices.applied(offer, encoders_for(file, encoders, models, read))
        if encoders and kind == "model" and not offer.problem
        else offer
        for file, kind, offer in zip(files, kinds, made, strict=True)
    ]


def linked_file(source: Source) -> HubFile:
    """The file of a link outside the hub, of which only the name is known."""
    return HubFile("", "", source.file, 0, "", kind_of(source.file), url=source.url)


def file_of(files: Sequence[HubFile], quantization: str) -> str:
    """The model file of a repository that a quantization means, as "Q4_K_M"; "" if there is none."""
    tag = quantization.lower()
    pattern = re.compile(rf"(^|[-_./]){re.escape(tag)}([-./]|$)")
    models = [file.file for file in files if file.kind == "model"]
    exact = [one for one in models if layout_of(one).lower() == tag.removeprefix("ud-")]
    for one in (*exact, *models):
        if pattern.search(_stem(one).lower()):
            return one
    return ""


def layout_of(file: str) -> str:
    """The layout in a file's name, such as "Q4_K_M", or in that of its folder; "" if in neither."""
    *folders, name = _stem(file).split("/")
    if found := _LAYOUT.findall(name):
        return str(found[-1]).upper()
    for folder in reversed(folders):
        named = list(_LAYOUT.finditer(folder))
        if named and named[-1].end() == len(folder):
            return named[-1][1].upper()
    return ""


def runs(layout: str) -> bool:
    """Whether a file with this layout in its name runs, as far as the name tells.

    Words after a layout name a mix of usual formats: "Q4_K_XL", "Q6_K_L". Numbers after it mean
    another order of its weights: "Q4_0_4_8", "Q4_K_R4".
    """
    words = layout.split("_")
    known = (at for at in range(len(words), 0, -1) if "_".join(words[:at]) in RUNS)
    at = next(known, 0)
    return at > 0 and not any(map(str.isdigit, "".join(words[at:])))


def in_words(layout: str) -> str:
    """A layout in words, derived from its name: "4-bit"."""
    if layout.startswith(("TQ", "PTQ")):
        return tr("Ternary")
    bits = re.search(r"\d+", layout)
    return tr("{bits}-bit", bits=bits[0]) if bits else ""


def needs_formats(file: str) -> bool:
    """Whether only the table of its tensors can tell that a file runs: its name speaks against it."""
    layout = layout_of(file)
    return bool(layout) and not runs(layout)


def _labels(files: Sequence[str]) -> list[str]:
    """A short name of each file: its layout, or its path where others have the same."""
    plain = [_label(file) for file in files]
    known = Counter(plain)
    stems = [_stem(file) for file in files]
    return [label if known[label] == 1 else stem for label, stem in zip(plain, stems, strict=True)]


def _label(file: str) -> str:
    layout = layout_of(file)
    if not layout:
        return model_name(Path(file))
    return f"UD-{layout}" if f"UD-{layout}" in _stem(file).upper() else layout


def _stem(file: str) -> str:
    """A path without the number of a part and without its ending."""
    return _PART.sub("", file)


def _problem(file: HubFile, layout: str, read: BeginningFacts | None) -> str:
    """Why a file cannot be used; "" if it can, as far as its beginning or else its name tells."""
    fault = read.fault if read else None
    if fault is not None and read is not None:
        if fault.kind is FaultKind.OTHER_TYPE and fault.about == "embeddings":
            return ""  # it searches documents
        if fault.kind is not FaultKind.OTHER_TYPE or fault.about not in _KINDS:
            return _said(fault, file, read)
    match _kind(file, read):
        case "projector":
            return tr("Lets its model see pictures once it is in the same folder.")
        case "adapter":
            return tr("An adapter (LoRA): it changes another model and cannot chat alone.")
        case "imatrix":
            return tr("Used to make smaller files of a model (importance matrix); it cannot chat.")
        case "vocabulary":
            return tr("Only the vocabulary of a model, without the model.")
        case "incomplete":
            return tr("Some parts of this model are missing on the server.")
        case _ if layout and not runs(layout) and not (read and read.formats_run):
            return tr("{format} is not supported yet.", format=layout)
        case _:
            return ""


def _kind(file: HubFile, read: BeginningFacts | None) -> str:
    """What a file is, by its beginning or else its name: as `kind_of`, or "" for something else."""
    if read is not None and read.fault is not None:
        return _KINDS.get(read.fault.about, "")
    is_model = read is not None and read.is_model and file.kind != "incomplete"
    return "model" if is_model else file.kind


def _said(fault: Fault, file: HubFile, read: BeginningFacts) -> str:
    name = file.file.rpartition("/")[2]
    return explain(fault, name, read.problem, read.remedy).text


def _best(made: Sequence[Offer], available_bytes: int) -> str:
    """The recommended file: the first of `RECOMMENDED` that fits the memory; empty if none."""
    for layout in RECOMMENDED:
        for each in made:
            fits = 0 < each.source.size_bytes <= available_bytes * _MEMORY_SHARE
            if each.format == layout and not each.problem and fits:
                return each.source.file
    return ""
