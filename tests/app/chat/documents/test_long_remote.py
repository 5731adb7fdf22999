"""A long document by a server of the user: no token counts, a smaller context, errors, cuts."""

from __future__ import annotations

import pytest

from app.domain.documents import Reads
from app.domain.message import Message, MessageState
from app.domain.parts import FilePart, SectionPart, TextPart, rewritten_text
from app.domain.remote_fault import RemoteFault, RemoteFaultKind
from app.state.faults import explain
from app.ui.transcript.message.message_tools import tools_for
from hostile_server import Reply, Server, Step, answer, chunk, error, stream
from long_stage import document, read_part
from remote_stage import Elsewhere

TEXT = document(1500)  # about three parts of a context of 4,096 tokens


@pytest.fixture
def window(window: Elsewhere) -> Elsewhere:
    window.use()
    return window


def ask(window: Elsewhere, reads: Reads = Reads.SUMMARY) -> Message:
    """Send the document; returns the answer once it has ended."""
    file = FilePart("a.txt", TEXT, reads=reads)
    assert window.controller.send((file, TextPart("Summarise this.")))
    return ended(window)


def ended(window: Elsewhere) -> Message:
    window.until(lambda: window.state.messages[-1].state is not MessageState.STREAMING)
    return window.ended()


def questions(server: Server) -> list[str]:
    return [each["messages"][-1]["content"] for each in server.asked]


def sections(message: Message) -> list[SectionPart]:
    return [part for part in message.parts if isinstance(part, SectionPart)]


def whole(message: Message) -> str:
    """What was read, without what parts have in common."""
    return "".join("".join(TEXT[part.start : part.end].split()) for part in sections(message))


def test_a_server_that_counts_no_tokens(window: Elsewhere, server: Server) -> None:
    server.chat(answer("A part."))
    found = ask(window)
    assert found.state is MessageState.COMPLETE
    assert found.text == "A part."
    assert whole(found) == "".join(TEXT.split())
    assert len(questions(server)) == len(sections(found)) + 1
    assert found.prompt_tokens == 0


def test_what_a_server_counts_is_the_sum_and_the_meter_is_of_the_chat(
    window: Elsewhere, server: Server
) -> None:
    usage = {"prompt_tokens": 900, "completion_tokens": 5}
    server.chat(answer("A part.", usage=usage))
    found = ask(window)
    requests = len(questions(server))
    assert found.prompt_tokens == 900 * requests
    assert found.generated_tokens == 5 * requests
    assert 0 < window.state.context_used < 100


def test_a_server_whose_context_is_smaller_than_it_says(window: Elsewhere, server: Server) -> None:
    words = "This model's maximum context length is 2048 tokens, however you requested 3900 tokens."
    server.chat(error(words, 400, "context_length_exceeded"), answer("A part."))
    found = ask(window)
    assert found.state is MessageState.COMPLETE
    assert whole(found) == "".join(TEXT.split())
    first, second, *_ = questions(server)
    assert len(second) < 0.6 * len(first)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (stream(chunk("Half of"), {"error": {"message": "CUDA error"}}), RemoteFaultKind.SERVER),
        (stream(chunk("Half of"), Step.RESET), RemoteFaultKind.CUT),
        (stream(chunk("Half of"), Step.CLOSE), RemoteFaultKind.CUT),
        (error("out of memory", 500), RemoteFaultKind.SERVER),
    ],
)
@pytest.mark.parametrize("reads", [Reads.SUMMARY, Reads.REWRITE])
def test_a_part_that_fails_is_one_sentence_and_it_goes_on_there(
    window: Elsewhere, server: Server, fault: Reply, kind: RemoteFaultKind, reads: Reads
) -> None:
    server.chat(answer("First."), fault)
    found = ask(window, reads)
    assert found.state is MessageState.FAILED
    assert [part.text for part in sections(found)] == ["First."]
    assert found.error is not None
    assert isinstance(found.error.fault, RemoteFault)
    assert found.error.fault.kind is kind
    assert explain(found.error.fault, found.error.file, found.error.message).sentence
    assert "continue" in {tool.name for tool in tools_for(found, busy=False)}
    failed = questions(server)[-1]
    server.chat(answer("More."))
    window.controller.continue_answer(found.id)
    found = ended(window)
    assert found.state is MessageState.COMPLETE
    assert found.error is None
    again = questions(server)[questions(server).index(failed) + 1]
    assert read_part(again).split()[0] == read_part(failed).split()[0]
    assert whole(found) == "".join(TEXT.split())
    if reads is Reads.REWRITE:
        assert rewritten_text(found.parts).startswith("First.\n\nMore.")
    else:
        assert found.text == "More."


def test_stopping_closes_the_connection_of_the_part(window: Elsewhere, server: Server) -> None:
    server.chat(answer("First."), stream(chunk("Half"), Step.HOLD))
    file = FilePart("a.txt", TEXT, reads=Reads.SUMMARY)
    assert window.controller.send((file, TextPart("Summarise this.")))
    window.until(lambda: len(server.asked) == 2)
    window.controller.stop()
    found = ended(window)
    assert found.state is MessageState.STOPPED
    assert [part.text for part in sections(found)] == ["First."]
    assert server.received[-1].gone.wait(10)


def test_a_server_that_cuts_prompts_without_a_word(window: Elsewhere, server: Server) -> None:
    server.chat(
        answer("The end of it.", usage={"prompt_tokens": 2048, "completion_tokens": 4}),
        answer("A part.", usage={"prompt_tokens": 1500, "completion_tokens": 4}),
    )
    found = ask(window)
    assert found.state is MessageState.COMPLETE
    assert {part.text for part in sections(found)} == {"A part."}
    assert whole(found) == "".join(TEXT.split())
