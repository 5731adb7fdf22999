"""Search: folding of case and accents, any query without errors."""

import random
import sqlite3
from contextlib import closing

import pytest

from app.domain.message import MessageState
from app.store import schema
from app.store.store import Store
from engine import Role

USER, ASSISTANT = Role.USER, Role.ASSISTANT


def begin(store, title="A title", text="A question"):
    """A conversation with one user message."""
    conversation = store.create_conversation(title)
    return conversation.id, store.add_message(conversation.id, None, USER, text).id


def found(store, query):
    return [conversation.title for conversation in store.conversations(query)]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("The Quick brown fox", "quick"),
        ("The Quick brown fox", "FOX the"),
        ("The Quick brown fox", '"quick brown" the'),
        ("one line\nthe next", '"line the next"'),
        ('a 5" screen', '5"'),
        ("It\u2019s ready: \u201cgreen\u201d", "it's"),
        ("It's ready", "it\u2019s"),
        ("It\u2019s ready: \u201cgreen\u201d", '"green"'),
        ("re\u00adstart, zero\u200bwidth, word\u2060joiner", "restart zerowidth wordjoiner"),
        ("non\u2011stop \u2013 always", "non-stop - always"),
        ("The Quick brown fox", "row"),
        ("The Quick brown fox", "q"),
        ("Crème brûlée à la carte", "creme brulee"),
        ("creme brulee", "CRÈME"),
        ("Straße", "strasse"),
        ("Đặng Łódź Ørsted", "dang lodz orsted"),
        ("ΑΘΉΝΑ", "αθηνα"),
        ("Ёлка", "елка"),
        ("我喜欢喝绿茶", "茶"),
        ("我喜欢喝绿茶", "绿茶"),
        ("我喜欢喝绿茶", "喜欢喝"),
        ("盆栽を飾る", "盆"),
        ("ﾎﾞﾝｻｲ", "ボンサイ"),
        ("한국어 문장", "국어"),
        ("مَرْحَبًا بالعالم", "مرحبا"),
        ("العـــربية", "العربية"),
        ("שָׁלוֹם", "שלום"),
        ("हिन्दी में", "हिन्दी"),
        ("tree \U0001f333", "\U0001f333"),
        ("100%_sure", "0%_s"),
        ("a 100% b", "%"),
        ("snake_case", "_"),
        ('say "hello" AND wave*', '"hello"'),
        ('say "hello" AND wave*', "AND wave*"),
        ("C:\\path\\file", "\\path\\"),
        ("before\0after", "after"),
        ("it's", "it's"),
    ],
)
def test_search_finds(store, text, query):
    begin(store, "in the text", text)
    begin(store, text, "in the title")
    begin(store, "neither", "nor")
    assert found(store, query) == [text, "in the text"]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("かき", "がき"),  # voiced kana are other letters
        ("abc", "a_c"),
        ("abc", "a%c"),
        ("abcdef", "abc_ef"),
        ("abc", "ab*"),
        ("one two", "one three"),
    ],
)
def test_search_treats_wildcards_literally(store, text, query):
    begin(store, "title", text)
    assert found(store, query) == []


@pytest.mark.parametrize(
    "query",
    [
        '"',
        "*",
        "AND",
        "NOT (",
        "a NEAR b",
        "\0",
        "\ud800",
        "'",
        "%",
        "x" * 100_000,
        "x " * 5000,
        "-",
    ],
)
def test_no_query_raises(store, query):
    begin(store)
    store.conversations(query)


@pytest.mark.parametrize("query", ["", " ", "\t\n", "\u3000"])
def test_an_empty_query_lists_everything(store, query):
    begin(store)
    assert found(store, query) == ["A title"]


def test_search_covers_all_branches_and_messages(store):
    conversation, question = begin(store, "Gardening", "about maples")
    first = store.add_message(conversation, question, ASSISTANT, "hidden pinecone").id
    store.add_message(conversation, question, ASSISTANT, "shown branch")
    assert found(store, "pinecone") == ["Gardening"]
    assert found(store, "gardening maples pinecone shown") == ["Gardening"]
    assert store.select_sibling(first, 0)[-1].id == first


def test_only_finished_messages_are_indexed(store):
    conversation, question = begin(store)
    answer = store.add_message(conversation, question, ASSISTANT, "", MessageState.STREAMING).id
    store.append_text(answer, "chrysanthemum")
    assert found(store, "chrysanthemum") == []
    store.finish(answer, MessageState.COMPLETE)
    assert found(store, "chrysanthemum") == ["A title"]


def hits(store, query):
    return store.hits(query, [conversation.id for conversation in store.conversations(query)])


def hit(store, query):
    """The message and the snippet of the only result."""
    (result,) = hits(store, query).values()
    return result.message, result.snippet


def test_hit_is_the_newest_message_with_the_most_words(store):
    conversation, first = begin(store, text="green tea")
    second = store.add_message(conversation, first, ASSISTANT, "tea is green").id
    third = store.add_message(conversation, second, USER, "tea").id
    assert hit(store, "tea") == (third, "tea")
    assert hit(store, "tea GREEN") == (second, "tea is green")
    assert hit(store, "tea title") == (third, "tea")


def test_title_alone_has_no_hit(store):
    begin(store, "About tea", "A question")
    assert found(store, "tea") == ["About tea"]
    assert hits(store, "tea") == {}
    assert hits(store, "  ") == {}


def test_snippet_begins_shortly_before_the_first_word(store):
    filler = "word " * 100
    begin(store, text=f"# Title\n\n{filler}\n\n- **Green** `tea` é \U0001f333 here {filler}")
    _, snippet = hit(store, "tea")
    assert snippet.startswith("…word Green tea é \U0001f333 here word")
    assert len(snippet) <= 161


def test_snippet_of_wide_characters_and_of_thoughts(store):
    conversation, _ = begin(store, text="\U0001f333" * 50)
    store.add_message(
        conversation, None, ASSISTANT, "<think>\n" + "plan " * 9 + "needle </think>A **plan**."
    )
    _, snippet = hit(store, "needle")
    assert snippet == "…plan plan plan needle A plan."


def test_branch_with_a_message_is_shown(store):
    conversation, question = begin(store, text="question")
    one = store.add_message(conversation, question, ASSISTANT, "one").id
    more = store.add_message(conversation, one, USER, "more").id
    two = store.add_message(conversation, question, ASSISTANT, "two").id

    def shown(message):
        return [each.id for each in store.show_branch(conversation, message)]

    assert shown(question) == [question, two]
    assert shown(one) == [question, one, more]
    assert shown(more) == [question, one, more]
    assert shown(two) == [question, two]
    store.delete_message(two)
    assert shown(two) == [question, one, more]


def test_a_quoted_phrase_is_found_as_a_whole(store):
    begin(store, "Right", "the quick brown fox")
    begin(store, "Wrong", "a brown dog is quick, and a fox too")
    assert set(found(store, "quick brown fox")) == {"Right", "Wrong"}
    assert found(store, '"quick brown" fox') == ["Right"]
    assert found(store, "\u201cquick brown\u201d") == ["Right"]
    hits = store.hits('"quick brown"', [c.id for c in store.conversations()])
    assert [hit.snippet for hit in hits.values()] == ["the quick brown fox"]


def test_texts_of_an_older_version_are_found_with_the_quotes_of_a_keyboard(tmp_path, monkeypatch):
    path = tmp_path / "conversations.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        schema.prepare(database)
        database.create_function("fold", 1, lambda text: text.lower())  # of that version
        schema.migrate(database, 9)
        database.execute(
            "INSERT INTO conversation VALUES (1,'It\u2019s','it\u2019s',1,1,NULL,NULL,0,'')"
        )
        database.execute("INSERT INTO search(rowid, folded) VALUES (1, 're\u00adstart it\u2019s')")
    with closing(Store.open(path)) as store:
        assert found(store, "it's") == ["It\u2019s"]
        folded = store._database.execute("SELECT folded FROM search").fetchone()
        assert folded == ("restart it's",)


def test_any_words_are_found_as_by_reading_everything(store):
    """Words and phrases of few letters, so that most trigrams are in most texts."""
    choose = random.Random(5)
    texts: dict[str, list[str]] = {}
    for number in range(40):
        said = ["".join(choose.choices('ab "\n%_', k=choose.randrange(1, 30))) for _ in range(4)]
        title = f"Chat {number}"
        conversation, parent = begin(store, title, said[0])
        for text in said[1:]:
            parent = store.add_message(conversation, parent, ASSISTANT, text).id
        texts[title] = [title.lower(), *(text.replace("\n", " ") for text in said)]
    for _ in range(300):
        words = ["".join(choose.choices("ab %_", k=choose.randrange(1, 7))).strip() for _ in "abc"]
        words = [" ".join(word.split()) for word in words[: choose.randrange(1, 4)] if word]
        query = " ".join(f'"{word}"' for word in words)
        expected = [
            title
            for title, places in texts.items()
            if all(any(word in place for place in places) for word in words)
        ]
        assert sorted(found(store, query)) == sorted(expected), query
