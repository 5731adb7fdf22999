"""Addresses: what users paste made whole, and which of them need consent."""

from __future__ import annotations

import pytest

from app.domain.remote_fault import RemoteFaultKind
from app.engines.remote.addresses import (
    candidates,
    is_one_program,
    native_root,
    needs_consent,
    normalized,
    same_server,
)
from app.engines.remote.errors import RemoteError
from app.net.hosts import is_private


@pytest.mark.parametrize(
    ("pasted", "address"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        (" http://127.0.0.1:8080/v1/ \n", "http://127.0.0.1:8080/v1"),
        ("localhost:11434", "http://localhost:11434"),
        ("192.168.1.206:8080/v1", "http://192.168.1.206:8080/v1"),
        ("gpu-box", "http://gpu-box"),
        ("api.example.com/v1", "https://api.example.com/v1"),
        ("HTTPS://API.Example.COM:443/v1", "https://api.example.com/v1"),
        ("http://example.com:80", "http://example.com"),
        (
            "https://opencode.example/zen/go/v1/chat/completions",
            "https://opencode.example/zen/go/v1",
        ),
        ("https://api.example.com//v1//models/", "https://api.example.com/v1"),
        ("http://localhost:11434/api/chat", "http://localhost:11434"),
        ("https://api.example.com/api/paas/v4", "https://api.example.com/api/paas/v4"),
        ("<https://example.com/v1>", "https://example.com/v1"),
        ('"https://example.com/v1"', "https://example.com/v1"),
        ("http://0.0.0.0:8000", "http://127.0.0.1:8000"),
        ("http://[::]:8000/v1", "http://[::1]:8000/v1"),
        ("[fe80::1]:8000", "http://[fe80::1]:8000"),
        ("::1", "http://[::1]"),
        ("fd00::5/v1", "http://[fd00::5]/v1"),
        ("http://2130706433:1234", "http://127.0.0.1:1234"),
        ("http://0x7f.1", "http://127.0.0.1"),
        ("https://bücher.example/v1#top", "https://xn--bcher-kva.example/v1"),
        ("http://example.com./v1", "http://example.com/v1"),
    ],
)
def test_pasted_addresses(pasted: str, address: str) -> None:
    assert normalized(pasted) == address
    assert normalized(address) == address


@pytest.mark.parametrize(
    "pasted",
    [
        "", "   ", "http://", "http:///v1", "ftp://example.com", "file:///etc/passwd", "javascript:x",
        "http:example.com", "https:/example.com", "http://user:secret@example.com/v1",
        "http://user@example.com", "https://example.com/v1?key=secret", "http://exa mple.com",
        "http://example.com\\@other.com", "http://example.com:99999", "http://example.com:x",
        "http://[::1", "http://[fe80::1%25eth0]:80", "http://256.1.1.1", "http://-x-.com",
        "http://a..b", "x" * 3000, "http://exa\u0000mple.com",
    ],
)  # fmt: skip
def test_wrong_addresses(pasted: str) -> None:
    with pytest.raises(RemoteError) as error:
        normalized(pasted)
    assert error.value.fault.kind is RemoteFaultKind.ADDRESS
    assert error.value.fault.about.endswith((".", "”."))
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "10.1.2.3", "172.16.0.1",
        "172.31.255.1", "192.168.0.9", "169.254.3.4", "fe80::1", "fd12::3", "100.64.0.1",
        "100.127.255.254", "gpu-box", "gpu.local", "gpu.LOCAL.", "gpu.home.arpa", "gpu.internal",
        "gpu.lan", "[::1]",
    ],
)  # fmt: skip
def test_private_hosts(host: str) -> None:
    assert is_private(host)


@pytest.mark.parametrize(
    "host",
    [
        "example.com", "8.8.8.8", "100.128.0.1", "100.63.255.255", "172.32.0.1", "2001:4860::8888",
        "::ffff:8.8.8.8", "local.example.com", "notlocal", "127.0.0.1.nip.io", "gpu.ts.net",
    ],
)  # fmt: skip
def test_public_hosts(host: str) -> None:
    assert is_private(host) is (host == "notlocal")  # a name without a dot is not a public one
    shown = f"[{host}]" if ":" in host else host
    assert needs_consent(f"http://{shown}:8000/v1") is (host != "notlocal")
    assert not needs_consent(f"https://{shown}/v1")


def test_numbers_are_hosts_as_the_system_reads_them() -> None:
    assert needs_consent(normalized("http://134744072/v1"))  # 8.8.8.8
    assert not needs_consent(normalized("http://0x7f000001/v1"))


def test_places_of_the_api() -> None:
    assert candidates("http://a:1") == ("http://a:1/v1", "http://a:1")
    assert candidates("http://a:1/v1") == ("http://a:1/v1",)
    assert candidates("https://a/paas/v4") == ("https://a/paas/v4",)
    assert candidates("https://a/v1beta") == ("https://a/v1beta",)
    assert native_root("http://a:1/v1") == "http://a:1"
    assert native_root("http://a:1/llama/v1") == "http://a:1/llama"


def test_same_server() -> None:
    assert same_server("https://a.com/v1", "https://A.com:443/other")
    for other in ("http://a.com/v1", "https://a.com:444/v1", "https://b.a.com/v1", ""):
        assert not same_server("https://a.com/v1", other)


def test_one_program_at_the_names_of_this_machine() -> None:
    here = "http://127.0.0.1:8000/v1"
    for other in ("http://localhost:8000", "http://[::1]:8000/v1", "http://127.0.0.1:8000"):
        assert is_one_program(here, other)
    for other in ("http://127.0.0.1:80", "http://localhost:8001/v1", "http://10.0.0.1:8000/v1"):
        assert not is_one_program(here, other)
