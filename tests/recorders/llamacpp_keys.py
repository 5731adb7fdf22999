"""Prints the metadata keys of llama.cpp that `tests/support/metadata_keys.py` does not have.

    python tests/recorders/llamacpp_keys.py SOURCE

SOURCE is llama.cpp's source tree. Its key names are facts: those of its loader, of its Python package
and those that its converter writes by themselves. It also prints the keys that its loader reads for
an architecture that this program runs, and that the table says no such architecture has.
"""

from __future__ import annotations

import inspect
import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from engine.models import ARCHITECTURES
from metadata_keys import IGNORED, READ, REFUSED

_ROW = re.compile(r'\{\s*(LLM_KV_\w+),\s*"([^"]+)"\s*\}')
_LOADER = re.compile(
    r"void (llama_model_\w+)::load_arch_hparams\(llama_model_loader & ?\w*\)\s*\{(.*?)\n\}",
    re.DOTALL,
)


def constants(kind: type) -> set[str]:
    """The texts of a class and of the classes in it."""
    found: set[str] = set()
    for name, value in vars(kind).items():
        if isinstance(value, str) and not name.startswith("_"):
            found.add(value)
        elif inspect.isclass(value):
            found |= constants(value)
    return found


def of_package(source: Path) -> set[str]:
    """The keys of the Python package."""
    spec = spec_from_file_location("constants", source / "gguf-py" / "gguf" / "constants.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return constants(module.Keys)


def of_architecture(source: Path, keys: dict[str, str]) -> dict[str, set[str]]:
    """The keys that the loader reads for each architecture, those of all left out."""
    code = source / "src"
    bodies = {
        name: body
        for file in (code / "models").glob("*.cpp")
        for name, body in _LOADER.findall(file.read_text(encoding="utf-8"))
    }
    names = dict(
        re.findall(
            r'\{\s*(LLM_ARCH_\w+),\s*"([^"]+)"\s*\}',
            (code / "llama-arch.cpp").read_text(encoding="utf-8"),
        )
    )
    classes = re.findall(
        r"case (LLM_ARCH_\w+):\s*return new (llama_model_\w+)\(",
        (code / "llama-model.cpp").read_text(encoding="utf-8"),
    )
    return {
        names[architecture]: {
            keys[key] for key in re.findall(r"LLM_KV_\w+", bodies.get(kind, "")) if key in keys
        }
        for architecture, kind in classes
        if architecture in names
    }


def main() -> None:
    source = Path(sys.argv[1])
    rows = _ROW.findall((source / "src" / "llama-arch.cpp").read_text(encoding="utf-8"))
    keys = {name: key.replace("%s", "{arch}") for name, key in rows}
    for key in sorted(
        (set(keys.values()) | of_package(source)) - set(READ) - set(IGNORED) - set(REFUSED)
    ):
        print("not in the table:", key)
    for architecture, read in sorted(of_architecture(source, keys).items()):
        if architecture in ARCHITECTURES:
            for key in sorted(read & set(REFUSED)):
                print(f"read for {architecture}, but refused:", key)


if __name__ == "__main__":
    main()
