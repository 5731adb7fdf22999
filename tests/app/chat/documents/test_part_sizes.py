"""How many parts a document has, and what they take."""

from __future__ import annotations

import pytest

from app.chat.documents.part_sizes import long_cost, part_sizes
from app.chat.requests.measured_speed import Speed, speed_of
from app.domain.answer_details import AnswerDetails, AnswerRecord
from app.domain.documents import Reads


def test_a_context_without_room_has_no_parts() -> None:
    assert part_sizes(256, 100, Reads.SUMMARY) is None
    assert part_sizes(4096, 4000, Reads.SUMMARY) is None
    assert part_sizes(4096, 100, Reads.SUMMARY) is not None


@pytest.mark.parametrize("context", [512, 2048, 8192, 131_072])
@pytest.mark.parametrize("reads", [Reads.SUMMARY, Reads.REWRITE])
def test_a_part_and_what_is_made_of_it_fit_in_the_context(context: int, reads: Reads) -> None:
    sizes = part_sizes(context, 60, reads)
    assert sizes is not None
    assert sizes.text + sizes.result + 60 <= context
    assert sizes.result <= sizes.text or reads is Reads.REWRITE


def test_three_thousand_pages_are_a_few_hundred_requests() -> None:
    sizes = part_sizes(8192, 100, Reads.SUMMARY)
    assert sizes is not None
    tokens = 3_000 * 600
    cost = long_cost(tokens, 293, sizes, 100, Reads.SUMMARY)
    assert sizes.text == 6144
    assert tokens < cost.read < 1.5 * tokens
    assert cost.parts * sizes.result < cost.written < 1.3 * cost.parts * sizes.result
    rewritten = part_sizes(8192, 100, Reads.REWRITE)
    assert rewritten is not None
    assert long_cost(tokens, 1758, rewritten, 100, Reads.REWRITE).written == tokens


def test_one_part_is_one_request() -> None:
    sizes = part_sizes(8192, 100, Reads.SUMMARY)
    assert sizes is not None
    cost = long_cost(500, 1, sizes, 100, Reads.SUMMARY)
    assert (cost.parts, cost.written) == (1, sizes.result)


def test_the_speed_is_that_of_the_model_in_its_last_answers() -> None:
    def record(model: str, prompt: int, seconds: float) -> AnswerRecord:
        made = AnswerDetails(
            model, reused_tokens=100, prompt_seconds=seconds, decode_seconds=2 * seconds
        )
        return AnswerRecord(prompt, 50, made)

    records = [record("A", 1100, 1.0), record("B", 900, 9.0), record("A", 3100, 3.0)]
    assert speed_of("A", records) == Speed(1000.0, 12.5)
    assert speed_of("C", records) == Speed()
    assert speed_of("A", records).seconds(2000, 25) == 4.0
    assert Speed().seconds(2000, 25) == 0.0
    old = AnswerRecord(100, 10, AnswerDetails("A", decode_seconds=1.0))  # prompts were not timed
    assert speed_of("A", [old]) == Speed()
