"""Links to models as people copy them: addresses, names, and the commands of other programs."""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import dataclass

from app.net.http import WebError, check_address
from app.net.hub import HUB, REPOSITORY, HubError, Source
from app.system.translation import tr

_HUB_HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co", "www.hf.co")
_TAG = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)  # a quantization: "Q4_K_M", "latest"
# The word of a command that names a repository follows it, with its file or quantization:
# "ollama run hf.co/owner/name:Q4_K_M", "llama-server -hf owner/name:Q4_K_M",
# "--hf-repo owner/name --hf-file model.gguf", "hf download owner/name model.gguf".
_COMMAND = re.compile(
    r"(?:ollama|llama|llama-[\w-]+|lms|hf|huggingface-cli|docker|ramalama|jan|\S*/llama-[\w-]+)"
    r"(?:\.exe)?\s",
)
_FILE_OPTIONS = ("--hf-file", "-hff", "--include")
_NAMES = re.compile(r"""(repo_id|filename)\s*=\s*["']([^"']{1,300})["']""")  # of Python snippets


@dataclass(frozen=True, slots=True)
class Quantized:
    """A repository, and the quantization wanted of it."""

    repository: str  # "owner/name"
    quantization: str  # as it was written: "Q4_K_M", "latest"


Target = Source | Quantized | str


def parse_link(text: str, endpoint: str = HUB) -> Target:
    """Parse what was pasted: a file, a repository ("owner/name"), or one with its quantization.

    Accepts pages and files of the hub, "hf.co/owner/name:Q4_K_M", "owner/name", the commands that
    the hub offers to copy, and other https links to a .gguf file. Raises HubError for anything else.
    """
    text = text.strip().strip("<>\"'`").strip().removeprefix("$ ")
    if not text or len(text) > 2_000:
        raise HubError(
            tr("This is empty or too long for a link."),
            tr("Paste a link to a .gguf file, or owner/name."),
        )
    found = _in_snippet(text) or _in_command(text, endpoint) or _name(text)
    return found or _address(text, endpoint)


def _name(text: str) -> Target | None:
    """`owner/name`, also with a quantization; None for anything else."""
    if text.lower().endswith(".gguf"):
        return None
    name, colon, tag = text.partition(":")
    if not REPOSITORY.fullmatch(name) or name.partition("/")[0].lower() in _HUB_HOSTS:
        return None
    if not colon:
        return name
    return Quantized(name, tag) if _TAG.fullmatch(tag) else None


def _in_snippet(text: str) -> Target | None:
    """The repository and file of a Python call such as `Llama.from_pretrained(repo_id="…")`."""
    values = dict(_NAMES.findall(text))
    repository = values.get("repo_id", "")
    return _chosen(repository, values.get("filename", "")) if repository else None


def _in_command(text: str, endpoint: str) -> Target | None:
    """The repository of a command of another program; None if the text is no command."""
    if not _COMMAND.match(text):
        return None
    words = [word.strip("\"'") for word in text.replace("\\\n", " ").split()]
    target: Target | None = None
    file = ""
    for before, word in zip(["", *words], words, strict=False):
        option, _, value = word.partition("=") if word.startswith("-") else ("", "", word)
        is_file = target is not None and value.lower().endswith(".gguf")
        if option in _FILE_OPTIONS or before in _FILE_OPTIONS or is_file:
            file = value or file
        elif target is None:
            target = _named(value, endpoint)
    if isinstance(target, str) and file:
        return _chosen(target, file)
    return target


def _named(word: str, endpoint: str) -> Target | None:
    """A word that names a repository or a file of the hub; None for any other."""
    if found := _name(word):
        return found
    if not word.lower().startswith(("https://", "hf://", *(f"{host}/" for host in _HUB_HOSTS))):
        return None
    try:
        return _address(word, endpoint)
    except HubError:
        return None


def _chosen(repository: str, file: str) -> Target | None:
    """A file of a repository, given by its name or by a pattern such as "*Q4_K_M.gguf"."""
    if not REPOSITORY.fullmatch(repository):
        return None
    if "*" in file:
        tag = file.removesuffix(".gguf").strip("*-_./")
        return Quantized(repository, tag) if _TAG.fullmatch(tag) else repository
    if not file.lower().endswith(".gguf") or ".." in file.split("/"):
        return repository
    return Source(repository, "main", file.lstrip("/"))


def _address(text: str, endpoint: str) -> Target:
    """Parse an address, with or without its scheme."""
    text = re.sub(r"^hf://", f"https://{_HUB_HOSTS[0]}/", text)
    if "://" not in text:
        first = text.split("/")[0].lower()
        if first not in _HUB_HOSTS:
            raise HubError(
                tr("This is neither a link nor the name of a repository."),
                tr("Paste a link to a .gguf file, or a name such as owner/name."),
            )
        text = f"https://{text}"
    try:
        parts = check_address(text)
    except WebError as error:
        raise HubError(str(error), error.remedy) from error
    mirror = urllib.parse.urlsplit(endpoint)
    if (parts.hostname or "") in _HUB_HOSTS or parts.netloc == mirror.netloc:
        path = parts.path.removeprefix(mirror.path.rstrip("/"))
        return _on_the_hub(path, urllib.parse.parse_qs(parts.query))
    if not parts.path.lower().endswith(".gguf"):
        raise HubError(tr("This link is not a model file."), tr("Use a link that ends in .gguf."))
    name = urllib.parse.unquote(parts.path.rsplit("/", 1)[-1])
    return Source("", "", name, url=parts._replace(fragment="").geturl())


def _on_the_hub(path: str, query: dict[str, list[str]]) -> Target:
    """Parse a path on the hub: /owner/name[:tag][/(blob|resolve|raw|tree)/revision[/file]]."""
    segments = [urllib.parse.unquote(one) for one in path.split("/") if one]
    named = _name("/".join(segments[:2]))
    areas = (["datasets"], ["spaces"], ["api"], ["models"], ["docs"], ["papers"])
    if segments[:1] in areas or len(segments) < 2 or named is None:
        raise HubError(
            tr("This link is not the page of a model."),
            tr("Open the model's page and copy its address."),
        )
    if not isinstance(named, str):
        return named
    if len(segments) < 5 or segments[2] not in ("blob", "resolve", "raw"):
        return _chosen(named, query.get("show_file_info", [""])[0]) or named
    file = "/".join(segments[4:])
    if ".." in segments or not file.lower().endswith(".gguf"):
        raise HubError(
            tr("This link is not a model file."), tr("Choose a file that ends in .gguf.")
        )
    return Source(named, segments[3], file)
