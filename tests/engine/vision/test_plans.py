"""Plans of pictures: sizes and tokens by kind of encoder, detail, and what the file states."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from engine.errors import UnsupportedModel
from engine.messages import Detail
from engine.vision.encoders import PROJECTORS
from engine.vision.plans import Plan, plan_picture
from oracle_pictures import PUBLISHED

# Width, height, and tokens with low, standard and high detail.
PRICES = {
    "qwen3vl_merger": [(300, 200, 63, 70, 70), (4000, 3000, 2852, 11_750, 11_750)],
    "gemma4v": [(300, 200, 60, 260, 1080), (4000, 3000, 63, 266, 1064)],
    "gemma4uv": [(300, 200, 60, 260, 1080), (4000, 3000, 63, 266, 1064)],
    "gemma3": [(300, 200, 256, 256, 256), (4000, 3000, 256, 256, 256)],
    "pixtral": [(300, 200, 23, 95, 95), (4000, 3000, 587, 2351, 2351)],
    "lfm2": [(300, 200, 63, 70, 70), (4000, 3000, 234, 1770, 1770)],
    "idefics3": [(300, 200, 64, 832, 1344), (4000, 3000, 64, 832, 1344)],
    "glm4v": [(300, 200, 15, 77, 77), (4000, 3000, 1452, 6030, 6030)],
    "minicpmv4_6": [(300, 200, 70, 70, 70), (4000, 3000, 63, 630, 2303)],
    "llama4": [(300, 200, 144, 144, 144), (4000, 3000, 432, 1872, 1872)],
    "resampler": [(300, 200, 64, 64, 64), (4000, 3000, 64, 640, 640)],
    "internvl": [(300, 200, 256, 1792, 1792), (4000, 3000, 256, 3328, 3328)],
}


def sizes(seed: int, count: int = 400) -> list[tuple[int, int]]:
    """Random sizes, many of them extreme."""
    chance = random.Random(seed)
    sides = [[round(10 ** chance.uniform(0, 4.5)) for _ in range(2)] for _ in range(count)]
    return [*((w, h) for w, h in sides if w * h < 2e8), (1, 100_000), (5_000_000, 20)]


def test_every_encoder_has_plans() -> None:
    assert set(PROJECTORS) == set(PUBLISHED)
    other = replace(PUBLISHED["gemma3"], projector="other")
    with pytest.raises(UnsupportedModel, match="'other'"):
        plan_picture(other, 10, 10)


@pytest.mark.parametrize("projector", PUBLISHED)
def test_the_price_of_a_picture_depends_on_its_size_and_detail(projector: str) -> None:
    config = PUBLISHED[projector]
    found = [
        (width, height, *(plan_picture(config, width, height, one).tokens for one in Detail))
        for width, height, *_ in PRICES[projector]
    ]
    assert found == PRICES[projector]


def tiles_of(plan: Plan) -> list[tuple[int, int]]:
    cuts = [plan.tiles, *([plan.overview] if plan.overview else [])]
    return [cut.tile for cut in cuts]


@pytest.mark.parametrize("projector", PUBLISHED)
def test_a_picture_of_any_size_becomes_whole_squares_within_the_budget(
    projector: str, seed: int
) -> None:
    config = PUBLISHED[projector]
    step = config.patch * config.merge
    fewest = {
        "gemma3": 256,
        "idefics3": 64,
        "internvl": 256,
        "minicpmv4_6": 128,
        "resampler": 64,
        "llama4": 144,
    }.get(projector, 1)
    most = {
        "qwen3vl_merger": 16_384, "gemma4v": 1_120, "gemma4uv": 1_120, "gemma3": 256,
        "pixtral": 55 * 56, "lfm2": 11 * 256, "idefics3": 26 * 64, "internvl": 25 * 256, "glm4v": 6_144,
        "minicpmv4_6": 37 * 128, "resampler": 10 * 64, "llama4": 17 * 144,
    }[projector]  # fmt: skip
    chance = random.Random(seed)
    for width, height in sizes(seed):
        tokens = chance.choice((1, 2, 3, 10, 63, 64, 256, 700, 3_000, 1 << 40))
        plans = {one: plan_picture(config, width, height, one) for one in (*Detail, tokens)}
        for detail, plan in plans.items():
            case = projector, width, height, detail
            for tile in tiles_of(plan):
                assert min(tile) > 0, case
                assert all(side % step == 0 for side in tile), case
            for wide, high in plan.tiles.sizes:
                rows = most * (2 * config.image**2 // config.queries if config.queries else step**2)
                assert wide * high <= 1.5 * rows, case
            assert 0 < plan.tokens <= most, case
            assert (plan.overview is None) == (plan.tiles.grid == (1, 1)), case
        assert plans[tokens].tokens <= max(tokens, fewest), (projector, width, height, tokens)
        standard = plans[Detail.STANDARD].tokens
        assert plans[Detail.LOW].tokens <= max(standard // 4, 70, fewest)
        assert plans[Detail.LOW].tokens <= standard <= plans[Detail.HIGH].tokens


@pytest.mark.parametrize("projector", PUBLISHED)
def test_more_tokens_are_never_a_coarser_picture(projector: str) -> None:
    config = PUBLISHED[projector]
    for width, height in ((1600, 1200), (90, 3000)):
        counts = [plan_picture(config, width, height, most).tokens for most in range(1, 3000, 37)]
        assert counts == sorted(counts), (width, height)
        assert len(set(counts)) > 1 or projector == "gemma3"


def test_lfm2_divides_pictures_of_more_than_twice_its_most_tokens() -> None:
    found = [plan_picture(PUBLISHED["lfm2"], side, side).tiles.grid for side in (710, 740, 1800)]
    assert found == [(1, 1), (2, 2), (3, 3)]


def test_what_a_file_states_of_sizes_goes_before_the_published_settings() -> None:
    qwen = replace(PUBLISHED["qwen3vl_merger"], most_pixels=0)
    assert 4000 < plan_picture(qwen, 4000, 4000).tokens <= 4096
    qwen = replace(qwen, least_pixels=200 * 1024, most_pixels=1000 * 1024)
    assert 200 <= plan_picture(qwen, 32, 32).tokens <= 225
    assert 900 < plan_picture(qwen, 4000, 4000).tokens <= 1000
    assert 3600 < plan_picture(qwen, 4000, 4000, Detail.HIGH).tokens <= 4000
    glm = replace(PUBLISHED["glm4v"], most_pixels=0)
    assert 3900 < plan_picture(glm, 4000, 4000).tokens <= 4096
    assert 6000 < plan_picture(glm, 4000, 4000, Detail.HIGH).tokens <= 6144
    idefics3 = replace(PUBLISHED["idefics3"], longest=1024)
    assert plan_picture(idefics3, 1000, 1000).tiles.grid == (2, 2)
    assert plan_picture(idefics3, 1000, 1000, Detail.HIGH).tiles.grid == (5, 5)
    internvl = replace(PUBLISHED["internvl"], least_tiles=3, most_tiles=6)
    assert plan_picture(internvl, 1000, 1000).tiles.grid == (2, 2)
    assert plan_picture(internvl, 4000, 2000).tiles.grid == (2, 3)
    assert plan_picture(internvl, 1000, 1000, 500).tokens == 256
    uneven = replace(idefics3, longest=1300)
    assert plan_picture(uneven, 1000, 1000).tiles.sizes == ((1300, 1300), (1536, 1536))
