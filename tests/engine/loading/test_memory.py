"""Memory plans: fitting models, the chosen context, and the errors when nothing fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.loading.memory import (
    MemoryPlan,
    ModelShape,
    Needs,
    plan_memory,
    refusal,
    scratch_bytes,
    usual_context,
    vocabulary_bytes,
)

GB = 10**9

SHAPE = ModelShape(
    architecture="llama",
    layers=30,
    width=576,
    heads=9,
    kv_heads=3,
    head_width=64,
    feed_forward=1_536,
    vocabulary=49_152,
    context=8_192,
    format="Q4_1",
    parameters=134_515_008,
)


def needs(scratch_per_token: int = 0) -> Needs:
    return Needs(4 * GB, 100_000, lambda context: GB // 10 + scratch_per_token * context)


def plan(
    available: int = 16 * GB, wanted: int = 0, model: int = 32_768, takes: Needs | None = None
) -> MemoryPlan:
    return plan_memory(
        takes or needs(), context_wanted=wanted, context_model=model, available=available
    )


def test_a_model_that_fits_gets_its_training_context() -> None:
    found = plan()
    assert found.context == found.most_context == 32_768
    assert found.cache_bytes == 32_768 * 100_000
    assert found.total_bytes == 4 * GB + found.cache_bytes + GB // 10
    assert found.available_bytes == 16 * GB
    assert found.fits
    assert refusal(found, 0) is None


def test_a_picture_encoder_is_a_part_of_its_own_that_takes_no_context_as_weights_do() -> None:
    seeing = replace(needs(), encoder_bytes=2 * GB)
    found = plan(takes=seeing)
    assert (found.weights_bytes, found.encoder_bytes) == (4 * GB, 2 * GB)
    assert found.total_bytes == plan().total_bytes + 2 * GB
    assert (plan().encoder_bytes, plan(5 * GB).fits) == (0, True)
    assert not plan(5 * GB, takes=seeing).fits
    for available in range(6 * GB, 16 * GB, GB // 2):
        more = replace(needs(), weights_bytes=6 * GB)
        assert plan(available, takes=seeing).context == plan(available, takes=more).context
    assert found.with_weights(5 * GB).encoder_bytes == 2 * GB


def test_the_context_is_halved_until_everything_fits_nine_tenths() -> None:
    found = plan(6 * GB)
    assert found.context == 8_192
    assert found.total_bytes <= 0.9 * 6 * GB
    assert plan(found.total_bytes * 10 // 9 + 1).context == 8_192
    assert plan(found.total_bytes * 10 // 9 - 1).context == 4_096


def test_the_context_is_not_lowered_below_512_tokens() -> None:
    least = 4 * GB + GB // 10 + 512 * 100_000
    assert plan(least * 10 // 9 + 1).context == 512
    assert plan(least * 10 // 9 + 1).fits
    assert not plan(least * 10 // 9 - 1).fits


def test_an_odd_context_is_not_lowered_below_512_tokens() -> None:
    least = 4 * GB + GB // 10 + 512 * 100_000
    assert plan(least * 10 // 9 + 1, model=1_000).context == 512


def test_a_training_context_below_512_tokens_is_kept() -> None:
    assert plan(model=128).context == 128


def test_weights_that_do_not_fit_are_refused_with_figures() -> None:
    refused = refusal(plan(2 * GB), 0)
    assert refused is not None
    assert "4.2 GB" in str(refused)
    assert "2.0 GB of memory are free" in str(refused)
    assert "smaller model" in refused.remedy
    assert plan(2 * GB).most_context == 0


def test_a_long_training_context_is_not_chosen_unasked() -> None:
    ministral = Needs(2 * GB, 60_000, lambda context: GB // 10)  # 17.7 GB at 262,144 tokens
    usual = usual_context(24 * GB)
    found = plan_memory(
        ministral, context_wanted=0, context_model=262_144, available=22 * GB, context_usual=usual
    )
    assert found.context == 32_768
    assert found.total_bytes < 5 * GB
    assert found.most_context > 200_000  # on request


def test_the_usual_context_follows_the_memory_of_the_computer() -> None:
    assert [usual_context(size * GB) for size in (4, 8, 16, 24, 64)] == [
        8_192,
        8_192,
        16_384,
        32_768,
        32_768,
    ]


def test_a_context_takes_at_most_half_of_what_the_weights_leave_above_8192_tokens() -> None:
    heavy = Needs(4 * GB, 400_000, lambda context: 0)  # 13 GB of cache at 32,768 tokens
    assert plan(16 * GB, takes=heavy).context == 8_192
    assert plan(18 * GB, takes=heavy).context == 16_384
    assert plan(10 * GB, takes=heavy).context == 8_192


def test_a_requested_context_is_kept() -> None:
    assert plan(wanted=1_000).context == 1_000


def test_a_requested_context_beyond_the_training_context_is_kept() -> None:
    found = plan(wanted=16_384, model=8_192)
    assert found.context == found.most_context == 16_384


def test_a_requested_context_that_does_not_fit_is_refused_with_one_that_does() -> None:
    refused = refusal(plan(6 * GB, wanted=32_768), 32_768)
    assert refused is not None
    assert "A context of 32,768 tokens needs 7.4 GB" in str(refused)
    assert "6.0 GB of memory are free" in str(refused)
    assert "at most 13,000 tokens" in refused.remedy
    assert plan(6 * GB, wanted=13_000).fits
    assert not plan(6 * GB, wanted=13_001).fits


def test_scratch_that_grows_with_the_context_counts() -> None:
    found = plan(6 * GB, takes=needs(scratch_per_token=100_000))
    assert found.context == 4_096
    assert found.scratch_bytes == GB // 10 + 4_096 * 100_000
    assert found.most_context == 6_500


def test_vocabulary_memory_depends_on_its_kind() -> None:
    byte_level = vocabulary_bytes(49_152, 48_900, sentencepiece=False)
    assert byte_level == pytest.approx(24.5e6, rel=0.05)  # measured on SmolLM2's
    sentencepiece = vocabulary_bytes(262_144, 0, sentencepiece=True)
    assert sentencepiece == pytest.approx(58e6, rel=0.05)  # measured on gemma 3's


def test_scratch_grows_with_chunk_size_widths_and_attention() -> None:
    before = scratch_bytes(SHAPE, 256, 10_000_000, 0)
    assert scratch_bytes(SHAPE, 512, 10_000_000, 0) > before
    assert scratch_bytes(SHAPE, 256, 20_000_000, 0) > before
    for name in ("width", "heads", "kv_heads", "feed_forward", "vocabulary"):
        wider = replace(SHAPE, **{name: 8 * getattr(SHAPE, name)})
        assert scratch_bytes(wider, 256, 10_000_000, 0) > before, name


def test_layer_weights_count_the_linear_layers() -> None:
    assert SHAPE.layer_weights == 2 * 576 * 576 + 2 * 576 * 192 + 3 * 576 * 1_536


def test_scratch_includes_two_pages() -> None:
    before = scratch_bytes(SHAPE, 256, 10_000_000, 0)
    assert scratch_bytes(SHAPE, 256, 10_000_000, 5_000_000) == before + 2 * 5_000_000


def test_measured_weights_replace_the_predicted_ones() -> None:
    found = plan()
    measured = found.with_weights(5 * GB)
    assert measured.weights_bytes == 5 * GB
    assert measured.total_bytes == found.total_bytes + GB
    assert (measured.cache_bytes, measured.context) == (found.cache_bytes, found.context)


@pytest.mark.parametrize("measured", [-GB, 0, 2 * GB, 7 * GB])
def test_distorted_measurement_is_ignored(measured: int) -> None:
    found = plan()
    assert found.with_weights(measured) is found


def test_recorded_program_needs_less_scratch_than_ops_one_by_one() -> None:
    one_by_one = scratch_bytes(SHAPE, 512, 1_000_000, 2_000_000)
    recorded = scratch_bytes(SHAPE, 512, 1_000_000, 2_000_000, recorded=True)
    assert 10_000_000 < recorded < one_by_one
    more = scratch_bytes(SHAPE, 1_024, 1_000_000, 2_000_000, recorded=True)
    assert more > recorded
