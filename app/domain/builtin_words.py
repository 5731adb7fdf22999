"""Words of the built-in tools for the window: their titles, and what each does in one line."""

from __future__ import annotations

from app.system.translation import tr

NAMES = (
    "calculate",
    "date_and_time",
    "read_file",
    "list_folder",
    "write_file",
    "search_documents",
    "search_chats",
    "fetch_page",
    "search_web",
    "run_python",
)


def title_of(name: str) -> str:
    """The title of the built-in tool with this name, which no other tool can have; "": none has it."""
    match name:
        case "calculate":
            return tr("Calculator")
        case "date_and_time":
            return tr("Date and time")
        case "read_file":
            return tr("Read a file")
        case "list_folder":
            return tr("List a folder")
        case "write_file":
            return tr("Write a file")
        case "search_documents":
            return tr("Search the chat's documents")
        case "search_chats":
            return tr("Search all chats")
        case "fetch_page":
            return tr("Open a web page")
        case "search_web":
            return tr("Search the web")
        case "run_python":
            return tr("Run Python")
        case _:
            return ""


def about_of(name: str) -> str:
    """Description of a built-in tool for the user, translated; the model's is in English."""
    match name:
        case "calculate":
            return tr("Calculates exactly, also with units.")
        case "date_and_time":
            return tr("Tells the date and time, and counts days.")
        case "read_file":
            return tr("Reads files that you picked for this chat.")
        case "list_folder":
            return tr("Lists folders that you picked for this chat.")
        case "write_file":
            return tr("Writes text files into folders that you picked.")
        case "search_documents":
            return tr("Finds passages in this chat's documents.")
        case "search_chats":
            return tr("Finds messages in all your chats.")
        case "fetch_page":
            return tr("Reads one page of the web by its address.")
        case "search_web":
            return tr("Searches with the service of your choice.")
        case "run_python":
            return tr("Runs programs without files or network.")
        case _:
            return ""
