"""Pictures in requests of every API: decoded within limits, refused in words, kept in order."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.loading.inspect import ModelFacts
from engine.messages import Chat, Detail, ImagePart, Part, Role, TextPart, ToolResult, Turn
from engine.server.anthropic import messages
from engine.server.errors import ApiError
from engine.server.facts import KnownModel
from engine.server.fields import Fields
from engine.server.guards import Security
from engine.server.limits import Limits
from engine.server.models import ModelCard
from engine.server.ollama.chat import parse_chat, parse_prompt
from engine.server.openai import responses
from engine.server.openai.messages import turns
from engine.server.pictures import PictureAccess, Pictures, data_uri
from engine.server.serve import ServerOptions
from serving import Served

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(247, 256)) * 9  # base64 of it has + and /
TEXT = base64.b64encode(PNG).decode()
URI = f"data:image/png;base64,{TEXT}"
OTHER = b"\xff\xd8\xff\xe0" + b"other" * 5
OTHER_URI = f"data:image/jpeg;base64,{base64.b64encode(OTHER).decode()}"
PICTURE, SECOND = ImagePart(PNG), ImagePart(OTHER)
LIMITS = Limits(picture_bytes=100, pictures=3)


def call(body: dict[str, Any], access: PictureAccess | None = None) -> Any:
    request = SimpleNamespace(url=SimpleNamespace(path="/v1/responses"))
    pictures = access or PictureAccess()
    return SimpleNamespace(body=Fields(body), exchange=None, request=request, pictures=pictures)


def chat(*parts: Any, access: PictureAccess | None = None, **more: Any) -> tuple[Part, ...]:
    """The parts of the user's turn that OpenAI's parts of a message become."""
    body = {"messages": [{"role": "user", "content": list(parts), **more}]}
    (turn,) = turns(call(body, access))
    assert turn.role is Role.USER
    return turn.content if isinstance(turn.content, tuple) else (TextPart(turn.content),)


def anthropic(*turns: tuple[str, list[Any]]) -> tuple[Turn, ...]:
    listed = [{"role": role, "content": blocks} for role, blocks in turns]
    return messages.parse(call({"model": "m", "max_tokens": 5, "messages": listed})).wanted.turns


def response(*items: Any) -> tuple[Turn, ...]:
    return responses.parse(call({"model": "m", "input": list(items)})).wanted.turns


def image_url(url: Any, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": url, **more}


def text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def block(data: str, **more: Any) -> dict[str, Any]:
    """Anthropic's block of a picture."""
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


@pytest.mark.parametrize(
    ("part", "detail"),
    [
        (image_url({"url": URI}), Detail.STANDARD),
        (image_url({"url": URI, "detail": "low"}), Detail.LOW),
        (image_url({"url": URI, "detail": "high"}), Detail.HIGH),
        (image_url({"url": URI, "detail": "auto"}), Detail.STANDARD),
        (image_url({"url": URI, "detail": None}), Detail.STANDARD),
        # What clients really send; each was reported as a bug of another server.
        (image_url(URI), Detail.STANDARD),
        (image_url(URI, detail="low"), Detail.LOW),
        (image_url({"url": URI, "detail": "original"}), Detail.HIGH),
        (image_url({"url": f"data:;base64,{TEXT}"}), Detail.STANDARD),
        (image_url({"url": f"data:image/png;charset=utf-8;base64,{TEXT}"}), Detail.STANDARD),
        (image_url({"url": f"data:image/png;name=a.png;BASE64,{TEXT}"}), Detail.STANDARD),
        (image_url({"url": f"DATA:image/jpg;base64,{TEXT}\n"}), Detail.STANDARD),
        (
            image_url({"url": f"data:image/png;base64,{base64.encodebytes(PNG).decode()}"}),
            Detail.STANDARD,
        ),
        (
            image_url({"url": "data:;base64," + base64.urlsafe_b64encode(PNG).decode().strip("=")}),
            Detail.STANDARD,
        ),
        (
            image_url({"url": "data:;base64," + TEXT.replace("+", "%2B").replace("=", "%3D")}),
            Detail.STANDARD,
        ),
        ({"type": "image", "image": URI}, Detail.STANDARD),
        ({"type": "image", "image": TEXT}, Detail.STANDARD),
        ({"type": "image", "data": TEXT, "mimeType": "image/png"}, Detail.STANDARD),
        ({"type": "image", "base64": TEXT, "mime_type": "image/png"}, Detail.STANDARD),
        ({"type": "image", "source_type": "base64", "data": TEXT}, Detail.STANDARD),
        ({"type": "input_image", "image_url": URI, "detail": "high"}, Detail.HIGH),
        ({"type": "input_image", "image_url": {"url": URI}}, Detail.STANDARD),
        (block(TEXT), Detail.STANDARD),
        (block(URI), Detail.STANDARD),
        ({"type": "image", "source": {"type": "url", "url": URI}}, Detail.STANDARD),
    ],
)
def test_a_picture_arrives_however_it_is_written(part: dict[str, Any], detail: Detail) -> None:
    assert "+" in TEXT
    assert "=" in TEXT
    assert chat(part) == (ImagePart(PNG, detail),)


@pytest.mark.parametrize(
    ("part", "field", "words"),
    [
        (image_url({"url": "https://a.example/b.png"}), "image_url.url", "never fetched"),
        (image_url("http://127.0.0.1/b.png"), "image_url", "never fetched"),
        ({"type": "image", "source": {"type": "url", "url": "HTTPS://a"}}, "source.url", "never"),
        (image_url({"url": "ftp://a.example/b.png"}), "image_url.url", "'ftp'"),
        (image_url({"url": "blob:http://a/1"}), "image_url.url", "'blob'"),
        (image_url({"url": "file:///etc/passwd"}), "image_url.url", "--image-files"),
        (image_url({"url": "/etc/passwd"}), "image_url.url", "no data URI"),
        (image_url({"url": TEXT}), "image_url.url", "no data URI"),
        (image_url({"url": ""}), "image_url.url", "no data URI"),
        (image_url({"url": "data:image/png;base64,"}), "image_url.url", "without data"),
        (image_url({"url": f"data:image/png,{TEXT}"}), "image_url.url", "no data URI in base64"),
        (image_url({"url": f"data:base64,{TEXT}"}), "image_url.url", "no data URI in base64"),
        (image_url({"url": "data:image/png;base64"}), "image_url.url", "no data URI in base64"),
        (image_url({"url": URI + "!"}), "image_url.url", "not valid base64"),
        (image_url({"url": URI.replace("+", " ")}), "image_url.url", "not valid base64"),
        (image_url({"url": "data:;base64,A"}), "image_url.url", "not valid base64"),
        (image_url({"url": "data:;base64,AA=A"}), "image_url.url", "not valid base64"),
        (image_url({"url": "data:;base64,Grüße"}), "image_url.url", "not valid base64"),
        (image_url({"url": "data:;base64," + "A" * 136}), "image_url.url", "100 bytes"),
        (image_url({"url": "data:;base64," + "A" * 999}), "image_url.url", "100 bytes"),
        (image_url({"url": URI, "detail": "tiny"}), "image_url.detail", "must be one of"),
        (image_url({"url": 3}), "image_url.url", "must be a string"),
        (image_url({}), "image_url.url", "is missing"),
        (image_url(3), "image_url", "must be a string"),
        (image_url([URI]), "image_url", "must be a string"),
        ({"type": "image_url"}, "type", "not here"),
        ({"type": "input_image", "file_id": "file-1"}, "file_id", "not here"),
        ({"type": "image", "source": {"type": "file", "file_id": "f"}}, "source.data", "missing"),
        (block(""), "source.data", "without data"),
        (block("%%%"), "source.data", "not valid base64"),
        (block("c:/a.png"), "source.data", "'c'"),
    ],
)
def test_what_is_no_picture_is_refused_in_a_sentence(
    part: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(ApiError) as refused:
        chat(text("a"), part, access=PictureAccess(LIMITS))
    assert refused.value.status == 400
    assert refused.value.param == f"messages[0].content[1].{field}"
    assert words in str(refused.value)
    assert str(refused.value).endswith(".")


def test_a_picture_of_the_most_bytes_and_the_most_pictures_are_taken() -> None:
    most = image_url("data:;base64," + base64.b64encode(b"x" * 100).decode())
    assert chat(most, most, most, access=PictureAccess(LIMITS)) == (ImagePart(b"x" * 100),) * 3
    with pytest.raises(ApiError, match=r"content\[3\].image_url` is one too many.* 3 pictures"):
        chat(most, most, most, most, access=PictureAccess(LIMITS))


def test_texts_and_pictures_stay_in_order_also_of_several_messages() -> None:
    parts = [text("Is this"), image_url(URI), text("like"), text("this"), image_url(OTHER_URI)]
    found = (TextPart("Is this"), PICTURE, TextPart("like\n\nthis"), SECOND)
    assert chat(*parts) == found
    body = {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "First"},
            {"role": "user", "content": parts},
            {"role": "user", "content": "Well?"},
        ]
    }
    system, user = turns(call(body))
    assert system == Turn(Role.SYSTEM, "Be brief.")
    assert user.content == (
        TextPart("First\n\nIs this"),
        *found[1:],
        TextPart("Well?"),
    )


def test_pictures_of_the_responses_api() -> None:
    (user,) = response(
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What?"},
                {"type": "input_image", "image_url": URI, "detail": "low"},
            ],
        }
    )
    assert user.content == (TextPart("What?"), ImagePart(PNG, Detail.LOW))


def test_pictures_of_the_messages_api_and_in_results_of_tools() -> None:
    use = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
    seen = {
        "type": "tool_result",
        "tool_use_id": "c",
        "content": [text("Here:"), block(TEXT), text("and"), block(OTHER_URI)],
    }
    first, call_, result, last = anthropic(
        ("user", [block(TEXT), text("Look.")]),
        ("assistant", [use]),
        ("user", [seen, text("Go on."), block(TEXT)]),
    )
    assert first.content == (PICTURE, TextPart("Look."))
    assert [one.name for one in call_.calls] == ["look"]
    assert result == Turn(Role.TOOL, (ToolResult("c", "look", "Here:\n\nand"), PICTURE, SECOND))
    assert last.content == (TextPart("Go on."), PICTURE)


def test_pictures_in_results_of_tools_of_openai() -> None:
    made = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    output = [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": URI}]
    *_, result = response(
        {"role": "user", "content": "Look."},
        made,
        {"type": "function_call_output", "call_id": "c", "output": output},
    )
    assert result == Turn(Role.TOOL, (ToolResult("c", "look", "a"), PICTURE))
    asked = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    body = {
        "messages": [
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": None, "tool_calls": [asked]},
            {"role": "tool", "tool_call_id": "c", "content": [image_url(URI), text("a")]},
        ]
    }
    assert turns(call(body))[-1] == result


@pytest.mark.parametrize("part", [image_url("https://a/b.png"), block("?"), image_url({})])
def test_a_picture_of_a_tool_that_cannot_be_read_becomes_a_note(part: dict[str, Any]) -> None:
    use = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
    seen = {"type": "tool_result", "tool_use_id": "c", "content": [text("a"), part]}
    *_, result = anthropic(("assistant", [use]), ("user", [seen]))
    noted = "a\n\n[a picture, which this model cannot read]"
    assert result == Turn(Role.TOOL, (ToolResult("c", "look", noted),))


def test_a_result_without_its_call_becomes_the_users_with_its_picture() -> None:
    (turn,) = anthropic(
        ("user", [{"type": "tool_result", "tool_use_id": "lost", "content": [block(TEXT)]}])
    )
    assert (turn.role, turn.images) == (Role.USER, (PICTURE,))


def test_pictures_of_ollama_come_before_the_text_of_their_message() -> None:
    asked = {"role": "user", "content": "What?", "images": [TEXT, OTHER_URI]}
    tool = {"function": {"name": "look", "arguments": {}}}
    body = {
        "model": "m",
        "messages": [
            asked,
            {"role": "assistant", "tool_calls": [tool]},
            {"role": "tool", "tool_name": "look", "content": "a", "images": [TEXT]},
        ],
    }
    found = parse_chat(call(body)).turns
    assert found[0].content == (PICTURE, SECOND, TextPart("What?"))
    assert found[2] == Turn(Role.TOOL, (ToolResult("call00000", "look", "a"), PICTURE))
    prompt = {"model": "m", "prompt": "What?", "system": "Be brief.", "images": [TEXT]}
    system, user = parse_prompt(call(prompt)).turns
    assert system.text == "Be brief."
    assert user.content == (PICTURE, TextPart("What?"))
    for more in ({"raw": True}, {"suffix": "x"}):
        with pytest.raises(ApiError, match="need a chat template"):
            parse_prompt(call(prompt | more))
    with pytest.raises(ApiError, match=r"`messages\[0\].images\[1\]` is not valid base64"):
        parse_chat(call({"model": "m", "messages": [asked | {"images": [TEXT, "?"]}]}))


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_only_the_user_and_tools_send_pictures(role: str) -> None:
    with pytest.raises(ApiError, match=r"`messages\[0\].content\[0\].type` is a picture"):
        turns(call({"messages": [{"role": role, "content": [image_url(URI)]}]}))
    with pytest.raises(ApiError, match=r"`messages\[0\].images` has pictures"):
        turns(call({"messages": [{"role": role, "content": "a", "images": [TEXT]}]}))
    with pytest.raises(ApiError, match="is a picture"):
        anthropic((role, [block(TEXT)]))
    with pytest.raises(ApiError, match="is a picture"):
        response({"role": role, "content": [{"type": "input_image", "image_url": URI}]})


def test_a_picture_is_given_back_as_a_data_uri() -> None:
    assert chat(image_url(data_uri(PICTURE))) == (PICTURE,)


# --- files ----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of pictures, with others beside it."""
    inside = tmp_path / "pictures"
    (inside / "of me").mkdir(parents=True)
    (inside / "a.png").write_bytes(PNG)
    (inside / "of me" / "ü.png").write_bytes(OTHER)
    (tmp_path / "secret.png").write_bytes(b"secret")
    (tmp_path / "pictures2").mkdir()
    (tmp_path / "pictures2" / "b.png").write_bytes(b"secret")
    return inside


def named(folder: Path, url: str) -> bytes:
    (part,) = chat(image_url({"url": url}), access=PictureAccess(LIMITS, folder))
    assert isinstance(part, ImagePart)
    assert isinstance(part.source, bytes)
    return part.source


def test_files_of_the_folder_are_read_by_url_and_by_path(folder: Path) -> None:
    for url in ("a.png", "file://a.png", (folder / "a.png").as_uri(), str(folder / "a.png")):
        assert named(folder, url) == PNG
    assert named(folder, f"file://localhost{(folder / 'a.png').as_uri()[7:]}") == PNG
    for url in ("of me/ü.png", "file://of me/ü.png", "of me/../of me/ü.png"):
        assert named(folder, url) == OTHER
    assert named(folder, (folder / "of me" / "ü.png").as_uri()) == OTHER
    assert chat(image_url(URI), access=PictureAccess(LIMITS, folder)) == (PICTURE,)


@pytest.mark.skipif(os.name != "posix", reason="links and pipes as POSIX has them")
def test_links_and_special_files_lead_nowhere_else(folder: Path) -> None:
    (folder / "inner.png").symlink_to(folder / "a.png")
    assert named(folder, "inner.png") == PNG
    (folder / "out.png").symlink_to(folder.parent / "secret.png")
    (folder / "up").symlink_to(folder.parent)
    (folder / "round").symlink_to(folder / "round")
    os.mkfifo(folder / "pipe")
    for url in ("out.png", "up/secret.png", "up/pictures2/b.png", "round", "pipe"):
        with pytest.raises(ApiError, match="no file in the folder"):
            named(folder, url)
    linked = folder.parent / "linked"
    linked.symlink_to(folder)
    for url in ("a.png", str(linked / "a.png"), str(folder / "a.png")):
        assert named(linked, url) == PNG


@pytest.mark.parametrize(
    "url",
    [
        "../secret.png",
        "file://../secret.png",
        "file:///etc/passwd",
        "/etc/passwd",
        "of me/../../secret.png",
        "file://%2e%2e/secret.png",
        "file://a/%2e%2e/%2e%2e/secret.png",
        "../pictures2/b.png",
        "file://otherhost/a.png",
        "file:////otherhost/share/a.png",
        "missing.png",
        "of me",
        ".",
        "",
        "a.png\0",
        "~/a.png",
        "x" * 9999,
        "gopher://a.png",
    ],
)
def test_no_file_elsewhere_is_read(folder: Path, url: str) -> None:
    with pytest.raises(ApiError, match="is no file in the folder") as refused:
        named(folder, url)
    assert refused.value.status == 400


def test_a_path_elsewhere_is_refused_before_the_system_looks_for_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = Path.resolve

    def watched(path: Path, strict: bool = False) -> Path:
        assert path == folder, f"{path} was looked for"
        return resolve(path, strict)

    monkeypatch.setattr(Path, "resolve", watched)
    for url in ("//otherhost/share/a.png", "file:////otherhost/share/a.png", "../secret.png"):
        with pytest.raises(ApiError, match="no file in the folder"):
            named(folder, url)


def test_files_have_the_limits_of_pictures_and_count_as_memory(folder: Path) -> None:
    (folder / "large.png").write_bytes(b"x" * 101)
    (folder / "empty.png").write_bytes(b"")
    with pytest.raises(ApiError, match="100 bytes"):
        named(folder, "large.png")
    with pytest.raises(ApiError, match="without data"):
        named(folder, "empty.png")
    held: list[int] = []
    access = PictureAccess(LIMITS, folder, held.append)
    chat(image_url("a.png"), image_url("of me/ü.png"), access=access)
    assert held == [len(PNG), len(PNG) + len(OTHER)]


def test_base64_is_no_path_of_the_folder(folder: Path) -> None:
    pictures = Pictures(PictureAccess(LIMITS, folder))
    with pytest.raises(ApiError, match="not valid base64"):
        pictures.of_list(Fields({"images": ["a.png"]}))


# --- a server -------------------------------------------------------------------------------------

USER = {"role": "user", "content": [text("a"), image_url({"url": URI})]}
CHAT = {"model": "", "messages": [USER], "max_tokens": 1}
ASKED: list[tuple[str, dict[str, Any], Callable[[Any], str]]] = [
    ("/v1/chat/completions", CHAT, lambda body: body["error"]["message"]),
    (
        "/v1/responses",
        {"model": "", "input": [{"role": "user", "content": [{"type": "input_image", "image_url": URI}]}]},
        lambda body: body["error"]["message"],
    ),
    (
        "/v1/messages",
        {"model": "", "max_tokens": 1, "messages": [{"role": "user", "content": [block(TEXT)]}]},
        lambda body: body["error"]["message"],
    ),
    (
        "/api/chat",
        {"model": "tiny-served", "messages": [{"role": "user", "content": "a", "images": [TEXT]}]},
        lambda body: body["error"],
    ),
    ("/api/generate", {"model": "tiny-served", "prompt": "a", "images": [TEXT]}, lambda body: body["error"]),
    ("/apply-template", {"messages": [USER]}, lambda body: body["error"]["message"]),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "message"), ASKED)
def test_a_model_of_texts_refuses_pictures_in_the_shape_of_each_api(
    served: Served, path: str, body: dict[str, Any], message: Callable[[Any], str]
) -> None:
    assert "reads text only" in message(served.error(path, body))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"model": "", "prompt": "a", "images": [TEXT]}),
        ("/completion", {"prompt": "[img-1]", "image_data": [{"data": TEXT, "id": 1}]}),
        ("/completion", {"prompt": {"prompt_string": "<__media__>", "multimodal_data": [TEXT]}}),
        ("/v1/embeddings", {"model": "", "input": {"content": [image_url(URI)]}}),
        ("/v1/embeddings", {"model": "", "input": "a", "images": [TEXT]}),
        ("/v1/rerank", {"model": "", "query": "a", "documents": [{"image": URI}]}),
        ("/api/embed", {"model": "tiny-served", "input": "a", "images": [TEXT]}),
    ],
)
def test_routes_of_texts_refuse_pictures(served: Served, path: str, body: dict[str, Any]) -> None:
    error = served.error(path, body)["error"]
    assert "picture" in (error if isinstance(error, str) else error["message"])


def test_a_tool_may_give_pictures_to_a_model_of_texts(served: Served) -> None:
    use = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
    seen = {"type": "tool_result", "tool_use_id": "c", "content": [text("a"), block(TEXT)]}
    body = {
        "model": "",
        "max_tokens": 1,
        "messages": [
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [seen]},
        ],
    }
    recorded = submitted(served, "/v1/messages", body)
    (result,) = recorded.turns[-1].results
    assert result.text == "a\n\n[a picture, which this model cannot read]"
    assert not recorded.turns[-1].images


def submitted(served: Served, path: str, body: dict[str, Any]) -> Chat:
    """The request that the server gives to the engine."""
    made: list[Any] = []
    submit = served.engine.submit

    def record(request: Any, *arguments: Any, **options: Any) -> Any:
        made.append(request)
        return submit(request, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(served.engine, "submit", record)
        served.http.post(path, json=body)
    (found,) = (one for one in made if isinstance(one, Chat))
    return found


def test_a_model_that_sees_is_given_the_pictures(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ModelCard, "sees", True)
    assert submitted(served, "/v1/chat/completions", CHAT).turns == (
        Turn(Role.USER, (TextPart("a"), PICTURE)),
    )


def test_lists_say_what_a_model_sees(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def said() -> tuple[Any, ...]:
        shown = served.post("/api/show", {"model": "tiny-served"})["capabilities"]
        (card,) = served.get("/api/v0/models")["data"]
        (listed,) = served.get("/v1/models")["data"]
        inputs, props = listed["architecture"]["input_modalities"], served.get("/props")
        return (
            card["type"],
            "vision" in shown,
            "vision" in card["capabilities"],
            "image" in inputs,
            props["modalities"]["vision"],
        )

    assert said() == ("llm", False, False, False, False)
    monkeypatch.setattr(ModelCard, "sees", True)
    assert said() == ("vlm", True, True, True, True)


def test_an_encoder_beside_a_model_that_is_not_loaded_counts() -> None:
    facts = ModelFacts(Path("m.gguf"), "m", encoder=Path("mmproj.gguf"))
    card = ModelCard("m", facts.path, "m", 1, 0.0)
    assert KnownModel(card, facts).sees
    assert not KnownModel(card, replace(facts, encoder=None)).sees


def test_a_server_reads_files_of_its_folder_only(tiny_model: Path, folder: Path) -> None:
    limits = Limits(picture_bytes=100)
    options = ServerOptions(security=Security(image_files=folder), limits=limits)
    made = Served(tiny_model, options)
    try:
        for url, words in (
            ("a.png", "reads text only"),
            ("../secret.png", "no file in the folder"),
        ):
            body = CHAT | {"messages": [{"role": "user", "content": [image_url(url)]}]}
            assert words in made.error("/v1/chat/completions", body)["error"]["message"]
    finally:
        made.close()
