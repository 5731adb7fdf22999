"""Prompts with pictures: equal to transformers', and nothing that a user writes becomes a picture."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import image_cases
import seeing_files
import tiny
from engine import ContextPolicy, ImagePart, ReasoningPart, Role, TextPart, Tool, ToolResult, Turn
from engine.errors import Fault, FaultKind, RequestError, UnsupportedModel
from engine.frontend.image_marks import ImageMarks, image_marks
from engine.frontend.image_prompt import Pictures
from engine.frontend.prompt import Prompt, PromptBuilder
from engine.frontend.template import ChatTemplate
from engine.frontend.tokenizer.json import SubwordModel
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.messages import Blindness, BlindReason, ToolCall
from engine.vision.picture import Picture, Tile
from engine.vision.registry import ImageRegistry
from image_cases import CASES, Case, Size

PICTURE, OTHER = (image_cases.picture(Size(2, 3), at) for at in range(2))
PAD, SHOWN = "<|image_pad|>", "<|vision_start|><|image_pad|><|vision_end|>"


class Sizes:
    """Pictures of the sizes that their sources are."""

    def __init__(self, *, has_breaks: bool = False) -> None:
        self.has_breaks = has_breaks  # rows at the ends of lines but the last
        self.reads = 0

    def read(self, part: ImagePart, cancelled: object) -> Picture:
        """Tiles with keys of their own."""
        self.reads += 1
        size = image_cases.size_of(part)

        def tile(name: str, lines: int) -> Tile:
            count = lines * (size.columns + self.has_breaks) - self.has_breaks
            return Tile(f"{part.source!r} {name}", lines, size.columns, count, lambda: None)  # type: ignore[arg-type,return-value]

        tiles = tuple(tile(str(at), size.lines) for at in range(size.grid[0] * size.grid[1]))
        more = size.lines if self.is_square else size.lines + 1
        overview = tile("overview", more) if size.has_overview else None
        return Picture(8, 8, tiles, size.grid, overview)

    is_square = False

    def close(self) -> None:
        """Nothing is open."""


class Seeing:
    """What builds prompts for a case, and what it gave ids to."""

    def __init__(self, case: Case, template: str | None = None, context: int = 600) -> None:
        keys = case.vocabulary | ({} if template is None else {"tokenizer.chat_template": template})
        self.tokenizer = Tokenizer.from_metadata(keys)
        self.registry = ImageRegistry(self.tokenizer.size)
        self.sizes = Sizes(has_breaks=case.projector == "pixtral")
        self.sizes.is_square = case.projector in ("idefics3", "internvl", "llama4", "resampler")
        pictures = Pictures(image_marks(case.projector), self.registry, lambda: self.sizes)
        self.template = ChatTemplate.from_metadata(keys, self.tokenizer)
        self.builder = PromptBuilder(self.template, self.tokenizer, context, pictures)

    def prompt(self, *turns: Turn, **options: Any) -> Prompt:
        """The prompt of an answer."""
        return self.builder.answer(turns, ContextPolicy.STOP, None, **options)

    def collapsed(self, ids: Sequence[int]) -> list[int]:
        """Ids with the number of rows of each run of pictures."""
        return image_cases.collapsed(ids, range(self.tokenizer.size, 1 << 40))

    def spelled(self, ids: Sequence[int]) -> str:
        """The text of ids, with a + for each row of a picture."""
        size = self.tokenizer.size
        return "".join("+" if one >= size else self.tokenizer.piece(one).decode() for one in ids)


def user(*parts: TextPart | ImagePart | str) -> Turn:
    return Turn(Role.USER, tuple(TextPart(one) if isinstance(one, str) else one for one in parts))


@pytest.mark.parametrize("name", CASES)
def test_prompts_are_those_of_transformers(name: str) -> None:
    case, recorded = CASES[name], image_cases.recorded()[name]
    seeing = Seeing(case)
    made = seeing.prompt(*image_cases.turns(case.sizes))
    assert made.rendered.text == recorded["text"]
    assert seeing.collapsed(made.ids) == recorded["ids"]
    rows = [one for one in made.ids if one >= seeing.registry.vocabulary]
    first = seeing.registry.vocabulary
    assert rows == list(range(first, first + len(rows)))  # tile by tile, in reading order
    tiles = [image for image in seeing.registry.images if not image.key.endswith("overview")]
    assert len(tiles) == sum(size.grid[0] * size.grid[1] for size in case.sizes)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_recorded_prompts_are_those_of_the_installed_transformers(name: str) -> None:
    pytest.importorskip("transformers")
    import golden_image_prompts

    assert golden_image_prompts.recorded(CASES[name]) == image_cases.recorded()[name]


@pytest.mark.parametrize("name", CASES)
def test_without_a_template_for_pictures_the_marks_stand_in_the_text(name: str) -> None:
    """A template that knows only texts gives the same ids as one that knows pictures."""
    case = CASES[name]
    words = (
        "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content }}"
        "{{ '<|im_end|>\\n' }}{% endfor %}"
    )
    parts = words.replace(
        "+ message.content }}",
        "}}{% for item in message.content %}{% if item.type == 'text' %}{{ item.text }}{% else %}"
        f"{image_marks(case.projector).shown}{{% endif %}}{{% endfor %}}",
    )
    turns = image_cases.turns(case.sizes)
    by_words, by_parts = (Seeing(case, one) for one in (words, parts))
    found, wanted = by_words.prompt(*turns), by_parts.prompt(*turns)
    assert found.ids == wanted.ids
    assert found.rendered.text == wanted.rendered.text
    assert by_parts.template._takes_images == {image_marks(case.projector).placeholder: True}
    assert by_words.template._takes_images == {image_marks(case.projector).placeholder: False}


def test_equal_pictures_are_read_once_and_have_the_same_ids() -> None:
    seeing = Seeing(CASES["qwen3vl"])
    made = seeing.prompt(user(PICTURE, "a", PICTURE), Turn(Role.ASSISTANT, "b"), user(PICTURE))
    assert seeing.sizes.reads == 1
    assert len(seeing.registry.images) == 1
    assert sum(one >= seeing.tokenizer.size for one in made.ids) == 18
    other = seeing.prompt(user(replace(PICTURE, detail=5)))
    assert seeing.sizes.reads == 2
    assert seeing.collapsed(other.ids).count(-6) == 1


@pytest.mark.parametrize("name", CASES)
def test_a_placeholder_that_is_written_stays_text(name: str) -> None:
    case = CASES[name]
    marks = image_marks(case.projector)
    seeing = Seeing(case)
    written = f"is {marks.placeholder} a mark{marks.placeholder}"
    tool = Tool("find", f"finds {marks.placeholder}")
    turns = (
        Turn(Role.SYSTEM, f"never write {marks.placeholder}"),
        user(written, PICTURE, marks.placeholder),
        Turn(Role.ASSISTANT, (ReasoningPart(marks.placeholder), TextPart(written))),
        user(written),
    )
    blind = tuple(Turn(turn.role, turn.text) for turn in turns)
    made, without = seeing.prompt(*turns, tools=(tool,)), seeing.prompt(*blind, tools=(tool,))
    rows = [at for at, one in enumerate(made.ids) if one >= seeing.registry.vocabulary]
    count = rows[-1] - rows[0] + 1
    assert count == len(rows)  # of one picture, in one place
    before, after = seeing.spelled(made.ids[: rows[0]]), seeing.spelled(made.ids[rows[-1] + 1 :])
    opens = marks.outside[0] + marks.opens.format(number=0) + marks.whole
    ends = marks.whole_end + marks.ends + marks.outside[1]
    assert before.endswith(opens)
    assert after.startswith(ends)
    shown = before.removesuffix(opens) + after.removeprefix(ends)
    assert shown == seeing.spelled(without.ids)
    assert made.rendered.text.count(marks.placeholder) == (
        without.rendered.text.count(marks.placeholder) + 1
    )


def test_a_written_placeholder_does_not_change_how_the_template_writes_pictures() -> None:
    seeing = Seeing(CASES["idefics3"])  # which writes no space before a picture
    made = seeing.prompt(user(PICTURE, "no <image> is"))
    assert made.rendered.text.startswith("<|im_start|>User:<image>no <image> is")
    tools = (Tool("find", "finds <image>"),)
    assert "User:<image>well" in seeing.prompt(user(PICTURE, "well"), tools=tools).rendered.text


def test_a_picture_may_stand_in_a_turn_of_any_role() -> None:
    seeing = Seeing(CASES["qwen3vl"])
    call = ToolCall("1", "look", "{}")
    made = seeing.prompt(
        Turn(Role.SYSTEM, (TextPart("be like "), PICTURE)),
        user("look"),
        Turn(Role.ASSISTANT, (PICTURE, TextPart("so"), call)),
        Turn(Role.TOOL, (OTHER, ToolResult("1", "look", "seen "), PICTURE)),
    )
    assert made.rendered.text.count(SHOWN) == 4
    assert seeing.collapsed(made.ids).count(-6) == 4
    assert f"be like {SHOWN}<|im_end|>" in made.rendered.text
    assert f"assistant\n{SHOWN}so" in made.rendered.text
    assert re.search(re.escape(SHOWN) + "seen " + re.escape(SHOWN), made.rendered.text)


def test_instructions_with_a_picture_are_put_before_the_question_if_need_be() -> None:
    refusing = seeing_files.QWEN.replace(
        "{% for message in messages %}",
        "{% for message in messages %}"
        "{% if message.role == 'system' %}{{ raise_exception('no system') }}{% endif %}",
        1,
    )
    seeing = Seeing(CASES["qwen3vl"], refusing)
    made = seeing.prompt(
        Turn(Role.SYSTEM, (PICTURE, TextPart("be brief"))), user(OTHER, "what is it")
    )
    assert f"user\n{SHOWN}be brief\n{SHOWN}what is it" in made.rendered.text
    first, second = seeing.registry.images
    rows = [one for one in made.ids if one >= seeing.tokenizer.size]
    assert rows == [*first.ids, *second.ids]
    assert first.key.startswith(repr(PICTURE.source))


def test_a_template_that_writes_too_few_placeholders_is_given_the_text() -> None:
    once = seeing_files.QWEN.replace(
        "{% if 'image' in item", "{% if loop.first and 'image' in item"
    )
    seeing = Seeing(CASES["qwen3vl"], once.replace("item.type == 'image'", "loop.first"))
    assert seeing.collapsed(seeing.prompt(user(PICTURE, "one")).ids).count(-6) == 1
    made = seeing.prompt(user(PICTURE, OTHER, "two"))
    assert f"user\n{SHOWN}{SHOWN}two" in made.rendered.text
    assert seeing.collapsed(made.ids).count(-6) == 2


def test_a_continued_answer_may_write_the_placeholder() -> None:
    seeing = Seeing(CASES["qwen3vl"])
    made = seeing.prompt(user(PICTURE, "hi"), Turn(Role.ASSISTANT, f"the mark {PAD}"))
    assert made.rendered.begun == f"the mark {PAD}"
    assert made.rendered.text.endswith(f"assistant\nthe mark {PAD}")
    assert seeing.collapsed(made.ids).count(-6) == 1
    with pytest.raises(RequestError, match=r"^An answer with a picture in it cannot be continued"):
        seeing.prompt(user("hi"), Turn(Role.ASSISTANT, (TextPart("so "), PICTURE)))


def test_a_begin_token_is_put_before_a_picture() -> None:
    case = CASES["pixtral"]
    seeing = Seeing(case, case.template.removeprefix("{{ bos_token }}"))
    seeing.tokenizer.add_bos = True
    made = seeing.prompt(*image_cases.turns(case.sizes))
    assert seeing.collapsed(made.ids) == image_cases.recorded()["pixtral"]["ids"]


def test_a_model_that_does_not_see_refuses_in_a_sentence() -> None:
    seeing = Seeing(CASES["qwen3vl"])
    for blind, sentence, about in (
        (None, r"^This model cannot see pictures\.$", ""),
        (
            Blindness(BlindReason.MEMORY, "there is no room."),
            r"^This model cannot see pictures: there is no room\.$",
            "memory",
        ),
    ):
        builder = PromptBuilder(seeing.template, seeing.tokenizer, 600, None, blind)
        with pytest.raises(RequestError, match=sentence) as caught:
            builder.conversation((user("see", PICTURE),), ContextPolicy.STOP)
        assert "mmproj" in caught.value.remedy
        assert caught.value.fault == Fault(FaultKind.NO_SIGHT, about)
        assert builder.conversation((user("see"),), ContextPolicy.STOP).ids


def test_the_oldest_turns_are_left_out_by_the_rows_of_their_pictures() -> None:
    seeing = Seeing(CASES["qwen3vl"], context=150)
    large = image_cases.picture(Size(10, 10))
    turns = (user(large, "a"), Turn(Role.ASSISTANT, "b"), user(PICTURE, "c"))
    made = seeing.builder.answer(turns, ContextPolicy.DROP_OLDEST, None)
    assert made.dropped_turns == 2
    assert seeing.collapsed(made.ids).count(-6) == 1
    assert max(made.ids) < seeing.tokenizer.size + 106
    small = (user(OTHER, "a"), *turns[1:])
    assert seeing.builder.answer(small, ContextPolicy.DROP_OLDEST, None).dropped_turns == 0


def test_a_picture_counts_for_its_own_turn() -> None:
    seeing = Seeing(CASES["qwen3vl"], context=300)
    large, answer = image_cases.picture(Size(10, 16)), Turn(Role.ASSISTANT, "b")
    turns = (user(large, "a"), answer, user("c"), answer, user("d"), answer, user("e"))
    made = seeing.builder.answer(turns, ContextPolicy.DROP_OLDEST, None)
    assert made.dropped_turns == 2


def test_marks_that_are_no_tokens_are_refused() -> None:
    blind = Tokenizer.from_metadata(tiny.bpe("qwen3"))
    for case in CASES.values():
        marks = image_marks(case.projector)
        marks.refuse_vocabulary(Tokenizer.from_metadata(case.vocabulary))
        missing = re.escape(marks.needed[0])
        with pytest.raises(
            UnsupportedModel, match=f"^The model's vocabulary has no token {missing}"
        ):
            marks.refuse_vocabulary(blind)


def test_text_behind_a_picture_is_spelled_as_later_text_is() -> None:
    made = Tokenizer.from_metadata(tiny.bpe("qwen3"))
    made._subwords = SubwordModel(
        lambda text: [1], lambda text: [2], lambda text: [3], strips_space=False
    )
    assert made.encode_parts(["a", [400, 401], "b", [402]]) == [1, 400, 401, 2, 402]
    assert made.encode_parts([[400], "b", "<|im_end|>b"]) == [400, 2, 2, 2]
    assert made.encode_parts(["<|im_end|>b"]) == made.encode("<|im_end|>b", add_special=False)


def test_the_reader_is_opened_by_the_first_picture_and_closed() -> None:
    opened: list[Sizes] = []

    def open_source() -> Sizes:
        opened.append(Sizes())
        return opened[-1]

    pictures = Pictures(ImageMarks("<>"), ImageRegistry(9), open_source)
    pictures.close()
    assert not opened
    for _ in range(2):
        pictures.read((user(PICTURE),))
    assert len(opened) == 1
