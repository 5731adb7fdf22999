"""Triton's module for NVIDIA's driver, compiled before instead of on the user's computer."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gpu_driver
from kernels.cpu.build import BuildError, find_compiler
from kernels.cuda import driver_module

found = importlib.util.find_spec("triton")
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or found is None or found.origin is None, reason="needs Triton"
)
# Loads the module as Triton does, beside a stand-in of the driver.
LOAD = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("cuda_utils", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(*sorted(name for name in dir(module) if not name.startswith("_")))
"""


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    assert found is not None
    root = Path(str(found.origin)).parents[1]
    return {name: (root / name).read_bytes() for name in (gpu_driver.SOURCE, gpu_driver.HEADER)}


@pytest.fixture(scope="module")
def compiled(files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        find_compiler()
    except BuildError as error:
        pytest.skip(str(error))
    return gpu_driver.build(files, tmp_path_factory.mktemp("lib"))


def test_the_compiled_module_is_the_one_that_triton_loads(
    compiled: Path, files: dict[str, bytes], tmp_path: Path
) -> None:
    names = sorted({*re.findall(r"\bcu[A-Z]\w+", files[gpu_driver.SOURCE].decode())})
    driver = tmp_path / "libcuda.so.1"
    source = "".join(f'extern "C" int {name}(void) {{ return 999; }}\n' for name in names)
    (tmp_path / "driver.cpp").write_text(source, encoding="utf-8")
    flags = ("-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", driver)
    subprocess.run([*find_compiler().command, *flags, tmp_path / "driver.cpp"], check=True)
    done = subprocess.run(
        [sys.executable, "-c", LOAD, compiled],
        env={"LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {"load_binary", "launch", "get_device_properties"} <= {*done.stdout.split()}


def test_it_is_used_for_its_source_alone(compiled: Path, files: dict[str, bytes]) -> None:
    source = files[gpu_driver.SOURCE]
    assert driver_module.compiled(source, compiled.parent) == compiled
    assert driver_module.compiled(source + b" ", compiled.parent) is None


def test_triton_is_given_it_instead_of_a_compiler(
    compiled: Path, files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import triton.knobs
    from triton.runtime import build

    monkeypatch.setattr(triton.knobs.build, "impl", None)
    monkeypatch.setattr(driver_module.compiled, "__defaults__", (compiled.parent,))
    assert driver_module.is_compiled()
    driver_module.use()
    source = tmp_path / "driver.c"
    source.write_bytes(files[gpu_driver.SOURCE])
    made = build._build("cuda_utils", str(source), str(tmp_path), [], [], [], [])
    assert made == str(compiled)
    source.write_bytes(b"int another;")
    with pytest.raises(RuntimeError, match="no compiled module cuda_utils"):
        build._build("cuda_utils", str(source), str(tmp_path), [], [], [], [])


def test_a_checkout_has_none() -> None:
    assert not driver_module.is_compiled()
