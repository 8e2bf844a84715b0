"""`saccade relations` from the command line: ranks photos, draws the best, says why; wrong words end in a sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from saccade.cli import app
from saccade.language import Vocabulary
from saccade.language.vocabulary import SPECIAL
from saccade.models import Analogy, AnalogyConfig
from saccade.models.base import model as models
from saccade.vision import load_extractor
from saccade.world import WorldConfig, make_world

CLASSES, PREDICATES = ("background", "dog", "boat", "cat"), ("no interaction", "riding", "left of")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained one, which reads the world."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("analogy") / "model"
    words = sorted({word for name in (*CLASSES, *PREDICATES) for word in name.split()})
    config = AnalogyConfig(
        classes=CLASSES,
        predicates=PREDICATES,
        triplets=((3, 1, 2), (1, 2, 2)),
        occurrences=(20.0, 30.0),
        region_dim=load_extractor("world").dim,
        word_dim=8,
        hidden_dim=8,
        dim=8,
    )
    Analogy(config, Vocabulary((*SPECIAL, *words)), "world").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toys")
    world = make_world(WorldConfig(pictures=20, hard_groups=0, novel=3, captions=1, twins=0.0))
    for n in range(3):
        Image.fromarray(world.split("novel").image(n)).save(folder / f"{n}.png")
    return folder


def test_photos_are_ranked_and_an_unseen_relation_names_its_sources(model: Path, toys: Path, tmp_path: Path) -> None:
    out = tmp_path / "found.png"
    said = CliRunner().invoke(app, ["relations", str(toys), "a dog riding the boat", "-m", str(model), "-o", str(out)])
    assert said.exit_code == 0, said.output
    assert "dog riding boat: never seen in training, known by analogy with" in said.output
    assert "cat riding boat  (similarity" in said.output
    assert all(f"{n}.png" in said.output for n in range(3))
    assert Image.open(out).width > 500


def test_without_a_model_the_run_comes_first_then_that_of_the_package(
    model: Path,
    toys: Path,
    tmp_path: Path,
    saccade: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ("relations", toys / "0.png", "dog left of boat", "--json")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(models, "SHIPPED", tmp_path / "package")
    code, _, said = saccade(*words)
    assert code == 2
    assert "no runs/analogy, and no analogy-flickr8k comes with the package: give --model" in " ".join(said.split())
    for folder in (tmp_path / "package" / "analogy-flickr8k", tmp_path / "runs" / "analogy"):
        shutil.copytree(model, folder)
        code, out, said = saccade(*words)
        assert code == 0, said
        assert json.loads(out)["seen"] == 30
        (folder / "config.json").write_text("{}")  # the next one is asked first, or this would be an error


def test_json_has_boxes_in_pixels(model: Path, toys: Path) -> None:
    words = ["relations", str(toys / "0.png"), str(toys / "1.png"), "dog left of boat", "-m", str(model), "--json"]
    said = CliRunner().invoke(app, words)
    assert said.exit_code == 0, said.output
    found = json.loads(said.stdout)
    assert (found["triplet"], found["seen"], found["sources"]) == (["dog", "left of", "boat"], 30, [])
    scores = [photo["score"] for photo in found["photos"]]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= v <= 128 for photo in found["photos"] for v in photo["subject_box"])


def test_bad_input_ends_in_a_sentence_and_leaves_nothing(
    model: Path, toys: Path, tmp_path: Path, saccade: Callable[..., tuple[int, str, str]]
) -> None:
    out = tmp_path / "found.png"
    for words, message in (
        ((toys, "cow riding boat", "-m", model, "-o", out), 'knows no thing "cow"'),
        ((toys, "dog eating boat", "-m", model, "-o", out), "is not SUBJECT PREDICATE OBJECT"),
        ((toys, "dog riddin boat", "-m", model), 'there is no relation "riddin"; did you mean "riding"?'),
        ((toys, "dogg eating boat", "-m", model), 'there is no thing "dogg"; did you mean "dog"?'),
        ((toys, "bird eats boat", "-m", model), 'there is no thing "bird" (the most frequent'),
        ((toys, "dog boat cat", "-m", model), 'there is no relation "boat" (the most frequent'),
        ((toys, "boat", "-m", model), "three words are the fewest"),
        ((toys, "dog riding boat", "-m", "scan-small", "-o", out), "which matches pictures with sentences"),
        ((tmp_path / "none", "dog riding boat", "-m", model), "none"),
        ((toys, "dog riding boat", "-m", model, "-o", tmp_path / "found.bmp"), "found.bmp"),
    ):
        code, _, said = saccade("relations", *words)
        assert code == 2
        assert message in " ".join(said.split())
        assert "Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_a_photo_that_cannot_be_read_has_no_empty_table(
    model: Path, tmp_path: Path, saccade: Callable[..., tuple[int, str, str]]
) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    for words in ((), ("--json",)):
        code, out, said = saccade("relations", tmp_path / "broken.jpg", "dog riding boat", "-m", model, *words)
        assert (code, out) == (2, "")
        assert "broken.jpg" in said


def test_scores_are_plain_and_no_similarity_is_above_one(
    model: Path, toys: Path, saccade: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Analogy, "score", lambda self, pairs, target: torch.full((len(pairs), 1), 1.906e-6))
    choose = Analogy.choose

    def rounded_up(self: Analogy, targets: torch.Tensor) -> tuple[torch.Tensor, ...]:
        place, similarity, usable = choose(self, targets)
        return place, torch.full_like(similarity, 1.0000001), usable

    monkeypatch.setattr(Analogy, "choose", rounded_up)
    words = ("relations", toys / "0.png", "dog riding boat", "-m", model)
    assert " 0.00000191 " in saccade(*words)[1]
    assert {one["similarity"] for one in json.loads(saccade(*words, "--json")[1])["sources"]} == {1.0}
