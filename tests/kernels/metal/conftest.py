"""All tests of the Metal backend run its shaders on the processor, see `metal_library`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import metal_library


@pytest.fixture(scope="module", autouse=True)  # no test of another folder may see it
def shaders_on_the_processor() -> Iterator[None]:
    """torch compiles shaders with the stand-in of Metal's compiler."""
    with pytest.MonkeyPatch.context() as patch:
        metal_library.install(patch)
        yield
