"""Model catalog: the recommended models in `resources/catalog.json`, every field validated.

Sizes and hashes in it were confirmed by two public records of the file; unknown ones are 0 or "",
and a download takes them from the hub. The revision of a file is a commit, so that a later upload
under the same name is not mistaken for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from app.net.hub import HUB, Source, file_address, page_address
from app.system import paths
from app.system.translation import tr
from engine import LayerGroup, ModelShape

ROPE_SCALINGS = (  # that the engine supports; a test compares them
    *("none", "linear", "dynamic", "yarn", "longrope", "su", "llama3"),
)
COMPUTERS = (4, 8, 16, 32)  # GB of memory that models are grouped by; the last: and more
_SYSTEM_BYTES = 1_000_000_000  # of a computer's memory that its system takes at least
_MODEL_SHARE = 0.8  # of the rest: other programs need some

_VERSION = 1
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_REVISION = re.compile(r"main|[0-9a-f]{40}")
_FILE = re.compile(r"[\w.-]+\.gguf", re.ASCII)
_SHA256 = re.compile(r"([0-9a-f]{64})?")
_ID = re.compile(r"[a-z0-9.-]+")


class Thinking(StrEnum):
    """Whether a model writes down its reasoning before the answer, if nobody decides that."""

    NO = "no"  # it cannot
    OPTIONAL = "optional"  # it can: the settings of the chat decide
    YES = "yes"
    UNKNOWN = "unknown"


class CatalogError(Exception):
    """The catalog is invalid: `str(error)` names row and field."""


@dataclass(frozen=True, slots=True)
class CatalogSampling:
    """Sampling settings recommended for a model, by its publisher if any; None where not stated."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    dry_multiplier: float | None = None
    dry_allowed_length: int | None = None
    max_tokens: int | None = None  # of an answer


@dataclass(frozen=True, slots=True)
class CatalogFile:
    """One recommended file."""

    id: str
    name: str
    family: str
    repository: str
    revision: str
    file: str
    size_bytes: int  # 0: unknown
    sha256: str  # "": unknown
    licence: str  # SPDX, or its name
    licence_url: str
    parameters: int
    format: str  # name of the layout or quantization recipe: "Q1_0", "Q4_K_M"
    layout: str  # layout of most of its weights, in words
    description: str  # one sentence: what it is good for
    architecture: str

    @property
    def source(self) -> Source:
        """The file as the source of a download."""
        return Source(self.repository, self.revision, self.file, self.size_bytes, self.sha256)

    def address(self, endpoint: str = HUB) -> str:
        """URL of the file."""
        return file_address(self.source, endpoint=endpoint)

    def page(self, endpoint: str = HUB) -> str:
        """URL of its page, for a browser."""
        return page_address(self.repository, endpoint)


@dataclass(frozen=True, slots=True)
class CatalogEmbedder(CatalogFile):
    """A recommended model that turns texts into vectors, to search documents with."""


@dataclass(frozen=True, slots=True)
class CatalogModel(CatalogFile):
    """A recommended model to chat with."""

    thinking: Thinking
    memory_gb: int  # of `COMPUTERS`: the smallest it runs on
    choice: bool  # the one recommended for computers of this size
    sampling: CatalogSampling
    rope_scaling: str  # "none", or the RoPE scaling method
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    width: int
    feed_forward: int
    vocabulary: int  # tokens
    context: int  # tokens it was trained for
    experts: int  # 0: one feed-forward for all tokens, of width `feed_forward`
    experts_per_token: int
    layer_groups: tuple[LayerGroup, ...]  # of a model whose layers differ; empty: all are alike
    encoder: str  # file of its picture encoder in the same repository; "": it does not see
    encoder_bytes: int  # about: to tell the user; a download takes size and hash from the hub
    encoder_bytes_computed: bool  # from the shape of the encoder; else from a record of the file

    @property
    def shape(self) -> ModelShape:
        """The model's shape, to predict its memory."""
        return ModelShape(
            architecture=self.architecture,
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_width=self.head_width,
            feed_forward=self.feed_forward,
            vocabulary=self.vocabulary,
            context=self.context,
            format=self.format,
            parameters=self.parameters,
            experts=self.experts,
            experts_per_token=self.experts_per_token,
            groups=self.layer_groups,
            file_bytes=self.size_bytes,
        )


def load(path: Path | None = None) -> tuple[CatalogModel, ...]:
    """Read and validate the models to chat with, in file order; raises CatalogError."""
    return tuple(_model(values, where) for values, where in _rows(path, "models", CatalogModel))


def load_embedders(path: Path | None = None) -> tuple[CatalogEmbedder, ...]:
    """Read and validate the models to search documents with, the preferred one first; raises
    CatalogError.
    """
    rows = _rows(path, "embedders", CatalogEmbedder)
    return tuple(CatalogEmbedder(**values) for values, _ in rows)


def _rows(path: Path | None, key: str, kind: type[CatalogFile]) -> list[tuple[dict[str, Any], str]]:
    """The checked rows of one list, and how each is named in an error."""
    path = path or paths.resources() / "catalog.json"
    try:
        stored: object = json.loads(path.read_bytes())
    except OSError as error:
        raise CatalogError(f"The catalog cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise CatalogError("The catalog is not JSON.") from error
    content = cast("dict[str, object]", stored) if isinstance(stored, dict) else {}
    rows = content.get(key)
    if content.get("version") != _VERSION or not isinstance(rows, list):
        raise CatalogError(f"The catalog is not of version {_VERSION}.")
    names = {field.name for field in fields(kind)}
    checked = [
        (_row(row, names, f"The catalog's row {at}"), f"The catalog's row {at}")
        for at, row in enumerate(cast("list[object]", rows), 1)
    ]
    ids = [values["id"] for values, _ in checked]
    for id in ids:
        if ids.count(id) > 1:
            raise CatalogError(f"The catalog has the model {id} twice.")
    return checked


def computer_of(memory_bytes: int) -> int:
    """The size of `COMPUTERS` that a computer with so much memory counts as.

    Some of the memory is often reserved, so that 16 GB are reported as 15.4.
    """
    sizes = [size for size in COMPUTERS if memory_bytes >= 0.85 * size * 1e9]
    return sizes[-1] if sizes else COMPUTERS[0]


def smallest_computer(needed_bytes: int) -> int:
    """The smallest of `COMPUTERS` that leaves so much memory to a model; the largest if none."""
    for size in COMPUTERS:
        if needed_bytes <= _MODEL_SHARE * (size * 1e9 - _SYSTEM_BYTES):
            return size
    return COMPUTERS[-1]


def problem(model: CatalogModel, formats: Collection[str], architectures: Collection[str]) -> str:
    """Why this version cannot run a model, in a sentence; "" when it can.

    `formats` are the supported layouts and recipes, `architectures` those of the engine.
    """
    if model.architecture not in architectures:
        return tr("{name} is not supported yet.", name=model.name)
    if model.format not in formats:
        return tr("{format} is not supported yet.", format=model.format)
    if model.rope_scaling not in ROPE_SCALINGS:
        return tr(
            "It extends its context by {kind}, which is not supported yet.", kind=model.rope_scaling
        )
    return ""


def _row(row: object, names: Collection[str], where: str) -> dict[str, Any]:
    """Validate the fields of one row."""
    if not isinstance(row, dict):
        raise CatalogError(f"{where} is not an object.")
    values = cast("dict[str, object]", row)
    if values.keys() != names:
        odd = ", ".join(sorted(values.keys() ^ names))
        raise CatalogError(f"{where} has unknown or missing fields: {odd}.")
    return {name: _checked(name, values[name], where) for name in names}


def _model(checked: dict[str, Any], where: str) -> CatalogModel:
    if checked["heads"] % checked["kv_heads"]:
        raise CatalogError(f"{where} has a wrong value for kv_heads.")
    grouped = sum(group.layers for group in checked["layer_groups"])
    if grouped not in (0, checked["layers"]):
        raise CatalogError(f"{where} has a wrong value for layer_groups.")
    if bool(checked["encoder"]) != bool(checked["encoder_bytes"]):
        raise CatalogError(f"{where} has a wrong value for encoder_bytes.")
    return CatalogModel(**checked)


def _checked(name: str, value: object, where: str) -> object:
    if name == "sampling":
        return _sampling(value, where)
    if name == "layer_groups":
        return _layer_groups(value, where)
    if not _RULES[name](value):
        raise CatalogError(f"{where} has a wrong value for {name}.")
    return Thinking(value) if name == "thinking" else value


def _layer_groups(value: object, where: str) -> tuple[LayerGroup, ...]:
    groups: list[LayerGroup] = []
    for stored in cast("list[object]", value) if isinstance(value, list) else [value]:
        values = cast("dict[str, object]", stored) if isinstance(stored, dict) else {}
        if "layers" not in values or not all(
            name in _GROUPS and _GROUPS[name](number) for name, number in values.items()
        ):
            raise CatalogError(f"{where} has a wrong value for layer_groups.")
        plain = {
            name: tuple(cast("list[int]", number)) if isinstance(number, list) else number
            for name, number in values.items()
        }
        groups.append(LayerGroup(**cast("dict[str, Any]", plain)))
    return tuple(groups)


def _sampling(value: object, where: str) -> CatalogSampling:
    stored = cast("dict[str, object]", value) if isinstance(value, dict) else {"": value}
    for name, number in stored.items():
        rule = _SAMPLING.get(name)
        if rule is None or not rule(number):
            raise CatalogError(f"{where} has a wrong value for sampling.")
    return CatalogSampling(**cast("dict[str, Any]", stored))


def _text(value: object) -> bool:
    return isinstance(value, str) and value == value.strip() and 0 < len(value) <= 200


def _sentence(value: object) -> bool:
    return _text(value) and cast("str", value).endswith(".")


def _link(value: object) -> bool:
    return _text(value) and cast("str", value).startswith("https://")


def _matches(pattern: re.Pattern[str]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


def _integer(low: int, high: int) -> Callable[[object], bool]:
    return lambda value: type(value) is int and low <= value <= high


def _integers(count: int) -> Callable[[object], bool]:
    one = _integer(1, 1 << 20)
    return lambda value: (
        isinstance(value, list)
        and len(cast("list[object]", value)) == count
        and all(map(one, cast("list[object]", value)))
    )


def _number(low: float, high: float) -> Callable[[object], bool]:
    return lambda value: type(value) in (int, float) and low <= cast("float", value) <= high


_SAMPLING = {
    "temperature": _number(0, 2),
    "top_k": _integer(0, 1000),
    "top_p": _number(0.01, 1),
    "min_p": _number(0, 1),
}
_GROUPS: dict[str, Callable[[object], bool]] = {
    "layers": _integer(1, 4096),
    "kv_heads": _integer(1, 65_536),
    "head_width": _integer(2, 65_536),
    "recurrence": _integers(3),
    "convolution": _integers(2),
}
_RULES: dict[str, Callable[[object], bool]] = {
    "id": _matches(_ID),
    "name": _text,
    "family": _text,
    "repository": _matches(_REPOSITORY),
    "revision": _matches(_REVISION),
    "file": _matches(_FILE),
    "size_bytes": _integer(0, 1 << 44),
    "sha256": _matches(_SHA256),
    "licence": _text,
    "licence_url": _link,
    "parameters": _integer(1, 1 << 44),
    "format": _text,
    "layout": _text,
    "description": _sentence,
    "thinking": lambda value: value in tuple(Thinking),
    "memory_gb": lambda value: type(value) is int and value in COMPUTERS,
    "choice": lambda value: type(value) is bool,
    "architecture": _text,
    "rope_scaling": _text,
    "layers": _integer(1, 4096),
    "heads": _integer(1, 65_536),
    "kv_heads": _integer(1, 65_536),
    "head_width": _integer(2, 65_536),
    "width": _integer(1, 1 << 20),
    "feed_forward": _integer(1, 1 << 24),
    "vocabulary": _integer(1, 1 << 24),
    "context": _integer(1, 1 << 30),
    "experts": _integer(0, 4096),
    "experts_per_token": _integer(0, 4096),
    "encoder": lambda value: value == "" or _matches(_FILE)(value),
    "encoder_bytes": _integer(0, 1 << 40),
    "encoder_bytes_computed": lambda value: type(value) is bool,
}
