"""tr, trn, number: catalogs, plural forms, the fallback to English, the choice of the language."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.system import translation
from app.system.translation import (
    LANGUAGES,
    Catalog,
    catalog_file,
    language_of,
    listed,
    number,
    read_catalog,
    sentences,
    tr,
    trn,
    use,
)

HEADER = 'msgid ""\nmsgstr ""\n"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n'
RUSSIAN = (
    "nplurals=3; plural=n % 10 == 1 && n % 100 != 11 ? 0 : n % 10 >= 2 && n % 10 <= 4 && "
    "(n % 100 < 12 || n % 100 > 14) ? 1 : 2;"
)
ARABIC = (
    "nplurals=6; plural=(n == 0 ? 0 : n == 1 ? 1 : n == 2 ? 2 : n % 100 >= 3 && n % 100 <= 10 ? 3 "
    ": n % 100 >= 11 && n % 100 <= 99 ? 4 : 5);"
)


@pytest.fixture(autouse=True)
def english_afterwards() -> Iterator[None]:
    yield
    use(Catalog())


def written(folder: Path, *entries: str, header: str = HEADER) -> Path:
    path = folder / "tokonoma.po"
    path.write_text("\n\n".join((header.rstrip(), *entries)) + "\n", encoding="utf-8")
    return path


def test_a_string_is_translated_and_its_placeholders_are_filled(tmp_path: Path) -> None:
    use(read_catalog(written(tmp_path, 'msgid "Delete {what}"\nmsgstr "{what} löschen"')))
    assert tr("Delete {what}", what="Chat") == "Chat löschen"


def test_a_string_on_several_lines_with_escapes_is_read_whole(tmp_path: Path) -> None:
    entry = (
        '#: a.py\nmsgid ""\n"A \\"b\\"\\n"\n"c"\nmsgstr ""\n"Ein „b“\\n"\n"mit Rückstrich \\\\ c"'
    )
    assert read_catalog(written(tmp_path, entry)).text('A "b"\nc') == "Ein „b“\nmit Rückstrich \\ c"


@pytest.mark.parametrize(
    "entry",
    [
        'msgid "Send"\nmsgstr ""',
        '#, fuzzy\nmsgid "Send"\nmsgstr "Senden?"',
        '#, fuzzy, python-brace-format\n#| msgid "Sent"\nmsgid "Send"\nmsgstr "Senden?"',
        '#~ msgid "Send"\n#~ msgstr "Senden?"',
        'msgid "Other"\nmsgstr "Anderes"',
    ],
)
def test_a_string_without_a_sure_translation_is_english(tmp_path: Path, entry: str) -> None:
    use(read_catalog(written(tmp_path, entry)))
    assert tr("Send") == "Send"


def test_a_plural_that_lacks_a_form_is_english(tmp_path: Path) -> None:
    entry = 'msgid "{count} chat"\nmsgid_plural "{count} chats"\nmsgstr[0] "x"\nmsgstr[1] ""'
    use(read_catalog(written(tmp_path, entry)))
    assert [trn("{count} chat", "{count} chats", n) for n in (1, 2)] == ["1 chat", "2 chats"]


def test_arabic_has_six_forms(tmp_path: Path) -> None:
    forms = "\n".join(f'msgstr[{index}] "form{index}"' for index in range(6))
    entry = f'msgid "{{count}} chat"\nmsgid_plural "{{count}} chats"\n{forms}'
    header = f'msgid ""\nmsgstr ""\n"Plural-Forms: {ARABIC}\\n"'
    use(read_catalog(written(tmp_path, entry, header=header)))
    found = [trn("{count} chat", "{count} chats", n) for n in (0, 1, 2, 3, 10, 11, 99, 100, 103)]
    assert [int(each[-1]) for each in found] == [0, 1, 2, 3, 3, 4, 4, 5, 3]


def test_a_text_without_its_number_takes_the_form_of_one_for_one_alone(tmp_path: Path) -> None:
    forms = 'msgstr[0] "файл"\nmsgstr[1] "файлы"\nmsgstr[2] "файлы"'
    header = f'msgid ""\nmsgstr ""\n"Plural-Forms: {RUSSIAN}\\n"'
    use(read_catalog(written(tmp_path, f'msgid "A"\nmsgid_plural "As"\n{forms}', header=header)))
    assert [trn("A", "As", count) for count in (1, 2, 5, 21, 31)] == ["файл", *["файлы"] * 4]


def test_a_text_with_its_number_has_the_form_of_one_for_twenty_one(tmp_path: Path) -> None:
    forms = 'msgstr[0] "{count} чат"\nmsgstr[1] "{count} чата"\nmsgstr[2] "{count} чатов"'
    header = f'msgid ""\nmsgstr ""\n"Plural-Forms: {RUSSIAN}\\n"'
    use(read_catalog(written(tmp_path, f'msgid "A"\nmsgid_plural "As"\n{forms}', header=header)))
    assert [trn("A", "As", n) for n in (1, 3, 21, 25)] == ["1 чат", "3 чата", "21 чат", "25 чатов"]


def test_a_damaged_catalog_is_an_error_and_no_crash(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Invalid|decode"):
        read_catalog(written(tmp_path, 'msgid "Send"\nmsgstr "Sen\\qden"'))
    (tmp_path / "latin.po").write_bytes('msgid "a"\nmsgstr "ä"'.encode("latin-1"))
    with pytest.raises(ValueError, match=r"Invalid|decode"):
        read_catalog(tmp_path / "latin.po")


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (1234567, None, "1,234,567"),
        (0.30000000000000004, None, "0.3"),
        (2.0, None, "2"),
        (1234.56, 1, "1,234.6"),
        (0.05, 2, "0.05"),
        (-3, None, "-3"),
    ],
)
def test_english_numbers(value: float, decimals: int | None, text: str) -> None:
    assert number(value, decimals) == text


def test_numbers_in_texts_are_those_of_the_language() -> None:
    use(Catalog(), lambda value, decimals: f"<{value:.{decimals}f}>")
    assert tr("{a} of {b}", a=1, b=2.5) == "<1> of <2.5>"
    assert trn("{count} chat", "{count} chats", 3) == "<3> chats"
    assert tr("{a}: {flag}", a="text", flag=True) == "text: True"


def test_a_language_from_right_to_left_keeps_names_apart() -> None:
    use(Catalog({"{name} is in use.": ("{name} قيد الاستخدام.",)}), right_to_left=True)
    assert tr("{name} is in use.", name="a (1)") == "\u200f\u2068a (1)\u2069 قيد الاستخدام."
    assert tr("{count} s", count=3) == "\u200f3 s"
    assert translation.isolated("") == ""
    use(Catalog())
    assert translation.isolated("a") == "a"


def test_a_list_has_the_commas_of_the_language() -> None:
    assert listed(("a", "", "b", "c")) == "a, b, c"
    assert listed(()) == ""
    use(Catalog({"{parts}, {last}": ("{parts}、{last}",)}))
    assert listed(iter("ab")) == "a、b"


@pytest.mark.parametrize(
    ("wanted", "language"),
    [
        ([], "en"),
        (["C"], "en"),
        (["de-AT", "de-Latn-AT", "de"], "de"),
        (["de_DE"], "de"),
        (["fi-FI", "fi", "de-DE"], "de"),
        (["en-GB", "en", "de-DE"], "en"),
        (["zh-CN"], "zh_CN"),
        (["zh-Hans-CN", "zh-CN", "zh"], "zh_CN"),
        (["zh-Hans-SG"], "zh_CN"),
        (["zh"], "zh_CN"),
        (["zh-Hant-TW", "zh-TW", "en-US"], "en"),
        (["zh-HK", "de"], "de"),
        (["pt-BR"], "pt_BR"),
        (["pt-PT"], "pt_BR"),
        (["ar-EG"], "ar"),
        (["ru-KZ", "kk"], "ru"),
        (["ja-JP"], "ja"),
        (["ko-KR"], "ko"),
    ],
)
def test_the_language_is_the_first_wanted_one_that_there_is(
    wanted: list[str], language: str
) -> None:
    assert language_of(wanted) == language


def test_every_language_has_a_catalog() -> None:
    found = {path.parent.parent.name for path in catalog_file("en").parents[2].glob("*/*/*.po")}
    assert found == LANGUAGES.keys() - {translation.ENGLISH}


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        (("It is gone.", "Start it."), "It is gone. Start it."),
        (("端口 8080 被占用。", "请换一个端口。"), "端口 8080 被占用。请换一个端口。"),
        (("他说：“好。”", "请重试。"), "他说：“好。”请重试。"),
        (("文件损坏（可能！）", "", "HTTP 500"), "文件损坏（可能！）HTTP 500"),
        (
            ("「名前」がありません。", "もう一度お試しください。"),
            "「名前」がありません。もう一度お試しください。",
        ),
        (("파일이 없습니다.", "다시 시도하세요."), "파일이 없습니다. 다시 시도하세요."),
        (("Not found.", "请检查地址。"), "Not found. 请检查地址。"),  # a server's own words
        (("正在导入…", "已有 3 个聊天"), "正在导入… 已有 3 个聊天"),
        (("", " One. ", ""), "One."),
        ((), ""),
    ],
)
def test_sentences_are_joined_as_their_language_writes_them(
    parts: tuple[str, ...], whole: str
) -> None:
    assert sentences(*parts) == whole
