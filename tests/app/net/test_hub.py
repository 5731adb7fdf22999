"""Model hub API: searching, listing files and reading their beginning, with invalid responses."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable, Iterator

import pytest

from app.net.hub import (
    HUB,
    HubError,
    Piece,
    Repository,
    Source,
    file_address,
    files,
    read_start,
    search,
)
from hostile_hub import Fault, Hub, running

HASH = "a" * 64


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running() as made:
        yield made


def test_addresses_have_the_hubs_form() -> None:
    assert file_address(Source("o/n", "main", "m.gguf")) == f"{HUB}/o/n/resolve/main/m.gguf"
    odd = Source("o/n", "refs/pr/1", "sub dir/ü#?.gguf")
    assert file_address(odd, endpoint="https://m.example/") == (
        "https://m.example/o/n/resolve/refs%2Fpr%2F1/sub%20dir/%C3%BC%23%3F.gguf"
    )


def found(**values: object) -> dict[str, object]:
    """A repository row of the hub's search API."""
    row = {
        "_id": "1",
        "id": "o/n",
        "downloads": 12345,
        "likes": 67,
        "gated": False,
        "private": False,
        "lastModified": "2026-08-01T10:00:00.000Z",
        "tags": ["gguf", "license:apache-2.0", "base_model:o/base", "region:us"],
        "siblings": [
            {"rfilename": "README.md"},
            {"rfilename": "n-Q4_0.gguf"},
            {"rfilename": "n-Q8_0-00001-of-00002.gguf"},
            {"rfilename": "n-Q8_0-00002-of-00002.gguf"},
        ],
    }
    return row | values


def answering(hub: Hub, content: object) -> None:
    hub.api["/api/models"] = Fault(status=200, body=json.dumps(content).encode())


def test_search_request_has_the_documented_parameters(hub: Hub) -> None:
    answering(hub, [found()])
    assert search("bonsai & co", hub.endpoint, limit=7) == (
        Repository("o/n", 12345, 67, False, "apache-2.0", 2, "2026-08-01"),
    )
    (asked,) = hub.requests
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(asked.path).query)
    assert query == {
        "search": ["bonsai & co"],
        "filter": ["gguf"],
        "sort": ["downloads"],
        "direction": ["-1"],
        "limit": ["7"],
        "expand[]": ["downloads", "likes", "gated", "tags", "lastModified", "siblings"],
    }
    assert asked.headers["User-Agent"].startswith("Tokonoma/")
    assert "Cookie" not in asked.headers
    assert "Authorization" not in asked.headers


@pytest.mark.parametrize("gated", ["auto", "manual", True])
def test_gated_repositories_are_marked(hub: Hub, gated: object) -> None:
    answering(hub, [found(gated=gated)])
    assert search("x", hub.endpoint)[0].gated


@pytest.mark.parametrize(
    "row",
    [
        {"id": "o/n"},
        found(downloads="many", likes=-1, gated=None, tags=5, siblings={}, lastModified=[]),
        found(downloads=True, tags=[5, None, ["x"]], siblings=[5, {}, {"rfilename": 5}]),
    ],
)
def test_fields_of_another_type_count_as_missing(hub: Hub, row: object) -> None:
    answering(hub, [row])
    (repository,) = search("x", hub.endpoint)
    assert (
        repository.id,
        repository.likes in (0, 67),
        repository.licence in ("", "apache-2.0"),
    ) == (
        "o/n",
        True,
        True,
    )


@pytest.mark.parametrize("row", [5, None, "o/n", [], {}, found(id="../etc"), found(id="o/n/x")])
def test_invalid_repository_rows_are_skipped(hub: Hub, row: object) -> None:
    answering(hub, [row, found(id="good/one")])
    assert [one.id for one in search("x", hub.endpoint)] == ["good/one"]


def test_rows_beyond_the_limit_are_skipped(hub: Hub) -> None:
    answering(hub, [found(id=f"o/n{number}") for number in range(50)])
    assert len(search("x", hub.endpoint, limit=10)) == 10


def listed(path: str, size: int = 5, oid: str = HASH, **values: object) -> dict[str, object]:
    """A file row of the hub's listing API."""
    lfs = {"oid": oid, "size": size, "pointerSize": 135}
    return {"type": "file", "path": path, "size": size, "oid": "b" * 40, "lfs": lfs} | values


def listing(hub: Hub, rows: object, headers: dict[str, str] | None = None) -> None:
    path = "/api/models/o/n/tree/main"
    hub.api[path] = Fault(status=200, body=json.dumps(rows).encode(), headers=headers or {})


def test_files_come_with_size_and_hash_smallest_model_first(hub: Hub) -> None:
    rows = [
        {"type": "directory", "path": "sub", "size": 0, "oid": "c" * 40},
        listed("README.md"),
        listed("n-Q8_0.gguf", 9_000),
        listed("sub/n-Q4_0.GGUF", 5_000),
        listed("mmproj-n-f16.gguf", 10),
        listed("n-lora-f16.gguf", 11),
    ]
    listing(hub, rows)
    got = files("o/n", hub.endpoint)
    assert [(one.file, one.kind) for one in got] == [
        ("sub/n-Q4_0.GGUF", "model"),
        ("n-Q8_0.gguf", "model"),
        ("mmproj-n-f16.gguf", "projector"),
        ("n-lora-f16.gguf", "adapter"),
    ]
    assert (got[1].size_bytes, got[1].sha256) == (9_000, HASH)
    assert got[1].source == Source("o/n", "main", "n-Q8_0.gguf", 9_000, HASH)
    assert hub.requests[0].path == "/api/models/o/n/tree/main?recursive=1"


def test_a_split_model_is_one_file(hub: Hub) -> None:
    listing(hub, [listed(f"q/n-0000{at}-of-00003.gguf", at, str(at) * 64) for at in (2, 3, 1)])
    (model,) = files("o/n", hub.endpoint)
    assert (model.file, model.size_bytes, model.kind, model.sha256) == (
        "q/n-00001-of-00003.gguf",
        6,
        "model",
        "",
    )
    assert model.source.pieces == tuple(
        Piece(f"q/n-0000{at}-of-00003.gguf", at, str(at) * 64) for at in (1, 2, 3)
    )


def test_a_split_model_that_lacks_a_piece_is_marked(hub: Hub) -> None:
    listing(hub, [listed("n-00001-of-00003.gguf"), listed("n-00003-of-00003.gguf")])
    (model,) = files("o/n", hub.endpoint)
    assert model.kind == "incomplete"


def test_a_long_listing_is_read_page_by_page(hub: Hub) -> None:
    following = f"{hub.endpoint}/api/models/o/n/tree/page2"
    listing(hub, [listed("a.gguf")], {"Link": f'<{following}>; rel="next"'})
    hub.api["/api/models/o/n/tree/page2"] = Fault(
        status=200, body=json.dumps([listed("b.gguf")]).encode()
    )
    assert [one.file for one in files("o/n", hub.endpoint)] == ["a.gguf", "b.gguf"]


def test_next_page_on_another_host_is_not_requested(hub: Hub) -> None:
    listing(hub, [listed("a.gguf")], {"Link": '<http://127.0.0.2:1/x>; rel="next"'})
    assert [one.file for one in files("o/n", hub.endpoint)] == ["a.gguf"]


def test_endless_listing_stops_at_the_page_limit(hub: Hub) -> None:
    itself = f"{hub.endpoint}/api/models/o/n/tree/main"
    listing(hub, [listed("a.gguf")], {"Link": f'<{itself}>; rel="next"'})
    assert files("o/n", hub.endpoint)
    assert len(hub.requests) == 10


@pytest.mark.parametrize(
    "row",
    [
        5,
        {},
        listed("../x.gguf"),
        listed("a/../../x.gguf"),
        listed("x.gguf", type="directory"),
        listed("n-00003-of-00002.gguf"),
        {"type": "file", "path": 5},
    ],
)
def test_rows_of_other_files_are_skipped(hub: Hub, row: object) -> None:
    listing(hub, [row, listed("good.gguf")])
    assert [one.file for one in files("o/n", hub.endpoint)] == ["good.gguf"]


@pytest.mark.parametrize(
    ("lfs", "size", "sha256"),
    [
        (None, 7, ""),
        ({"oid": "short", "size": 9}, 9, ""),
        ({"oid": "sha256:" + HASH, "size": 9}, 9, HASH),
        ({"oid": 5, "size": "9"}, 7, ""),
    ],
)
def test_invalid_sizes_and_hashes_are_ignored(
    hub: Hub, lfs: object, size: int, sha256: str
) -> None:
    listing(hub, [listed("a.gguf", 7, lfs=lfs)])
    (one,) = files("o/n", hub.endpoint)
    assert (one.size_bytes, one.sha256) == (size, sha256)


@pytest.mark.parametrize("name", ["", "o", "o/n/x", "../etc", "o/n?x", "o n/x", "a" * 200 + "/b"])
def test_invalid_repository_name_is_not_requested(hub: Hub, name: str) -> None:
    with pytest.raises(HubError):
        files(name, hub.endpoint)
    assert hub.requests == []


Asking = Callable[[str], object]
both = pytest.mark.parametrize(
    "ask",
    [lambda endpoint: search("x", endpoint), lambda endpoint: files("o/n", endpoint)],
    ids=["search", "files"],
)


def broken(hub: Hub, fault: Fault) -> None:
    hub.api["/api/models"] = hub.api["/api/models/o/n/tree/main"] = fault


@both
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault(status=404), "There is no such repository on 127.0.0.1."),
        (
            Fault(status=401, headers={"X-Error-Code": "RepoNotFound"}),
            "There is no such repository on 127.0.0.1.",
        ),
        (Fault(status=401), "private, or requires you to sign in"),
        (Fault(status=403, headers={"X-Error-Code": "GatedRepo"}), "accept its licence"),
        (Fault(status=429), "127.0.0.1 limits the number of requests (429)."),
        (Fault(status=500), "127.0.0.1 reports a server error (500)."),
        (Fault(status=418), "127.0.0.1 refused the request (418)."),
        (Fault(body=b""), "127.0.0.1 did not answer like a model server."),
        (Fault(body=b"<!doctype html>"), "127.0.0.1 did not answer like a model server."),
        (Fault(body=b'{"error": "x"}'), "127.0.0.1 did not answer like a model server."),
        (Fault(body=b"[" * 100_000), "127.0.0.1 did not answer like a model server."),
        (Fault(body=b"\xff\xfe\xff"), "127.0.0.1 did not answer like a model server."),
        (Fault(body=b" " * 9_000_000), "127.0.0.1 sent a response of more than 8,388,608 bytes."),
        (
            Fault(headers={"Content-Length": "99"}, body=b"[]"),
            "closed the connection before the end",
        ),
    ],
)
def test_invalid_response_raises_hub_error(hub: Hub, ask: Asking, fault: Fault, says: str) -> None:
    broken(hub, fault)
    with pytest.raises(HubError) as caught:
        ask(hub.endpoint)
    assert says in str(caught.value)


@both
def test_unreachable_hub_raises_hub_error(ask: Asking) -> None:
    with pytest.raises(HubError, match=r"^The connection to 127.0.0.1 failed: .*\.$") as caught:
        ask("http://127.0.0.1:9")
    assert caught.value.remedy


@both
def test_endpoint_without_a_host_raises_hub_error(hub: Hub, ask: Asking) -> None:
    with pytest.raises(HubError, match=r"^The address is not secure\.$"):
        ask("http://hub.invalid")


@pytest.mark.parametrize("ask", [search, files])
def test_silent_hub_times_out_with_hub_error(hub: Hub, ask: Callable[..., object]) -> None:
    hub.silent = True
    with pytest.raises(HubError, match=r"^127.0.0.1 does not answer\.$"):
        ask("o/n", hub.endpoint, timeout_seconds=0.1)


# --- the beginning of a file ----------------------------------------------------------------------


@pytest.mark.parametrize("resumable", [True, False])
def test_only_the_beginning_of_a_file_is_read(hub: Hub, resumable: bool) -> None:
    content = bytes(range(256)) * 40_000
    hub.put("o/n/big.gguf", content, resumable=resumable)
    hub.put("o/n/small.gguf", content[:100], resumable=resumable)
    assert read_start(Source("o/n", "main", "big.gguf"), 70_000, hub.endpoint) == content[:70_000]
    assert read_start(Source("o/n", "main", "small.gguf"), 70_000, hub.endpoint) == content[:100]
    assert {one.headers["Range"] for one in hub.store_requests()} == {"bytes=0-69999"}
    if resumable:
        assert hub.sent_bytes == 70_100


@pytest.mark.parametrize(
    "fault", [Fault(status=403), Fault(status=404), Fault(status=500), Fault(reset_after=10)]
)
def test_a_beginning_that_cannot_be_read_raises_hub_error(hub: Hub, fault: Fault) -> None:
    hub.put("o/n/m.gguf", bytes(100_000))
    hub.faults.append(fault)
    with pytest.raises(HubError) as caught:
        read_start(Source("o/n", "main", "m.gguf"), 50_000, hub.endpoint)
    assert str(caught.value).endswith(".")
