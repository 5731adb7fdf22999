"""Damaged files of the newer families: every fault is one clear sentence, never another exception."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import architecture_files as files
from engine.errors import EngineError
from engine.gguf.reader import GGUFFile
from engine.loading.preflight import identify, outline, shape

pytestmark = pytest.mark.sweep

MODELS = ("qwen35-dense", "gemma4", "gpt-oss-moe", "lfm2-dense", "deepseek2-moe", "falcon-h1-dense")
IMPOSSIBLE: dict[str, tuple[Any, ...]] = {
    "UINT32": (0, 1, 7, 1 << 31),
    "INT32": (0, -1, 7),
    "FLOAT32": (0.0, -1.0, float("nan"), float("inf")),
    "BOOL": (True, False),
    "STRING": ("", "nonsense"),
}


def damaged(skeleton: files.Skeleton) -> Iterator[tuple[str, files.Skeleton]]:
    """Files with one fault each: keys and tensors missing, of other types, values and shapes."""
    for key, (kind, value) in skeleton.metadata.items():
        if key == "general.architecture":
            continue
        others = {name: one for name, one in skeleton.metadata.items() if name != key}
        yield f"without {key}", replace(skeleton, metadata=others)
        changes = [(kind, one) for one in IMPOSSIBLE.get(kind, ())] + [("STRING", "text")]
        if kind.endswith("[]"):
            changes += [(kind, value[:-1] or value), (kind, [*value, *value])]
            changes += [(kind, [one for _ in value]) for one in IMPOSSIBLE.get(kind[:-2], ())]
        elif kind in ("UINT32", "INT32", "BOOL", "FLOAT32"):
            changes += [(f"{kind}[]", [value]), (f"{kind}[]", [value] * 64)]
        for other, changed in changes:
            metadata = others | {key: (other, changed)}
            yield f"{key} {other} {changed}", replace(skeleton, metadata=metadata)
    for name, sizes in skeleton.tensors.items():
        others_of = {one: size for one, size in skeleton.tensors.items() if one != name}
        yield f"without {name}", replace(skeleton, tensors=others_of)
        for changed in ((*sizes[:-1], sizes[-1] * 2), sizes[::-1], (*sizes, 2), (1,)):
            tensors = others_of | {name: changed}
            yield f"{name} {changed}", replace(skeleton, tensors=tensors)


@pytest.mark.parametrize("name", MODELS)
def test_a_fault_is_a_sentence(name: str, tmp_path: Path) -> None:
    skeleton = files.recorded()[name]
    sentences: list[str] = []
    for fault, one in damaged(skeleton):
        path = files.write_empty(one, tmp_path / "m.gguf")
        try:
            with GGUFFile.open(path) as file:
                build, config = identify(file)
                shape(file, config)
                outline(file, config, build)
        except EngineError as error:
            sentences.append(str(error))
        except Exception as error:  # noqa: BLE001
            pytest.fail(f"{fault}: {error!r}")
    assert len(sentences) > len(skeleton.tensors)  # at least the missing and misshapen ones
    assert [one for one in sentences if not one.endswith(".")] == []
