"""Versions of the app: their order, and texts that are none."""

from __future__ import annotations

from itertools import pairwise

import pytest

from app import __version__
from app.domain.release import version_of

# In order; the middle is the example of Semantic Versioning 2.0, section 11.
ORDERED = (
    "0.0.9", "0.1.0-0", "0.1.0-1", "0.1.0-a", "0.1.0", "0.1.1", "0.2.0", "0.10.0",
    "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2",
    "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "1.0.1-rc.1", "2.0.0",
)  # fmt: skip


def test_versions_are_in_the_order_of_semantic_versioning() -> None:
    versions = [version_of(text) for text in ORDERED]
    for before, after in pairwise(versions):
        assert before is not None
        assert after is not None
        assert before < after
        assert not after < before
        assert before != after


def test_what_follows_a_plus_and_a_v_before_do_not_count() -> None:
    assert version_of("v1.2.3+build.5") == version_of("1.2.3")
    assert str(version_of("v1.2.3-rc.1+x")) == "1.2.3-rc.1"


@pytest.mark.parametrize(
    "text",
    ["", "1", "1.2", "1.2.3.4", "01.2.3", "1.2.3-", "1.2.3-a..b", "1.2.3-01", "1.2.3 ", "1.2.³",
     "x1.2.3", "1.2.-3", "1.2.3-é", "9" * 400 + ".0.0", "1.2.3\n", "1e9.0.0"],
)  # fmt: skip
def test_other_texts_are_no_versions(text: str) -> None:
    assert version_of(text) is None


def test_the_version_of_the_app_is_one() -> None:
    assert str(version_of(__version__)) == __version__
