"""The catalogs of the window's languages: up to date, and every translation fits its source."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog, Message

import catalogs
from app.system.translation import read_catalog

MARKUP = re.compile(r"</?[a-z][^>]*>|\*\*|`|\n|\t")


def translated(language: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Each translated string: its key, its English forms and its translated ones."""
    for message in catalogs.read(catalogs.catalog_file(language), language):
        if not message.id or message.fuzzy:
            continue
        forms = [form for form in _forms(message.string) if form]
        if forms:
            yield _forms(message.id)[0], _forms(message.id), forms


def _forms(text: str | tuple[str, ...] | list[str]) -> list[str]:
    return [text] if isinstance(text, str) else list(text)


def _placeholders(text: str) -> list[str]:
    return sorted(name for _, name, _, _ in string.Formatter().parse(text) if name is not None)


def test_the_template_has_exactly_the_strings_of_the_sources(
    capsys: pytest.CaptureFixture[str],
) -> None:
    template, sources = catalogs.keys(catalogs.read(catalogs.TEMPLATE)), catalogs.extracted()
    missing = catalogs.keys(sources) - template
    assert missing == set(), "run `packaging/dev.py words`"
    assert template - catalogs.keys(sources) == set(), "run `packaging/dev.py words`"
    with capsys.disabled():
        print(f"\n{catalogs.summary()}")


@pytest.mark.parametrize("language", catalogs.languages())
def test_every_translation_has_the_placeholders_of_its_source(language: str) -> None:
    """A form for one number alone, as Arabic has for 0, 1 and 2, may say it in a word."""
    rule = read_catalog(catalogs.catalog_file(language)).plural
    numbers = Counter(rule(count) for count in range(200))
    wrong: list[tuple[str, str]] = []
    for key, english, forms in translated(language):
        for index, form in enumerate(forms):
            allowed = [_placeholders(each) for each in english]
            if len(english) == 2 and numbers[index] == 1:
                allowed += [[name for name in names if name != "count"] for names in allowed]
            if _placeholders(form) not in allowed:
                wrong.append((key, form))
    assert wrong == []


@pytest.mark.parametrize("language", catalogs.languages())
def test_a_text_that_states_its_count_states_it_for_every_number_but_one_and_two(
    language: str,
) -> None:
    """Russian has one form for 1, 21 and 31: without the number, 21 would read as one."""
    catalog = read_catalog(catalogs.catalog_file(language))
    wrong = {
        (many, catalog.form(one, many, count))
        for one, many in (english for _, english, _ in translated(language) if len(english) == 2)
        for count in range(3, 200)
        if "{count}" in many and "{count}" not in catalog.form(one, many, count)
    }
    assert wrong == set()


@pytest.mark.parametrize("language", catalogs.languages())
def test_every_plural_is_complete(language: str) -> None:
    count = catalogs.read(catalogs.catalog_file(language), language).num_plurals
    wrong = [
        (key, forms)
        for key, english, forms in translated(language)
        if len(forms) != (count if len(english) == 2 else 1)
    ]
    assert wrong == []


@pytest.mark.parametrize("language", catalogs.languages())
def test_every_translation_has_the_markup_of_its_source(language: str) -> None:
    wrong = [
        (key, form)
        for key, english, forms in translated(language)
        for form in forms
        if sorted(MARKUP.findall(form)) not in [sorted(MARKUP.findall(each)) for each in english]
    ]
    assert wrong == []


@pytest.mark.parametrize("language", catalogs.languages())
def test_no_translation_has_spaces_at_its_ends_or_two_in_a_row(language: str) -> None:
    wrong = [
        (key, form)
        for key, _, forms in translated(language)
        for form in forms
        if form != form.strip() or "  " in form
    ]
    assert wrong == []


# --- the command itself -------------------------------------------------------------------------


def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(catalogs, "FOLDER", tmp_path)
    monkeypatch.setattr(catalogs, "TEMPLATE", tmp_path / "tokonoma.pot")
    return tmp_path


def template(*texts: str | tuple[str, str]) -> Catalog:
    made = Catalog(charset="utf-8", fuzzy=False)
    for text in texts:
        made.add(text, locations=[("app/ui/window.py", 0)])
    return made


def test_an_update_keeps_translations_and_tells_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(tmp_path, monkeypatch)
    first = Catalog(locale="de", charset="utf-8", fuzzy=False)
    first.add("Send", "Senden")
    first.add("Delete the chat", "Chat löschen")
    first.add(("{count} chat", "{count} chats"), ("{count} Chat", "{count} Chats"))
    catalogs.write(catalogs.catalog_file("de"), first)
    sources = template("Send", "Delete this chat", "New", ("{count} chat", "{count} chats"))
    monkeypatch.setattr(catalogs, "extracted", lambda: sources)
    catalogs.update()
    written = catalogs.read(catalogs.catalog_file("de"), "de")
    found: dict[str, Message] = {_forms(each.id)[0]: each for each in written if each.id}
    assert found["Send"].string == "Senden"
    assert found["Delete this chat"].fuzzy
    assert found["{count} chat"].string == ("{count} Chat", "{count} Chats")
    assert {each.id for each in catalogs.lacking("de")} == {"Delete this chat", "New"}
    assert catalogs.is_current()
    before = catalogs.catalog_file("de").read_bytes()
    catalogs.update()
    assert catalogs.catalog_file("de").read_bytes() == before


def test_a_new_string_makes_the_template_out_of_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder(tmp_path, monkeypatch)
    assert not catalogs.is_current()
    monkeypatch.setattr(catalogs, "extracted", lambda: template("Send"))
    catalogs.update()
    assert catalogs.main(["--check"]) == 0
    monkeypatch.setattr(catalogs, "extracted", lambda: template("Send", "Keep"))
    assert catalogs.main(["--check"]) == 1
    assert "packaging/dev.py words" in capsys.readouterr().out


def test_two_plurals_of_one_string_are_refused(tmp_path: Path) -> None:
    source = 'trn("{count} chat", "{count} chats", 2)\n'
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "one.py").write_text(source, encoding="utf-8")
    (tmp_path / "app" / "two.py").write_text(
        source.replace("chats", "chats in all"), encoding="utf-8"
    )
    (tmp_path / "resources").mkdir()
    (tmp_path / "resources" / "catalog.json").write_text("{}", encoding="utf-8")
    with pytest.raises(catalogs.Clash, match="another plural"):
        catalogs.extracted(tmp_path)


def test_a_string_with_a_plural_and_without_is_refused(tmp_path: Path) -> None:
    source = 'tr("Stop the answer")\ntrn("Stop the answer", "Stop {count} answers", 2)\n'
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "one.py").write_text(source, encoding="utf-8")
    (tmp_path / "resources").mkdir()
    (tmp_path / "resources" / "catalog.json").write_text("{}", encoding="utf-8")
    with pytest.raises(catalogs.Clash, match="with a plural and without"):
        catalogs.extracted(tmp_path)


def test_no_string_is_marked_for_percent_formatting(tmp_path: Path) -> None:
    """The window's strings have braces only: "% o" in "{percent} % of" is no placeholder."""
    written = tmp_path / "tokonoma.pot"
    catalogs.write(written, catalogs.extracted())
    files = [catalogs.catalog_file(language) for language in catalogs.languages()]
    for path in (written, catalogs.TEMPLATE, *files):
        text = path.read_text(encoding="utf-8")
        assert "{percent} % of" in text
        assert not re.search(r"^#,.*\bpython-format", text, re.MULTILINE), path.name
