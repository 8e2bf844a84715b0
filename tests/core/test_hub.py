"""A name that looks local is local; the hub is asked once, and only by hf:OWNER/NAME."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import saccade
from saccade.core import hub
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models import Model, Scan, ScanConfig, load_model
from saccade.vision import load_extractor
from saccade.vision.backbones.base import load_backbone
from toy_runs import make_features, make_run, saccade_command

LOCAL = ["runs/scan", "./there", "/tmp/nowhere/model", "~/model", "model", "a/b/c", "here/model", "not a name!"]


class Hub:
    """The hub's client; its answers are an error or a folder that was fetched."""

    def __init__(self, answer: Path | Exception, fetched: Path | None = None) -> None:
        self.answer, self.fetched, self.asked = answer, fetched, list[str]()

    def model_info(self, name: str, timeout: float, **options: Any) -> None:
        assert timeout <= 10
        self.asked.append(name)
        if isinstance(self.answer, Exception):
            raise self.answer

    def snapshot(self, name: str, local_files_only: bool = False, **options: Any) -> str:
        found = self.fetched if local_files_only else self.answer
        if not isinstance(found, Path):
            raise OSError("not in the cache")
        return str(found)


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Hub]:
    """Put a hub in the place of the real one; whatever else asks the network fails."""

    def refuse(*words: object) -> None:
        pytest.fail(f"the network was asked: {words}")

    def install(answer: Path | Exception, fetched: Path | None = None) -> Hub:
        client = Hub(answer, fetched)
        monkeypatch.setattr("huggingface_hub.HfApi", lambda: client)
        monkeypatch.setattr("huggingface_hub.snapshot_download", client.snapshot)
        return client

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    hub.hub_folder.cache_clear()
    return install


@pytest.mark.parametrize("name", LOCAL)
def test_a_local_name_that_is_not_there_is_called_missing_at_once(ask: Callable[..., Hub], name: str) -> None:
    client = ask(AssertionError("the hub was asked"))
    loaders: list[Callable[[str], Any]] = [saccade.load, load_model, Model.from_pretrained, Scan.from_pretrained]
    for load in loaders:
        with pytest.raises(SaccadeError, match="is no model folder: it does not exist"):
            load(name)
    for kind in ("hf", "dinov2"):
        with pytest.raises(SaccadeError, match="there is no folder"):
            load_backbone(f"{kind}:{name}")
    for extractor in (f"detr:{name}", f"grid:hf:{name}@32"):
        with pytest.raises(SaccadeError, match="there is no folder"):
            load_extractor(extractor)
    assert not client.asked


def test_owner_and_name_alone_are_a_folder_to_the_verbs(
    ask: Callable[..., Hub], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    client = ask(AssertionError("the hub was asked"))
    (tmp_path / "a.jpg").touch()
    verbs = [
        ["eval", "owner/name"],
        ["score", "a.jpg", "-t", "a dog", "--model", "owner/name"],
        ["explain", "a.jpg", "a dog", "--model", "owner/name"],
        ["caption", "a.jpg", "--model", "owner/name"],
        ["densecap", "a.jpg", "--model", "owner/name"],
        ["calibrate", "owner/name"],
        ["leaderboard", "owner/name"],
    ]
    for words in verbs:
        assert saccade_command(*words) == 2
        assert "owner/name is no model folder: it does not exist" in (told := capsys.readouterr().err), words
        assert "hf:owner/name asks the model hub" in told
    assert not client.asked


def test_the_hub_is_asked_once(ask: Callable[..., Hub], tmp_path: Path) -> None:
    model = make_run(tmp_path / "run", make_features(tmp_path / "features")) / "best"
    client = ask(model)
    assert type(saccade.load("hf:owner/name").model) is Scan
    assert type(load_model("hf:owner/name")) is Scan
    assert client.asked == ["owner/name"]
    assert type(Scan.from_pretrained("owner/name")) is Scan
    assert type(Model.from_pretrained("hf:owner/name", revision="v1")) is Scan


def test_without_the_hub_what_was_fetched_before_is_used(ask: Callable[..., Hub], tmp_path: Path) -> None:
    model = make_run(tmp_path / "run", make_features(tmp_path / "features")) / "best"
    client = ask(OSError("no route to host"), fetched=model)
    assert type(load_model("hf:owner/name")) is Scan
    assert type(Scan.from_pretrained("owner/other", local_files_only=True)) is Scan
    assert client.asked == ["owner/name"]


def test_a_hub_that_does_not_answer_gets_a_sentence(ask: Callable[..., Hub]) -> None:
    client = ask(OSError("no route to host\nand more"))
    told = r'"owner/name" was never fetched from the model hub, and the hub cannot be asked now \(no route to host\)'
    for load, name in (
        (load_model, "hf:owner/name"),
        (saccade.load, "hf:owner/name"),
        (Scan.from_pretrained, "owner/name"),
        (load_extractor, "detr:owner/name"),
        (load_backbone, "hf:owner/name"),
        (load_backbone, "dinov2:owner/name"),
    ):
        with pytest.raises(SaccadeError, match=told) as caught:
            load(name)  # type: ignore[operator]
        assert "\n" not in str(caught.value)
    assert len(client.asked) == 6
    with pytest.raises(SaccadeError, match='"runs/x" is no name of the hub'):
        load_model("hf:runs/x")


def test_a_model_folder_goes_to_the_hub(
    vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = []

    def upload(repo_id: str, folder_path: Path, commit_message: str, **options: Any) -> str:
        assert type(load_model(folder_path)) is Scan
        sent.append((repo_id, commit_message))
        return f"https://hub/{repo_id}"

    client = SimpleNamespace(create_repo=lambda repo_id, **_: SimpleNamespace(repo_id=repo_id), upload_folder=upload)
    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", lambda **_: client)
    model = Scan(ScanConfig(region_dim=4, word_dim=4, dim=4), vocabulary)
    assert model.save_pretrained(tmp_path / "mine") is None
    assert not sent
    assert model.push_to_hub("owner/name", commit_message="first", private=True) == "https://hub/owner/name"
    assert model.save_pretrained(tmp_path / "mine", push_to_hub=True, commit_message="second") == "https://hub/mine"
    assert sent == [("owner/name", "first"), ("mine", "second")]
