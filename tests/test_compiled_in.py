"""What is compiled into packages: read from bills, texts and binaries of wheels, never guessed."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest

import compiled_in
import licences
from compiled_in import Inner

LICENCE = """NumPy's own text.

----

Name: OpenBLAS
Files: numpy.libs/libopenblas*.so
Description: bundled as a dynamically linked library
Availability: https://a.example/
License: BSD-3-Clause

Name: Not there
Files: numpy.libs/libother*.so
Description: bundled
License: MIT
"""


@pytest.fixture
def information(tmp_path: Path) -> Path:
    folder = tmp_path / "a.dist-info"
    (folder / "sboms").mkdir(parents=True)
    (folder / "licenses" / "third_party" / "fmt").mkdir(parents=True)
    (folder / "licenses" / "LICENSE.txt").write_text(LICENCE, encoding="utf-8")
    (folder / "licenses" / "third_party" / "fmt" / "LICENSE").touch()
    listed = {
        "name": "ahash",
        "version": "0.8.12",
        "licenses": [{"expression": "MIT OR Apache-2.0"}],
        "purl": "pkg:cargo/ahash@0.8.12?download_url=file:///home/someone",
    }
    (folder / "sboms" / "a.json").write_text(json.dumps({"components": [listed]}), encoding="utf-8")
    return folder


def test_bills_texts_and_binaries_are_joined(information: Path, tmp_path: Path) -> None:
    library = tmp_path / "libopenblas64_-32a4.so.0"
    library.write_bytes(b"\0OpenBLAS 0.3.31.188.0  USE64\0")
    module = tmp_path / "_lib.abi3.so"
    module.write_bytes(
        b"/cargo/registry/src/index.crates.io-19af/ahash-0.8.12/src/lib.rs\0"
        rb"C:\cargo\registry\src\index.crates.io-19af\once_cell-1.21.3\src\lib.rs"
    )
    assert compiled_in.parts(information, [library, module]) == (
        Inner("OpenBLAS", "0.3.31.188.0", "BSD-3-Clause"),
        Inner("ahash", "0.8.12", "MIT OR Apache-2.0", "pkg:cargo/ahash@0.8.12"),
        Inner("fmt"),
        Inner("once_cell", "1.21.3", "", "pkg:cargo/once_cell@1.21.3"),
    )


def test_a_library_that_the_bundle_leaves_out_is_not_listed(information: Path) -> None:
    assert [each.name for each in compiled_in.parts(information)] == ["ahash", "fmt"]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("numpy", {"OpenBLAS", "LAPACK", "GCC runtime library", "libquadmath"}),
        ("torch", {"fmt", "XNNPACK", "ideep", "protobuf"}),
        ("tokenizers", {"onig", "pyo3", "regex"}),
        ("llguidance", {"derivre", "regex-automata", "tokenizers"}),
        ("cryptography", {"openssl", "pyo3"}),
        ("pypdfium2", {"freetype", "libopenjpeg", "libpng"}),
        ("PySide6_Essentials", {"ICU", "PCRE2", "libpng"}),
    ],
)
def test_the_installed_packages_state_what_is_in_them(name: str, wanted: set[str]) -> None:
    distribution = metadata.distribution(name)
    listed = [Path(str(distribution.locate_file(file))) for file in distribution.files or ()]
    files = [
        path for path in listed if "Qt6" not in path.name or path.name[5:9] in ("6Cor", "6Gui")
    ]
    if not any(compiled_in._is_binary(path) for path in files):
        pytest.skip(f"{name} has no binaries of this system")
    found = {each.name for each in licences.of_distribution(distribution, files).inside}
    assert wanted <= found


def test_the_compiled_module_of_triton_is_a_part(tmp_path: Path) -> None:
    module = tmp_path / "cuda_utils-abc.so"
    module.write_bytes(b"module")
    (tmp_path / "triton.txt").write_text("MIT", encoding="utf-8")
    (tmp_path / "gpu_wheels.json").write_text(
        '{"name": "triton-3.6.0-cp311-cp311-manylinux_2_27_x86_64.whl"}', encoding="utf-8"
    )
    (part,) = [each for each in licences.components([module]) if each.name.startswith("Triton")]
    assert (part.version, part.licence, len(part.sha256)) == ("3.6.0", "MIT", 64)
    assert part.texts == ((tmp_path / "triton.txt", "triton.txt"),)
