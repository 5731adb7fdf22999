"""Command line: pictures of a chat, how finely they are seen, and what `info` says of a model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import seeing_files
import tiny
from engine import Detail
from engine.cli.commands import main
from engine.loading import sight
from engine.loading.identity import ModelFiles
from engine.vision.pairing import EncoderFile
from seeing_files import Reader


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return seeing_files.write_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, object]]:
    """Source and detail of every picture that was read."""
    made: list[tuple[object, object]] = []

    def read(reader: Reader, part: object, cancelled: object) -> object:
        made.append((part.source, part.detail))  # type: ignore[attr-defined]
        return plain(reader, part, cancelled)  # type: ignore[arg-type]

    plain = Reader.read
    monkeypatch.setattr(Reader, "read", read)
    monkeypatch.setattr(sight, "PictureReader", Reader)
    return made


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main([*arguments]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


def test_pictures_stand_before_the_message_in_order(
    pair: Path,
    tmp_path: Path,
    reads: list[tuple[object, object]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = [tmp_path / name for name in ("a.png", "b.png")]
    for file in files:
        file.touch()
    asked = ["chat", "-m", str(pair), "-p", "what is it", "-n", "6", "--temp", "0", "--json"]
    images = [option for file in files for option in ("--image", str(file))]
    assert main([*asked, *images]) == 0
    found = json.loads(capsys.readouterr().out)
    assert reads == [(file, Detail.STANDARD) for file in files]
    assert main(asked) == 0
    without = json.loads(capsys.readouterr().out)
    assert found["prompt_tokens"] == without["prompt_tokens"] + 2 * (12 + 2)
    assert found["text"] != without["text"]
    assert main([*asked, *images[:2], "--image-detail", "300"]) == 0
    assert reads[2:] == [(files[0], 300)]
    assert main([*asked, *images[:2], "--image-detail", "low"]) == 0
    assert reads[3:] == [(files[0], Detail.LOW)]


@pytest.mark.parametrize("detail", ["", "0", "-3", "fine", "1.5", "9999999", "٣"])
def test_a_detail_that_is_none_is_refused(detail: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(capsys, "chat", "-m", "x", "-p", "x", f"--image-detail={detail}")
    assert "is no detail of a picture. Write low, standard, high, or a number" in error


def test_a_missing_picture_is_refused_before_the_model_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("none.png", "."):
        error = refused(capsys, "chat", "-m", "x", "-p", "x", "--image", str(tmp_path / name))
        assert error.startswith("tokonoma: There is no picture file ")


@pytest.mark.parametrize("command", ["embed", "complete"])
def test_commands_that_read_texts_refuse_pictures(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refused(capsys, command, "-m", "x", "-p", "x", "--image", "a.png")
    assert error == f"tokonoma: `{command}` reads no pictures. Use `chat`, or leave --image out.\n"
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert "--image" not in capsys.readouterr().out


def test_a_model_that_sees_nothing_refuses_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, picture = tiny.write(tmp_path / "tiny.gguf"), tmp_path / "a.png"
    picture.touch()
    error = refused(capsys, "chat", "-m", str(model), "-p", "x", "--image", str(picture))
    assert error.startswith("tokonoma: This model cannot see pictures. Leave the picture out, ")


def test_info_says_whether_a_model_sees(
    pair: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", "-m", str(pair), "--backend", "reference"]) == 0
    assert "\npictures: with mmproj-tiny.gguf\n" in capsys.readouterr().out
    assert main(["info", "-m", str(tiny.write(tmp_path / "tiny.gguf")), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pictures"] == "no"
    words = seeing_files.words(("<|vision_end|>",))
    seeing_files.write_model(tmp_path / "other.gguf", words)
    seeing_files.write_encoder(tmp_path / "mmproj.gguf", 256)
    assert main(["info", "-m", str(tmp_path / "other.gguf"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["pictures"]
    assert said.startswith("no: the model's vocabulary has no token <|vision_start|>, ")


# --- sessions -----------------------------------------------------------------------------------


@pytest.fixture
def session(pair: Path, tmp_path: Path, reads: list[tuple[object, object]]) -> list[str]:
    """Options of a chat about a picture with a session."""
    picture = tmp_path / "a.png"
    picture.touch()
    named = ["--image", str(picture), "--session", str(tmp_path / "talk")]
    return ["chat", "-m", str(pair), "-p", "what is it", "--temp", "0", *named]


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_a_session_goes_on_with_its_picture_and_without(
    session: list[str],
    pair: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = ran(capsys, *session[:-2], "-n", "20")
    begun = ran(capsys, *session, "-n", "6")

    def encode(*given: object) -> object:
        raise AssertionError("the picture was encoded again")

    monkeypatch.setattr(EncoderFile, "encode", encode)
    text = ["complete", "-m", str(pair), "--temp", "0", *session[-2:]]
    more = ran(capsys, *text, "-n", "14")
    assert begun["token_ids"] + more["token_ids"] == whole["token_ids"]
    assert more["reused_tokens"] == more["prompt_tokens"] - 1
    monkeypatch.undo()
    assert (tmp_path / "talk" / "pages").is_dir()


def test_a_session_is_refused_with_another_encoder(
    session: list[str], pair: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = shutil.copy(pair, tmp_path)
    encoder = seeing_files.write_encoder(tmp_path / "mmproj.gguf", 256)
    asked = ["chat", "-m", model, *session[3:]]
    ran(capsys, *asked, "-n", "3")
    seeing_files.write_encoder(encoder, 256, seed=5)
    for command in (asked, ["complete", "-m", model, *session[-2:]]):
        error = refused(capsys, *command, "-n", "3")
        assert "The session has pictures that another picture encoder read." in error
        assert "Give --session another name, or delete " in error


def test_a_session_that_cannot_be_saved_says_so(
    session: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(self: ModelFiles, checkpoint: object) -> str:
        return "" if self._read_again else plain(self, checkpoint)  # type: ignore[arg-type]

    plain = ModelFiles.sha256
    monkeypatch.setattr(ModelFiles, "sha256", changed)
    assert main([*session, "-n", "3"]) == 1
    assert "The file of the picture encoder has changed since" in capsys.readouterr().err
