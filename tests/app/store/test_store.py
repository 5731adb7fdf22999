"""Store: conversations, message trees, streaming and drafts."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from app.domain.message import MessageState
from app.store.schema import RowNotFound
from app.store.store import Store
from app.store.unsent import unsent_of
from engine import Role

USER, ASSISTANT = Role.USER, Role.ASSISTANT


def begin(store, title="A title", text="A question"):
    """A conversation with one user message."""
    conversation = store.create_conversation(title)
    return conversation.id, store.add_message(conversation.id, None, USER, text).id


def crash(store):
    """Close the files as a killed process does: no merge of chunks, no checkpoint."""
    folder, name = store._path.parent, store._path.name
    files = [folder / (name + end) for end in ("", "-wal")]
    copies = {file: file.read_bytes() for file in files if file.exists()}
    store.close()
    for file, content in copies.items():
        file.write_bytes(content)


def texts(messages):
    return [message.text for message in messages]


def found(store, query):
    return [conversation.title for conversation in store.conversations(query)]


# --- conversations and messages ------------------------------------------------------------------


def test_written_rows_are_read_after_a_restart(path):
    store = Store.open(path)
    conversation, question = begin(store)
    answer = store.add_message(conversation, question, ASSISTANT, "An answer", model="bonsai")
    listed, branch = store.conversations(), store.branch(conversation)
    store.close()
    store = Store.open(path)
    assert store.conversations() == listed
    assert store.branch(conversation) == branch
    assert store.branch(conversation)[-1] == answer
    assert (answer.model, answer.state, answer.role) == ("bonsai", MessageState.COMPLETE, ASSISTANT)
    assert listed[0].branch_tip == answer.id
    store.close()


def test_the_last_active_conversation_comes_first(store):
    first, question = begin(store, "first")
    begin(store, "second")
    assert found(store, "") == ["second", "first"]
    store.add_message(first, question, ASSISTANT, "late")
    assert found(store, "") == ["first", "second"]


def test_renaming_changes_the_title_and_not_the_order(store):
    first, _ = begin(store, "first")
    begin(store, "second")
    store.rename(first, "renamed")
    assert found(store, "") == ["second", "renamed"]
    assert found(store, "renam") == ["renamed"]
    assert found(store, "first") == []


def test_a_deleted_conversation_can_be_restored_until_it_is_purged(store):
    one, _ = begin(store, "one")
    two, question = begin(store, "two", "searchable")
    store.set_draft(two, unsent_of("half a thought"))
    store.delete([one, two])
    assert store.conversations() == []
    assert found(store, "searchable") == []
    store.purge_deleted(older_than_seconds=3600)
    store.restore([two])
    assert found(store, "searchable") == ["two"]
    store.purge_deleted(older_than_seconds=-1)
    store.restore([one])
    assert found(store, "") == ["two"]
    store.delete([two])
    store.purge_deleted(older_than_seconds=-1)
    assert store.draft(two).text == ""
    with pytest.raises(RowNotFound, match="no longer exists"):
        store.append_text(question, "x")


def test_only_the_deleted_ones_of_the_conversations_to_purge_are_removed(store):
    kept, _ = begin(store, "kept")
    gone, _ = begin(store, "gone")
    other, _ = begin(store, "other")
    store.delete([gone, other])
    assert [each.title for each in store.trash()] == ["other", "gone"]
    store.purge([kept, gone])
    assert found(store, "") == ["kept"]
    assert [each.id for each in store.trash()] == [other]


def test_purged_text_is_no_longer_in_the_file(path):
    store = Store.open(path)
    conversation, _ = begin(store, "title", "xyzzy-secret " * 500)
    store.delete([conversation])
    store.purge_deleted(older_than_seconds=-1)
    store.close()
    assert b"xyzzy-secret" not in path.read_bytes()


def test_ids_of_purged_conversations_are_not_reused(store):
    conversation, question = begin(store)
    store.delete([conversation])
    store.purge_deleted(older_than_seconds=-1)
    again, asked = begin(store)
    assert again > conversation
    assert asked > question


def test_missing_row_raises_row_not_found(store):
    conversation, question = begin(store)
    for act in (
        lambda: store.rename(99, "x"),
        lambda: store.append_text(99, "x"),
        lambda: store.finish(99, MessageState.COMPLETE),
        lambda: store.select_sibling(99, 1),
        lambda: store.branch(99),
        lambda: store.set_draft(99, unsent_of("x")),
        lambda: store.add_message(99, None, USER, "x"),
        lambda: store.add_message(conversation, 99, USER, "x"),
        lambda: store.add_message(begin(store)[0], question, USER, "in another conversation"),
    ):
        with pytest.raises(RowNotFound, match="no longer exists") as raised:
            act()
        assert raised.value.remedy
    assert len(store.branch(conversation)) == 1


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a\0b\0", "a\0b\0"),
        ("lone \ud800 high", "lone \ufffd high"),
        ("low \udc00", "low \ufffd"),
        ("pair \ud83c\udf33", "pair \U0001f333"),
        ("\r\n\u2028\ufeff\u202e", "\r\n\u2028\ufeff\u202e"),
        ("'; DROP TABLE message; --", "'; DROP TABLE message; --"),
        ("", ""),
    ],
)
def test_any_text_is_stored_unchanged(store, text, kept):
    conversation = store.create_conversation(text)
    said = store.add_message(conversation.id, None, USER, text, model=text)
    streamed = store.add_message(conversation.id, said.id, ASSISTANT, "", MessageState.STREAMING)
    store.append_text(streamed.id, text)
    store.append_text(streamed.id, text)
    assert store.branch(conversation.id)[-1].text == kept * 2
    ended = store.finish(streamed.id, MessageState.FAILED, stop=text)
    store.set_draft(None, unsent_of(text))
    assert (ended.text, ended.stop, said.model) == (kept * 2, kept, kept)
    assert texts(store.branch(conversation.id)) == [kept, kept * 2]
    assert store.conversations()[0].title == kept
    assert store.draft(None).text == kept
    store.conversations(text)


def test_drafts_are_kept_for_each_conversation(path):
    store = Store.open(path)
    one, _ = begin(store)
    store.set_draft(None, unsent_of("not begun"))
    store.set_draft(one, unsent_of("first try"))
    store.set_draft(one, unsent_of("half a thought"))
    crash(store)
    store = Store.open(path)
    assert (store.draft(None).text, store.draft(one).text, store.draft(99).text) == (
        "not begun",
        "half a thought",
        "",
    )
    store.set_draft(one, unsent_of(""))
    assert store.draft(one).text == ""
    store.close()


# --- the tree ------------------------------------------------------------------------------------


def test_second_answer_is_stored_as_a_sibling(store):
    conversation, question = begin(store)
    first = store.add_message(conversation, question, ASSISTANT, "one").id
    follow = store.add_message(conversation, first, USER, "and then?").id
    second = store.add_message(conversation, question, ASSISTANT, "two").id
    assert [(m.sibling, m.siblings) for m in store.branch(conversation)] == [(1, 1), (2, 2)]
    assert texts(store.branch(conversation)) == ["A question", "two"]
    shown = store.select_sibling(second, -1)
    assert [message.id for message in shown] == [question, first, follow]
    assert (shown[1].sibling, shown[1].siblings) == (1, 2)
    assert (shown[0].sibling, shown[0].siblings) == (1, 1)


def test_selecting_stops_at_the_first_and_the_last(store):
    conversation, question = begin(store)
    answers = [store.add_message(conversation, question, ASSISTANT, str(n)).id for n in range(3)]
    assert store.select_sibling(answers[1], -9)[-1].id == answers[0]
    assert store.select_sibling(answers[0], -1)[-1].id == answers[0]
    assert store.select_sibling(answers[0], 9)[-1].id == answers[2]
    assert store.select_sibling(answers[2], 0)[-1].id == answers[2]


def test_selecting_a_branch_shows_its_last_used_leaf(store):
    conversation, question = begin(store)
    first = store.add_message(conversation, question, ASSISTANT, "one").id
    old = store.add_message(conversation, first, USER, "old").id
    new = store.add_message(conversation, first, USER, "new").id
    store.select_sibling(new, -1)
    other = store.add_message(conversation, None, USER, "edited question").id
    assert store.select_sibling(other, -1)[-1].id == old
    store.select_sibling(old, 1)
    store.select_sibling(question, 1)
    assert store.select_sibling(other, -1)[-1].id == new


class Trees(RuleBasedStateMachine):
    """Stateful test: the store and a dictionary must show the same branches."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "conversations.sqlite"
        self.store = Store.open(self.path)
        self.parents, self.texts, self.states, self.used = {}, {}, {}, {}
        self.homes, self.leaves, self.moment = {}, {}, 0

    def teardown(self):
        self.store.close()
        self.folder.cleanup()

    def show(self, conversation, message):
        self.moment += 1
        self.leaves[conversation] = message
        self.used[message] = self.moment

    def pick(self, data, states=None):
        known = [m for m, state in self.states.items() if states is None or state in states]
        return data.draw(st.sampled_from(known)) if known else None

    @rule()
    def create(self):
        self.leaves[self.store.create_conversation("t").id] = None

    @precondition(lambda self: self.leaves)
    @rule(
        data=st.data(),
        text=st.text(st.characters(codec="utf-8"), max_size=20),
        streaming=st.booleans(),
    )
    def add(self, data, text, streaming):
        conversation = data.draw(st.sampled_from(list(self.leaves)))
        inside = [m for m, home in self.homes.items() if home == conversation]
        parent = data.draw(st.sampled_from([None, *inside]))
        state = MessageState.STREAMING if streaming else MessageState.COMPLETE
        message = self.store.add_message(conversation, parent, USER, text, state)
        self.parents[message.id], self.homes[message.id] = parent, conversation
        self.texts[message.id] = text
        self.states[message.id] = state
        self.show(conversation, message.id)

    @rule(data=st.data(), piece=st.text(st.characters(codec="utf-8"), max_size=20))
    def append(self, data, piece):
        message = self.pick(data)
        if message is not None:
            self.store.append_text(message, piece)
            self.texts[message] += piece
            self.states[message] = MessageState.STREAMING

    @rule(
        data=st.data(),
        state=st.sampled_from([s for s in MessageState if s is not MessageState.STREAMING]),
    )
    def finish(self, data, state):
        message = self.pick(data, {MessageState.STREAMING})
        if message is not None:
            assert self.store.finish(message, state).text == self.texts[message]
            self.states[message] = state

    @rule(data=st.data(), step=st.integers(-3, 3))
    def select(self, data, step):
        message = self.pick(data)
        if message is None:
            return
        home = self.homes[message]
        siblings = self.siblings(message)
        chosen = siblings[min(max(siblings.index(message) + step, 0), len(siblings) - 1)]
        below = [
            m for m in self.parents if chosen in self.ancestry(m) and m not in self.parents.values()
        ]
        self.show(home, max(below, key=lambda m: self.used[m]))
        assert [m.id for m in self.store.select_sibling(message, step)] == self.branch(home)

    @rule(crashing=st.booleans())
    def restart(self, crashing):
        crash(self.store) if crashing else self.store.close()
        self.store = Store.open(self.path)
        for message, state in self.states.items():
            if state is MessageState.STREAMING:
                self.states[message] = MessageState.INTERRUPTED

    def ancestry(self, message):
        chain = []
        while message is not None:
            chain.append(message)
            message = self.parents[message]
        return chain

    def branch(self, conversation):
        return self.ancestry(self.leaves[conversation])[::-1]

    def siblings(self, message):
        key = self.homes[message], self.parents[message]
        return [m for m in sorted(self.parents) if (self.homes[m], self.parents[m]) == key]

    @invariant()
    def branches_agree(self):
        for conversation in self.leaves:
            shown = self.store.branch(conversation)
            assert [m.id for m in shown] == self.branch(conversation)
            for message in shown:
                siblings = self.siblings(message.id)
                assert message.text == self.texts[message.id]
                assert message.state is self.states[message.id]
                assert message.sibling == siblings.index(message.id) + 1
                assert message.siblings == len(siblings)


Trees.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestTreesBehaveAsADictionaryDoes = Trees.TestCase


# --- streaming -----------------------------------------------------------------------------------


def test_streaming_message_includes_its_chunks(store):
    conversation, question = begin(store)
    answer = store.add_message(conversation, question, ASSISTANT, "", MessageState.STREAMING).id
    for piece in ("One", " tree", "", " grows"):
        store.append_text(answer, piece)
    assert texts(store.branch(conversation)) == ["A question", "One tree grows"]
    ended = store.finish(
        answer, MessageState.STOPPED, prompt_tokens=7, generated_tokens=3, seconds=1.5
    )
    assert ended == store.branch(conversation)[-1]
    assert (ended.text, ended.state) == ("One tree grows", MessageState.STOPPED)
    assert (ended.prompt_tokens, ended.generated_tokens, ended.seconds) == (7, 3, 1.5)


def test_finishing_moves_the_conversation_to_the_top(store):
    first, question = begin(store, "first")
    answer = store.add_message(first, question, ASSISTANT, "", MessageState.STREAMING).id
    begin(store, "second")
    store.append_text(answer, "x")
    assert found(store, "") == ["second", "first"]
    store.finish(answer, MessageState.COMPLETE)
    assert found(store, "") == ["first", "second"]


def test_streaming_message_is_marked_interrupted_after_a_crash(path):
    store = Store.open(path)
    conversation, question = begin(store)
    answer = store.add_message(conversation, question, ASSISTANT, "Once", MessageState.STREAMING)
    for piece in (" upon", " a \0", " wintertime"):
        store.append_text(answer.id, piece)
    crash(store)
    store = Store.open(path)
    left = store.branch(conversation)[-1]
    assert (left.text, left.state) == ("Once upon a \0 wintertime", MessageState.INTERRUPTED)
    assert texts(store.branch(conversation))[0] == "A question"
    assert found(store, "wintertime") == ["A title"]
    store.close()


def test_crash_during_a_continued_answer_keeps_all_text(path):
    store = Store.open(path)
    conversation, question = begin(store)
    answer = store.add_message(conversation, question, ASSISTANT, "", MessageState.STREAMING).id
    store.append_text(answer, "first half")
    store.finish(answer, MessageState.STOPPED)
    store.append_text(answer, ", second half")
    assert store.branch(conversation)[-1].state is MessageState.STREAMING
    crash(store)
    store = Store.open(path)
    last = store.branch(conversation)[-1]
    assert (last.text, last.state) == ("first half, second half", MessageState.INTERRUPTED)
    assert found(store, "second") == ["A title"]
    store.close()


def test_two_answers_may_stream_at_once(store):
    conversation, question = begin(store)
    one, two = (
        store.add_message(conversation, question, ASSISTANT, "", MessageState.STREAMING).id
        for _ in range(2)
    )
    for _ in range(3):
        store.append_text(one, "a")
        store.append_text(two, "b")
    assert store.finish(one, MessageState.COMPLETE).text == "aaa"
    assert store.branch(conversation)[-1].id == two
    assert store.branch(conversation)[-1].text == "bbb"
