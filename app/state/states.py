"""All observable states in one value: the window reads them, the controllers change them."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.state.adapters import AdapterState
from app.state.attachments import AttachmentsState
from app.state.chat import State
from app.state.chat_settings import ChatSettingsState
from app.state.collections import CollectionsState
from app.state.connections import ConnectionsState
from app.state.encoder import EncoderState
from app.state.gpu import GPUState
from app.state.indexing import IndexingState
from app.state.library import LibraryState
from app.state.performance import PerformanceState
from app.state.pictures import PicturesState
from app.state.presets import PresetState
from app.state.server import ServerState
from app.state.snapshots import SessionState
from app.state.snippets import SnippetState
from app.state.tool_servers import ToolServersState
from app.state.tools import ToolsState
from app.state.transfer import TransferState
from app.state.updates import UpdateState


@dataclass(frozen=True, slots=True)
class States:
    """One observable for each part of the window."""

    chat: State = field(default_factory=State)
    library: LibraryState = field(default_factory=LibraryState)
    encoder: EncoderState = field(default_factory=EncoderState)
    adapters: AdapterState = field(default_factory=AdapterState)
    sessions: SessionState = field(default_factory=SessionState)
    performance: PerformanceState = field(default_factory=PerformanceState)
    transfer: TransferState = field(default_factory=TransferState)
    chat_settings: ChatSettingsState = field(default_factory=ChatSettingsState)
    snippets: SnippetState = field(default_factory=SnippetState)
    presets: PresetState = field(default_factory=PresetState)
    connections: ConnectionsState = field(default_factory=ConnectionsState)
    server: ServerState = field(default_factory=ServerState)
    attachments: AttachmentsState = field(default_factory=AttachmentsState)
    pictures: PicturesState = field(default_factory=PicturesState)
    indexing: IndexingState = field(default_factory=IndexingState)
    gpu: GPUState = field(default_factory=GPUState)
    collections: CollectionsState = field(default_factory=CollectionsState)
    tools: ToolsState = field(default_factory=ToolsState)
    tool_servers: ToolServersState = field(default_factory=ToolServersState)
    updates: UpdateState = field(default_factory=UpdateState)
