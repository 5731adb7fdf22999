"""Answers from documents that take several requests: which kind an answer is, if it is one."""

from __future__ import annotations

from dataclasses import replace

from app.chat.documents.long_documents import (
    Door,
    door_elsewhere,
    door_here,
    long_elsewhere,
    long_here,
)
from app.chat.documents.table_request import TableRequest, table_request
from app.chat.requests.running_answer import QueuedAnswer
from app.domain.answer_request import AnswerRequest
from app.domain.message import Message
from app.domain.model_ref import Remote
from app.domain.parts import without_error
from app.engines.client import EngineClient
from app.engines.remote_client import RemoteClient
from app.engines.run import AnswerRun
from app.state.chat import State
from engine import Chat


def answer_here(
    state: State, engine: EngineClient, job: QueuedAnswer, command: Chat
) -> AnswerRun | None:
    """The run of an answer of the engine in this process; None: it is one request.

    Nothing is made of parts of documents by calling tools.
    """
    command = replace(command, tools=())
    if asked := table_request(_messages(state, job), without_error(job.parts)):
        return _from_tables(asked, door_here(state, engine, command))
    return long_here(state, engine, job, command)


def answer_elsewhere(
    state: State, client: RemoteClient, job: QueuedAnswer, model: Remote, request: AnswerRequest
) -> AnswerRun | None:
    """The run of an answer of an engine elsewhere; None: it is one request."""
    request = replace(request, tools=())
    if asked := table_request(_messages(state, job), without_error(job.parts)):
        return _from_tables(asked, door_elsewhere(state, client, model, request))
    return long_elsewhere(state, client, job, model, request)


def _from_tables(asked: TableRequest, door: Door) -> AnswerRun:
    from app.chat.documents.table_answers import (
        TableAnswer,  # with what reads tables, which no start needs
    )

    return TableAnswer(asked, door)


def _messages(state: State, job: QueuedAnswer) -> list[Message]:
    """The messages of a branch before the answer."""
    found = (state.message(id) for id in job.branch.messages[:-1])
    return [message for message in found if message is not None]
