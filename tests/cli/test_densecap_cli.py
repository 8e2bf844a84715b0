"""`saccade densecap`: a table, a picture and JSON of what is said of a photo's parts; training it by one command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from saccade.cli import app
from saccade.language import Vocabulary
from saccade.models import DenseCap, DenseCapConfig
from toy_runs import saccade_command

SMALL = ["data=world", "pictures=20", "limit=4", "size=32", "map_dim=8", "rpn_dim=8", "dim=16", "word_dim=8"]
SMALL += ["hidden_dim=12", "drawn=8", "proposals=8", "eval_pictures=2", "steps=2", "batch_size=2", "accelerator=cpu"]


@pytest.fixture
def model(tmp_path: Path, vocabulary: Vocabulary) -> Path:
    torch.manual_seed(0)
    config = DenseCapConfig(
        backbone="world", size=32, stride=4, map_dim=8, scales=(0.3,), ratios=(1.0,), rpn_dim=8, dim=8, word_dim=8,
        hidden_dim=8, proposals=20, final_overlap=0.6,
    )  # fmt: skip
    DenseCap(config, vocabulary).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    Image.effect_noise((60, 40), 90).convert("RGB").save(tmp_path / "noise.png")
    return tmp_path / "noise.png"


def run(*words: object) -> str:
    result = CliRunner().invoke(app, ["densecap", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_photo_becomes_a_table_a_picture_and_json(model: Path, photo: Path, tmp_path: Path) -> None:
    said = run(photo, "--model", model, "-o", tmp_path / "out.png", "--json", tmp_path / "out.json", "--top", 3)
    (facts,) = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert (facts["width"], facts["height"], len(facts["regions"])) == (60, 40, 3)
    for region in facts["regions"]:
        x1, y1, x2, y2 = region["box"]
        assert 0 <= x1 < x2 <= 60
        assert 0 <= y1 < y2 <= 40
        assert 0 <= region["score"] <= 1
        assert region["phrase"].split()[0] in said
    assert Image.open(tmp_path / "out.png").width > 500


def test_a_broken_photo_does_not_stop_the_others(model: Path, photo: Path, tmp_path: Path) -> None:
    (tmp_path / "album").mkdir()
    photo.rename(tmp_path / "album" / "whole.png")
    (tmp_path / "album" / "half.png").write_bytes((tmp_path / "album" / "whole.png").read_bytes()[:300])
    words = ["densecap", tmp_path / "album", "--model", model, "--json", tmp_path / "out.json"]
    result = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)
    assert result.exit_code == 2
    assert "half.png" in result.stderr
    assert "1 of 2 pictures could not be read" in result.stderr
    (facts,) = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert facts["photo"].endswith("whole.png")


def test_top_0_is_all(model: Path, photo: Path, tmp_path: Path) -> None:
    counts = []
    for top in (0, 1000):
        run(photo, "--model", model, "--json", tmp_path / "out.json", "--top", top, "--least", 0)
        (facts,) = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
        counts.append(len(facts["regions"]))
    assert counts[0] == counts[1] > 1


def test_what_the_model_doubts_is_not_told(model: Path, photo: Path, tmp_path: Path) -> None:
    run(photo, "--model", model, "-o", tmp_path / "out.png", "--json", tmp_path / "out.json", "--least", 0.999)
    assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))[0]["regions"] == []
    assert (tmp_path / "out.png").exists()


def test_a_folder_becomes_a_sheet_and_a_beam_is_followed(model: Path, photo: Path, tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    for name in ("a.png", "b.png"):
        (tmp_path / "two" / name).write_bytes(photo.read_bytes())
    said = run(tmp_path / "two", "--model", model, "-o", tmp_path / "sheet.jpg", "--num-beams", 2, "--top", 2)
    assert "a.png" in said
    assert "b.png" in said
    assert Image.open(tmp_path / "sheet.jpg").width > 1000


def test_what_is_wrong_is_one_sentence(
    model: Path, photo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, sentence in (
        ((tmp_path / "no.jpg", "--model", model), "no.jpg"),
        ((photo, "--model", tmp_path / "nothing"), "is no model folder"),
        ((photo, "--model", model, "-o", tmp_path / "out.txt"), "is saved as one of"),
        ((model / "config.json", "--model", model), "is not a picture"),
    ):
        assert saccade_command("densecap", *words) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert sentence in error
        assert error.count("\n") == 1


def test_it_is_trained_by_one_command(photo: Path, tmp_path: Path) -> None:
    trained = CliRunner().invoke(
        app, ["train", "densecap", *SMALL, "--out", str(tmp_path / "run")], catch_exceptions=False
    )
    assert trained.exit_code == 0, trained.output
    assert "noise.png" in run(photo, "--model", tmp_path / "run")


def test_it_is_evaluated_beside_no_other_kind(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["eval", str(model), "data=world", "pictures=20", "limit=2", "--json", str(tmp_path / "figures.json")]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "mAP of boxes" in result.output
    figures = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))["results"][str(model)]
    assert figures.keys() == {"map", "detection_map", "regions"}
    for option in (["--folds", "2"], ["--strategy", "greedy"]):
        assert saccade_command("eval", model, *option) == 2
        assert f"{option[0]} is for" in capsys.readouterr().err
    assert saccade_command("eval", model, "scan-flickr8k") == 2
    assert f"{model} is a dense captioner and scan-flickr8k a matcher" in capsys.readouterr().err
