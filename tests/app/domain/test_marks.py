"""Boxes and points of answers: what is found in texts of any kind, and where it is in the picture."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from app.domain.mark_parser import MOST_CHARACTERS, MOST_MARKS, find_marks
from app.domain.marks import (
    Grid,
    Mark,
    Reading,
    WrittenMark,
    family_reading,
    pictures_asked_about,
    placed,
    readings,
    starts_at,
)
from app.domain.message import Message
from app.domain.parts import ImagePart, Part, TextPart
from engine import Role
from transcript_driver import message as said

CAT = (100, 200, 300, 400)
QWEN = Reading(Grid.THOUSAND)
GEMMA = Reading(Grid.THOUSAND, y_first=True)


def shown(
    text: str, model: str = "Qwen3-VL-4B", size: tuple[int, int] = (2000, 1000)
) -> list[Mark]:
    """The marks as they are drawn at first."""
    written = find_marks(text)
    return list(placed(written, readings(written, family_reading([model]), *size)[0], *size))


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("Qwen3-VL-4B", '```json\n[{"bbox_2d": [100, 200, 300, 400], "label": "cat"}]\n```'),
        ("qwen3.5:9b", "[{'label': 'cat', 'bbox_2d': ['100', \"200\", 300.0, 4e2],}]"),
        ("Qwen2-VL-7B", "<|object_ref_start|>cat<|object_ref_end|><|box_start|>"
         "(100,200),(300,400)<|box_end|>"),
        ("Qwen-VL", "<ref>cat</ref><box>(100,200),(300,400)</box>"),
        ("Qwen2-VL-7B", "cat (100,200),(300,400)"),  # its tags are not shown
        ("gemma-4-E4B", '[{"box_2d": [200, 100, 400, 300], "label": "cat"}]'),
        ("gemma-3-4b", '{"label": "cat", "box": [200, 100, 400, 300]}'),
        ("GLM-4.6V-Flash", "The cat: <|begin_of_box|>[[100,200,300,400]]<|end_of_box|>"),
        ("glm-4.1v", '<|begin_of_box|>{"bbox_2d":[100,200,300,400],"label":"cat"}<|end_of_box|>'),
        ("InternVL3-8B", "<ref>cat</ref><box>[[100, 200, 300, 400]]</box>"),
        ("DeepSeek-OCR", "<|ref|>cat<|/ref|><|det|>[[100, 200, 300, 400]]<|/det|>"),
        ("other", '{"objects": [{"name": "cat", "bounding_box": {"x1": 0.1, "y1": 0.2, "x2": 0.3,'
         ' "y2": 0.4}}]}'),
        ("other", '{"cat": [100, 200, 300, 400]}'),
    ],
)  # fmt: skip
def test_each_notation_gives_the_same_box(model: str, text: str) -> None:
    (mark,) = shown(text, model)
    assert mark.label.removeprefix("The ") == "cat"
    found = (mark.left, mark.top, mark.right, mark.bottom, mark.is_point)
    assert found == pytest.approx((0.1, 0.2, 0.3, 0.4, False))


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("Qwen3-VL-4B", '[{"point_2d": [105, 201], "label": "eye"}]'),
        ("gemini-2.5", '[{"point": [201, 105], "label": "eye"}]'),
        ("Molmo-7B", 'It is <point x="10.5" y="20.1" alt="eye">eye</point> here.'),
        ("other", '{"label": "eye", "center": {"x": 105, "y": 201}}'),
    ],
)
def test_each_notation_gives_the_same_point(model: str, text: str) -> None:
    (mark,) = shown(text, model)
    assert (mark.label, mark.is_point) == ("eye", True)
    assert (mark.left, mark.top) == pytest.approx((0.105, 0.201))
    assert (mark.right, mark.bottom) == (mark.left, mark.top)


def test_locations_of_paligemma_have_1024_steps_and_y_first() -> None:
    (cat, dog) = shown("<loc0256><loc0512><loc0512><loc0768> cat ; <loc0000><loc0000><loc1023>"
                       "<loc1023> dog", "paligemma2")  # fmt: skip
    assert cat == Mark(0.5, 0.25, 0.75, 0.5, "cat")
    assert (dog.label, round(dog.right, 3)) == ("dog", 0.999)


def test_qwen25_counts_pixels_of_the_picture_that_it_is_given() -> None:
    text = '[{"bbox_2d": [0, 0, 280, 140], "label": "cat"}]'
    (mark,) = shown(text, "Qwen2.5-VL-7B", (570, 290))  # given as 560 x 280
    assert (mark.right, mark.bottom) == (0.5, 0.5)
    (mark,) = shown('{"bbox_2d": [0, 0, 42, 28]}', "qwen2.5vl:7b", (20, 10))  # as 84 x 56
    assert (mark.right, mark.bottom) == (0.5, 0.5)
    (mark,) = shown(text, "qwen2.5vl:7b", (8000, 4000))  # given as 5068 x 2520
    assert mark.right == pytest.approx(280 / 5068)


def test_one_object_can_have_several_places() -> None:
    assert len(find_marks('{"label": "cat", "bbox_2d": [[1, 2, 30, 40], [5, 6, 70, 80]]}')) == 2
    (around,) = find_marks('{"label": "roof", "bbox_2d": [[9, 8], [90, 20], [40, 70]]}')
    assert around.values == (9, 8, 90, 70)
    points = find_marks('{"points": [[1, 2], [3, 4], [5, 6]], "label": "ear"}')
    assert [each.values for each in points] == [(1, 2), (3, 4), (5, 6)]
    molmo = find_marks('<points x1="1.5" y1="2" x2="3" y2="4" alt="ear">ear</points>')
    assert [each.values for each in molmo] == [(1.5, 2), (3, 4)]


def test_json_that_is_cut_off_gives_what_is_complete() -> None:
    text = (
        '[{"bbox_2d": [1, 2, 30, 40], "label": "cat"}, {"bbox_2d": [5, 6, 70, 800], "label": "d"}]'
    )
    counts = [len(find_marks(text[:end])) for end in range(len(text) + 1)]
    assert counts == sorted(counts)
    assert (counts[text.index("40]") + 2], counts[text.index("40]") + 3]) == (0, 1)
    assert (counts[text.index("800]") + 3], counts[text.index("800]") + 4]) == (1, 2)


@pytest.mark.parametrize(
    "values",
    ["NaN, 1, 2, 3", "1e999, 1, 2, 3", "1, 2, 3", "1, 2, null, 4", '"a", 2, 3, 4', "-Infinity, 1, 2, 3",
     "9" * 400 + ", 1, 2, 3"],
)  # fmt: skip
def test_what_is_no_coordinate_is_left_out(values: str) -> None:
    text = (
        f'[{{"bbox_2d": [{values}], "label": "x"}}, {{"bbox_2d": [1, 2, 30, 40], "label": "cat"}}]'
    )
    assert [each.label for each in find_marks(text)] == ["cat"]


@pytest.mark.parametrize(
    "text",
    ["", "The answer is [1, 2, 3, 4].", "f(1, 2) is 3", "| 1 | 2 |\n|---|---|",
     "```python\nbox = [10, 20, 300, 400]\n```", "[link](https://a/1,2,3,4)", "<box>", "x1 = 3, y1 = 4"],
)  # fmt: skip
def test_an_answer_of_another_kind_has_no_marks(text: str) -> None:
    assert find_marks(text) == ()


def test_boxes_are_cut_at_the_sides_and_sorted_and_those_outside_left_out() -> None:
    text = """[{"bbox_2d": [300, 400, 100, 200]}, {"bbox_2d": [-50, 900, 500, 1015]},
    {"bbox_2d": [-50, 0, -10, 90]}, {"point_2d": [500, -1]}, {"bbox_2d": [7, 7, 7, 7]}]"""
    assert shown(text) == [Mark(0.1, 0.2, 0.3, 0.4), Mark(0, 0.9, 0.5, 1)]


def test_a_family_that_is_known_leaves_no_choice_unless_the_values_exceed_it() -> None:
    marks = (WrittenMark((10, 20, 900, 700), y_first=False),)
    assert readings(marks, QWEN, 2000, 1500) == (QWEN,)
    larger = (WrittenMark((10, 20, 1900, 700), y_first=False),)
    assert readings(larger, QWEN, 2000, 1500) == (Reading(Grid.PIXELS),)
    shares = (WrittenMark((0.1, 0.2, 0.9, 1), y_first=False),)
    assert readings(shares, QWEN, 2000, 1500) == (Reading(Grid.SHARE),)
    told = (WrittenMark((0, 0, 9, 9), "", None, Grid.PERCENT, y_first=False),)
    assert len(readings(told, None, 50, 50)) == 1


def test_of_a_model_that_is_not_known_every_reading_that_fits_is_offered() -> None:
    marks = (WrittenMark((10, 20, 90, 70)),)
    found = readings(marks, None, 2000, 1500)
    assert found == (QWEN, Reading(Grid.PIXELS), Reading(Grid.PERCENT), GEMMA)
    assert readings(marks, None, 50, 50) == (QWEN, Reading(Grid.PERCENT), GEMMA)
    assert readings(marks, None, 0, 0) == (QWEN, Reading(Grid.PERCENT), GEMMA)
    assert placed(marks, Reading(Grid.PIXELS), 0, 0) == ()
    (mark,) = placed(marks, GEMMA, 50, 50)
    assert (mark.left, mark.top, mark.right, mark.bottom) == (0.02, 0.01, 0.07, 0.09)


@pytest.mark.parametrize(
    ("names", "reading"),
    [
        (("Qwen3-VL-8B-Instruct-Q4_K_M.gguf",), QWEN),
        (("", "qwen35moe"), QWEN),
        (("Qwen 3.8 30B",), QWEN),
        (("my model", "qwen3vl"), QWEN),
        (("qwen/qwen2.5-vl-7b",), Reading(Grid.QWEN_PIXELS)),
        (("Qwen2.5-VL", "qwen2vl"), Reading(Grid.QWEN_PIXELS)),
        (("my model", "qwen2vl"), None),  # of Qwen2-VL and of Qwen2.5-VL
        (("Gemma 4 E4B",), GEMMA),
        (("glm4moe",), QWEN),
        (("Ministral-3-8B", "mistral3"), None),
        ((), None),
    ],
)
def test_the_family_is_found_by_names_and_architecture(
    names: tuple[str, ...], reading: Reading | None
) -> None:
    assert family_reading(names) == reading


def test_marks_of_another_picture_are_not_drawn() -> None:
    text = """[{"image_index": 1, "bbox_2d": [0, 0, 10, 10], "label": "a"},
    {"image": "image 2", "bbox_2d": [0, 0, 20, 20], "label": "b"},
    {"bbox_2d": [0, 0, 30, 30], "label": "c"}, {"image": 9, "bbox_2d": [0, 0, 40, 40], "label": "d"}]"""
    written = find_marks(text)

    def labels(number: int, count: int = 3) -> str:
        return "".join(each.label for each in placed(written, QWEN, 9, 9, number, count))

    assert (labels(0), labels(1), labels(2)) == ("acd", "bcd", "cd")
    assert starts_at(written, 3) == 0
    from_zero = find_marks(
        '[{"image_index": 1, "point_2d": [0, 0]}, {"image_index": 0, "point": [1, 1]}]'
    )
    assert [len(placed(from_zero, QWEN, 9, 9, number, 3)) for number in range(3)] == [1, 1, 0]
    assert starts_at(find_marks('{"bbox_2d": [0, 0, 10, 10]}'), 3) == 2


def test_there_is_an_end_to_what_is_read() -> None:
    box = '{"bbox_2d": [1, 2, 30, 40]}'
    assert len(find_marks(box * (MOST_MARKS + 50))) == MOST_MARKS
    assert find_marks(" " * MOST_CHARACTERS + box) == ()
    assert len(find_marks("[" * 3000 + box)) == 1


def test_no_text_raises() -> None:
    chance = random.Random(51)
    pieces = ['{"bbox_2d":', "[", "]", "{", "}", '"', "'", "\\", ",", ":", "1", "-2.5", "1e400", "NaN", "null",
              '"label":', '"cat"', '"point":', '"image":', "<box>", "</box>", "<ref>", "<loc0001>", "<point x=",
              '"5"', "\\ud800", "\\u", "<|begin_of_box|>", "(3,4)", "\n", "é", "x1", "[1,2,3,4]"]  # fmt: skip
    found = 0
    for _ in range(3000):
        text = "".join(chance.choices(pieces, k=chance.randint(1, 40)))
        written = find_marks(text)
        found += len(written)
        for reading in readings(written, None, 100, 50):
            for mark in placed(written, reading, 100, 50):
                assert 0 <= mark.left <= mark.right <= 1
                assert 0 <= mark.top <= mark.bottom <= 1
                mark.label.encode()
    assert found > 100


def test_the_pictures_are_those_of_the_last_question_with_any() -> None:
    def message(number: int, role: Role, *parts: Part) -> Message:
        return replace(said(number, "", is_user=role is Role.USER), parts=parts)

    first, second = ImagePart("a.png"), ImagePart("b.png")
    branch = [
        message(1, Role.USER, first, second, TextPart("Where?")),
        message(2, Role.ASSISTANT, TextPart("There")),
        message(3, Role.USER, TextPart("And the dog?")),
        message(4, Role.ASSISTANT, TextPart("Here")),
        message(5, Role.USER, ImagePart("c.png")),
    ]
    assert pictures_asked_about(branch, 4) == (first, second)
    assert pictures_asked_about(branch[1:], 4) == ()
    assert pictures_asked_about(branch, 99) == (ImagePart("c.png"),)
