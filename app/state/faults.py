"""Faults of models as sentences for the window.

The engine reports a code with parameters and the exact technical text. The window shows a short
sentence made of the code; the technical text is its detail. The store keeps the code, as an
`ErrorPart`.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.documents import NO_QUERY, NO_TABLE, SearchFault
from app.domain.remote_fault import RemoteFault
from app.state.remote_faults import remote_words
from app.system.byte_size import size
from app.system.translation import number, sentences, tr
from engine import BlindReason, Fault, FaultKind, FileLook


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a fault means for the user, what to do, and the technical text if it says more."""

    sentence: str
    remedy: str = ""
    detail: str = ""

    @property
    def text(self) -> str:
        """The sentence and the remedy on one line."""
        return sentences(self.sentence, self.remedy)


def explain(
    fault: Fault | RemoteFault | SearchFault | None, file: str, message: str, remedy: str = ""
) -> Explanation:
    """Explain a fault of the model `file`; `message` and `remedy` are the engine's."""
    found = None
    if isinstance(fault, RemoteFault):
        return Explanation(*remote_words(fault), detail=message)
    if isinstance(fault, SearchFault) and fault.kind == NO_TABLE:
        return Explanation(
            tr("There is no table in the documents of this question."),
            tr("Attach a file with a table, or choose “All of it” on the card of the file."),
        )
    if isinstance(fault, SearchFault) and fault.kind == NO_QUERY:
        return Explanation(
            tr("The model wrote no query that fits the table."),
            tr("Name the columns in the question, or choose another model."),
            fault.about,
        )
    if isinstance(fault, SearchFault):
        return Explanation(
            tr("The documents could not be searched."),
            tr("Try again, or let the model answer without passages."),
            fault.about,
        )
    if fault is not None:
        found = (
            _file_words(fault, file)
            or _run_words(fault, file)
            or picture_words(fault, file)
            or _saved_words(fault)
        )
    if found is None:
        return Explanation(message, remedy)
    return Explanation(*found, detail=sentences(message, remedy))


def _file_words(fault: Fault, file: str) -> tuple[str, str] | None:
    """Sentence and remedy for a file that is no usable model."""
    another = tr("Choose another version of this model, such as Q4_K_M or Q8_0.")
    match fault.kind:
        case FaultKind.NO_FILE:
            return tr("{file} was not found.", file=file), tr("It may have been moved or deleted.")
        case FaultKind.NOT_A_FILE:
            return tr("{file} is not a file.", file=file), tr("Choose a GGUF file.")
        case FaultKind.UNREADABLE:
            text = tr("{file} cannot be read: {reason}.", file=file, reason=fault.about)
            return text, tr("Check its permissions and its disk.")
        case FaultKind.NOT_A_MODEL:
            return _look_words(fault.about, file)
        case FaultKind.OTHER_TYPE:
            return _type_words(fault.about, file)
        case FaultKind.INCOMPLETE:
            return tr("{file} is incomplete.", file=file), tr("Download it again.")
        case FaultKind.DAMAGED:
            text = tr("{file} is damaged.", file=file)
            return text, tr("Download it again, or choose another copy.")
        case FaultKind.PART_MISSING:
            text = tr("This model is in several files, and {part} is missing.", part=fault.about)
            return text, tr("Download all of them into the same folder.")
        case FaultKind.ARCHITECTURE:
            text = tr("{file} is a {family} model, which is not supported yet.",
                      file=file, family=fault.about)  # fmt: skip
            if fault.nearest:
                return text, tr("Nearest are {family}; choose one of these.", family=fault.nearest)
            return text, tr("Choose a model of another family, such as Llama, Qwen or Gemma.")
        case FaultKind.FORMAT:
            text = tr("{file} uses the format {format}, which is not supported.",
                      file=file, format=fault.about)  # fmt: skip
            return text, another
        case FaultKind.ADAPTER:
            text = tr("{file} is an adapter of a kind that is not supported yet.", file=file)
            return text, tr("Choose a plain LoRA adapter.")
        case FaultKind.NO_ADAPTER:
            text = tr("{file} is not an adapter.", file=file)
            return text, tr("Choose a GGUF adapter or a PEFT folder.")
        case FaultKind.OTHER_MODEL:
            text = tr("{file} was made for another model.", file=file)
            return text, tr("Choose an adapter made for the model in use.")
        case FaultKind.UNSUPPORTED:
            return tr("{file} is a variant that is not supported yet.", file=file), another
        case _:
            return None


def _look_words(look: str, file: str) -> tuple[str, str]:
    again = tr("Download it again.")
    match look:
        case FileLook.EMPTY:
            return tr("{file} is empty.", file=file), again
        case FileLook.ZEROS:
            return tr("{file} has no content yet.", file=file), again
        case FileLook.LFS_POINTER:
            text = tr("{file} only points to the model (Git LFS).", file=file)
            return text, tr("Download the model itself.")
        case FileLook.WEB_PAGE:
            return tr("{file} is not a model file (it looks like a web page).", file=file), again
        case FileLook.GGML:
            text = tr("{file} is in the old GGML format, which is not supported.", file=file)
            return text, tr("Choose a GGUF file of this model.")
        case _:
            pass
    kind = _kind_words(look)
    text = (
        tr("{file} is not a model file (it looks like {kind}).", file=file, kind=kind)
        if kind
        else tr("{file} is not a model file.", file=file)
    )
    return text, tr("Choose a GGUF file.")


def _kind_words(look: str) -> str:
    match look:
        case FileLook.ZIP:
            return tr("a ZIP archive or a PyTorch checkpoint")
        case FileLook.SAFETENSORS:
            return tr("a safetensors file")
        case FileLook.JPEG:
            return tr("a JPEG image")
        case FileLook.PNG:
            return tr("a PNG image")
        case FileLook.PDF:
            return tr("a PDF document")
        case FileLook.TEXT:
            return tr("a text file")
        case _:
            return ""


def _type_words(kind: str, file: str) -> tuple[str, str]:
    match kind:
        case "adapter":
            text = tr("{file} is an adapter, not a model.", file=file)
            return text, tr("Load its model, then add this file under Adapters.")
        case "mmproj":
            text = tr("{file} only adds image or audio input to a model.", file=file)
            return text, tr("Choose the file of the model itself.")
        case "vocabulary":
            text = tr("{file} has only a vocabulary.", file=file)
            return text, tr("Choose a complete model.")
        case "no vocabulary":
            text = tr("{file} has no vocabulary that can be read; it cannot chat.", file=file)
            return text, tr("Choose a model that was made to chat.")
        case "embeddings" | "reranker":
            text = tr("{file} compares or rates texts (embeddings); it cannot chat.", file=file)
            return text, tr("Choose a model that was made to chat.")
        case _:
            return tr("{file} is not a model.", file=file), tr("Choose the file of a model.")


def _run_words(fault: Fault, file: str) -> tuple[str, str] | None:
    """Sentence and remedy for a model or a chat that does not fit."""
    close = tr("Close other programs, or choose a smaller model.")
    needed, available = size(fault.needed_bytes), size(fault.available_bytes)
    wanted, most = number(fault.context), number(fault.most_context)
    match fault.kind:
        case FaultKind.NOT_LOADED:
            return tr("{file} is not loaded.", file=file), tr("Choose another model.")
        case FaultKind.MEMORY if fault.needed_bytes:
            text = tr("{file} needs {needed} of memory; {available} is free.",
                      file=file, needed=needed, available=available)  # fmt: skip
            return text, close
        case FaultKind.MEMORY:
            return tr("This computer ran out of memory."), close
        case FaultKind.CONTEXT:
            text = tr("A context of {count} tokens needs {needed} of memory; {available} is free.",
                      count=wanted, needed=needed, available=available)  # fmt: skip
            return text, tr("Choose {count} tokens or fewer, or close other programs.", count=most)
        case FaultKind.CHAT_FULL:
            return (
                tr("This chat is full ({count} tokens).", count=most),
                tr("Start a new chat, or choose a longer context in the model's settings."),
            )
        case FaultKind.MESSAGE_TOO_LONG:
            text = tr("This message is too long: {count} tokens, and the model can take in {most}.",
                      count=wanted, most=most)  # fmt: skip
            return text, tr("Shorten it, or choose a longer context in the model's settings.")
        case FaultKind.TEMPLATE:
            return (
                tr("The chat template of this model cannot write this chat."),
                tr("Start a new chat, or choose another model."),
            )
        case _:
            return None


def picture_words(fault: Fault, file: str) -> tuple[str, str] | None:
    """Sentence and remedy for a picture that is not read, or a model that sees none."""
    match fault.kind, fault.about:
        case FaultKind.PICTURE, "missing":
            text = tr("A picture of this chat was not found.")
            return text, tr("Add it again, or remove it from its message.")
        case FaultKind.PICTURE, "large":
            text = tr("A picture of this chat is too large to read.")
            return text, tr("Make it smaller in another program, and add it again.")
        case FaultKind.PICTURE, _:
            text = tr("A picture of this chat is damaged or cannot be read.")
            return text, tr("Add it again, or remove it from its message.")
        case FaultKind.NO_SIGHT, BlindReason.MEMORY.value:
            text = tr("There is not enough memory for {model} to read images.", model=file)
            return text, tr("Close other programs and load it again, or choose a smaller model.")
        case FaultKind.NO_SIGHT, BlindReason.ENCODER.value:
            text = tr("The picture file (mmproj) beside {model} does not fit it.", model=file)
            return text, tr("Replace it by the one that is published with the model.")
        case FaultKind.NO_SIGHT, BlindReason.DAMAGED.value:
            text = tr("The picture file (mmproj) beside {model} is damaged.", model=file)
            return text, tr("Download it again, and load the model again.")
        case FaultKind.NO_SIGHT, _:
            text = tr("{model} cannot read images.", model=file)
            return text, tr("Remove them, or choose a model that can.")
        case _:
            return None


def _saved_words(fault: Fault) -> tuple[str, str] | None:
    """Sentence for a chat that must be reread, because nothing saved of it can be used."""
    first = tr("The model rereads it first.")
    match fault.kind:
        case FaultKind.SAVED_MODEL if fault.about:
            return tr("This chat was last written with {model}.", model=fault.about), first
        case FaultKind.SAVED_MODEL:
            return tr("This chat was last written with another model."), first
        case FaultKind.SAVED_ADAPTERS:
            return tr("The adapters have changed since this chat was written."), first
        case FaultKind.SAVED_CACHE:
            return tr("The context memory has been changed in the settings."), first
        case FaultKind.SAVED_COMPUTATION:
            return tr("The model ran with another context size or device then."), first
        case FaultKind.SAVED_LENGTH:
            return tr("This chat is longer than the model's context is now."), first
        case FaultKind.SAVED_VERSION:
            return tr("This chat was last written with another version of Tokonoma."), first
        case FaultKind.SAVED_DAMAGED:
            return tr("What was saved to resume this chat is damaged."), first
        case _:
            return None
