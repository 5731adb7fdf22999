"""Links to models: addresses, names, and the commands that the hub offers to copy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.net.hub import HubError, Source
from app.net.hub_links import Quantized, parse_link


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("prism-ml/Bonsai-8B-gguf", "prism-ml/Bonsai-8B-gguf"),
        ("  prism-ml/Bonsai-8B-gguf\n", "prism-ml/Bonsai-8B-gguf"),
        ("hf.co/prism-ml/Bonsai-8B-gguf", "prism-ml/Bonsai-8B-gguf"),
        ("huggingface.co/prism-ml/Bonsai-8B-gguf", "prism-ml/Bonsai-8B-gguf"),
        ("https://hf.co/prism-ml/Bonsai-8B-gguf", "prism-ml/Bonsai-8B-gguf"),
        ("https://huggingface.co/prism-ml/Bonsai-8B-gguf", "prism-ml/Bonsai-8B-gguf"),
        ("<https://huggingface.co/prism-ml/Bonsai-8B-gguf/>", "prism-ml/Bonsai-8B-gguf"),
        ("https://huggingface.co/o/n/tree/main", "o/n"),
        ("https://huggingface.co/o/n?not-for-all-audiences=true#files", "o/n"),
        ("https://huggingface.co/o/n/discussions/5", "o/n"),
    ],
)
def test_repository_links_are_parsed(text: str, meant: str) -> None:
    assert parse_link(text) == meant


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("https://huggingface.co/o/n/blob/main/m.gguf", Source("o/n", "main", "m.gguf")),
        ("https://huggingface.co/o/n/resolve/main/m.gguf", Source("o/n", "main", "m.gguf")),
        (
            "https://huggingface.co/o/n/resolve/main/m.gguf?download=true",
            Source("o/n", "main", "m.gguf"),
        ),
        ("huggingface.co/o/n/blob/v1.0/sub/m.GGUF", Source("o/n", "v1.0", "sub/m.GGUF")),
        ("hf.co/o/n/raw/main/a%20b.gguf", Source("o/n", "main", "a b.gguf")),
        (
            "https://huggingface.co/o/n/blob/refs%2Fpr%2F1/m.gguf",
            Source("o/n", "refs/pr/1", "m.gguf"),
        ),
        (
            "https://example.org/files/m.gguf?key=1#top",
            Source("", "", "m.gguf", url="https://example.org/files/m.gguf?key=1"),
        ),
        (
            "https://example.org/a%20model.gguf",
            Source("", "", "a model.gguf", url="https://example.org/a%20model.gguf"),
        ),
    ],
)
def test_file_links_are_parsed(text: str, source: Source) -> None:
    assert parse_link(text) == source


def test_links_of_a_mirror_are_parsed() -> None:
    mirror = "https://mirror.example/hf"
    link = f"{mirror}/o/n/resolve/main/m.gguf"
    assert parse_link(link, mirror) == Source("o/n", "main", "m.gguf")
    assert parse_link("https://huggingface.co/o/n", mirror) == "o/n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "hello",
        "hello world",
        "model.gguf",
        "folder/model.gguf",
        "/home/me/model.gguf",
        "file:///home/me/model.gguf",
        "ftp://example.org/m.gguf",
        "http://example.org/m.gguf",
        "http://huggingface.co/o/n",
        "javascript:alert(1)",
        "https://example.org/m.bin",
        "https://example.org/",
        "https://user:secret@example.org/m.gguf",
        "https://huggingface.co",
        "https://huggingface.co/o",
        "https://huggingface.co/datasets/o/n",
        "https://huggingface.co/spaces/o/n",
        "https://huggingface.co/o/n/blob/main/m.safetensors",
        "https://huggingface.co/o/n/blob/main/../../../x.gguf",
        "https://huggingface.co/o/n/blob/main/%2e%2e/x.gguf",
        "https://huggingface.co/-o/n",
        "https://[::1/m.gguf",
        "https://exa mple.org/m.gguf",
        "https://example.org:99999/m.gguf",
        "https://" + "a" * 70 + ".org/m.gguf",
        "https://example.org/" + "a" * 3000 + ".gguf",
        "a/b/c",
        "owner/name\x00",
        "https://huggingface.co.evil.example/o/n/resolve/main/m.bin",
    ],
)
def test_other_links_raise_hub_error(text: str) -> None:
    with pytest.raises(HubError) as caught:
        parse_link(text)
    assert str(caught.value).endswith(".")
    assert caught.value.remedy.endswith(".")


@given(st.text())
def test_parse_link_raises_only_hub_error_for_any_text(text: str) -> None:
    try:
        found = parse_link(text)
    except HubError:
        return
    name = found if isinstance(found, str) else found.repository
    assert name.count("/") == 1 or (isinstance(found, Source) and found.url)


Q4 = Quantized("o/n-GGUF", "Q4_K_M")
FILE = Source("o/n-GGUF", "main", "n-Q4_K_M.gguf")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("hf.co/o/n-GGUF:Q4_K_M", Q4),
        ("huggingface.co/o/n-GGUF:Q4_K_M", Q4),
        ("https://hf.co/o/n-GGUF:Q4_K_M", Q4),
        ("o/n-GGUF:Q4_K_M", Q4),
        ("o/n-GGUF:UD-Q4_K_XL", Quantized("o/n-GGUF", "UD-Q4_K_XL")),
        ("ollama run hf.co/o/n-GGUF:Q4_K_M", Q4),
        ("$ ollama pull hf.co/o/n-GGUF", "o/n-GGUF"),
        ("`ollama run huggingface.co/o/n-GGUF:latest`", Quantized("o/n-GGUF", "latest")),
        ("llama-server -hf o/n-GGUF:Q4_K_M", Q4),
        ("llama-cli -hf o/n-GGUF:Q4_K_M --jinja -c 4096", Q4),
        ("./build/bin/llama-cli -hf o/n-GGUF:Q4_K_M", Q4),
        ("llama serve -hf o/n-GGUF", "o/n-GGUF"),
        ("llama-server --hf-repo o/n-GGUF --hf-file n-Q4_K_M.gguf -c 2048", FILE),
        ("llama-server \\\n  --hf-repo=o/n-GGUF \\\n  --hf-file=n-Q4_K_M.gguf", FILE),
        ("llama-cli --hf-file n-Q4_K_M.gguf --hf-repo o/n-GGUF", FILE),
        ("docker model run hf.co/o/n-GGUF:Q4_K_M", Q4),
        ("hf download o/n-GGUF n-Q4_K_M.gguf --local-dir .", FILE),
        ("huggingface-cli download o/n-GGUF --include '*Q4_K_M*'", Q4),
        ('Llama.from_pretrained(\n\trepo_id="o/n-GGUF",\n\tfilename="n-Q4_K_M.gguf",\n)', FILE),
        ("https://huggingface.co/o/n-GGUF?show_file_info=n-Q4_K_M.gguf", FILE),
        ("https://huggingface.co/o/n-GGUF?local-app=ollama", "o/n-GGUF"),
        ("hf://o/n-GGUF", "o/n-GGUF"),
    ],
)
def test_texts_that_the_hub_offers_to_copy_are_parsed(
    text: str, meant: Source | Quantized | str
) -> None:
    assert parse_link(text) == meant


@pytest.mark.parametrize(
    "text", ["ollama run llama3", "ollama run hf.co/o", "hf.co/o/n:", "hf.co/o/n:a b", "o/n:a/b"]
)
def test_commands_that_name_no_repository_raise_hub_error(text: str) -> None:
    with pytest.raises(HubError):
        parse_link(text)
