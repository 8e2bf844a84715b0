"""Visual entailment: from a folder of photos and sentences to a trained entailer, beside one that sees nothing."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from saccade import load
from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.data.datasets.photos.entailment import open_entailment
from saccade.tasks.entailment.task import accuracies
from toy_runs import saccade_command

COLOURS = {"red": (200, 30, 30), "blue": (30, 30, 200)}
SMALL = [
    *("dim=32", "heads=2", "hidden=24", "pooled_dim=32", "layers=1", "max_words=24", "vocabulary_size=60", "dropout=0"),
    *("attention_dropout=0", "bert=null", "initial_spread=0.2", "accelerator=cpu", "batch_size=24", "precision=fp32"),
    *("learning_rate=0.003", "schedule=constant", "optimiser=adam", "train_split=train", "average=0"),
    *("backbone.train=false", "extractor=grid:world/2", "in_memory=false", "standardise=false"),
]
OWN = {
    "interbert": ["image_heads=2", "image_hidden=24", "text_layers=0", "image_layers=0"],
    "pixelbert": ["segments=0", "rows=0", "columns=0", "image_norm=true"],
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of one colour each; a sentence says a colour, or what cannot be seen. Words alone tell two labels apart
    from the third, and no more."""
    root, draw = tmp_path_factory.mktemp("entailment"), np.random.default_rng(0)
    (root / "images").mkdir()
    lines: dict[str, list[dict[str, str]]] = {"entailment.jsonl.gz": [], "entailment_test.jsonl.gz": []}
    for split, count in (("train", 12), ("dev", 4), ("test", 4)):
        for n in range(count):
            colour, name = list(COLOURS)[n % 2], f"{split}{n}.jpg"
            noise = draw.integers(-20, 20, (64, 64, 3))
            Image.fromarray(np.clip(np.array(COLOURS[colour]) + noise, 0, 255).astype(np.uint8)).save(
                root / "images" / name
            )
            told = {said: "entailment" if said == colour else "contradiction" for said in COLOURS} | {
                "loved": "neutral"
            }
            file = "entailment_test.jsonl.gz" if split == "test" else "entailment.jsonl.gz"
            lines[file] += [
                {"image": name, "split": split, "hypothesis": f"it is {said}", "label": label}
                for said, label in told.items()
            ]
    for file, rows in lines.items():
        (root / file).write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    return root


def test_a_split_is_its_sentences_and_what_they_are_to_their_photos(photos: Path) -> None:
    found = open_entailment("dev", photos)
    assert found.texts[:3] == ("it is red", "it is blue", "it is loved")
    assert found.answers[:3] == (("entailment",), ("contradiction",), ("neutral",))
    assert found.pictures.ids == ("dev0.jpg", "dev1.jpg", "dev2.jpg", "dev3.jpg")
    assert len(open_entailment("train+dev", photos).texts) == 48
    assert len(open_entailment("test", photos).texts) == 12


def test_a_folder_without_sentences_or_photos_gets_a_sentence(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=r"has no entailment\.jsonl\.gz"):
        open_entailment("dev", tmp_path)
    (tmp_path / "images").mkdir()
    (tmp_path / "entailment.jsonl.gz").write_bytes((photos / "entailment.jsonl.gz").read_bytes())
    with pytest.raises(SaccadeError, match='no split "test"'):
        open_entailment("test", tmp_path)
    with pytest.raises(SaccadeError, match=r"dev0\.jpg"):
        open_entailment("dev", tmp_path)


def test_accuracy_is_of_all_sentences_and_of_each_label() -> None:
    true = ("entailment", "entailment", "entailment", "contradiction")
    found = accuracies(["entailment", "neutral", "entailment", "neutral"], true)
    assert found == {
        "accuracy": 50,
        "entailment": pytest.approx(200 / 3),
        "contradiction": 0,
        "mean over labels": pytest.approx(100 / 3),
    }


@pytest.mark.parametrize("system", ["interbert", "pixelbert"])
def test_seeing_beats_the_sentence_alone(
    system: str, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of three sentences a blind model can get two, whichever colour it says."""
    runs = {shown: tmp_path / shown for shown in ("both", "hypothesis")}
    for shown, run in runs.items():
        words = ["task=entailment", "data=flickr8k", f"root={photos}", *SMALL, *OWN[system]]
        words += [f"shown={shown}", f"steps={140 if shown == 'both' else 20}"]
        assert saccade_command("train", system, *words, "--out", run) == 0
    file = tmp_path / "found.json"
    assert saccade_command("eval", *runs.values(), "split=test", "--json", file) == 0
    assert "was shown the hypothesis alone" in " ".join(capsys.readouterr().out.split())
    found = read_json(file)["results"]
    assert found["most frequent"]["accuracy"] == pytest.approx(100 / 3)
    assert found[str(runs["hypothesis"])]["accuracy"] <= 100 * 2 / 3 + 1e-6
    assert found[str(runs["both"])]["accuracy"] > 80
    model = load(runs["both"])
    said = model.ask(photos / "images" / "test1.jpg", "it is blue")
    assert sum(one.probability for one in said) == pytest.approx(1)
    assert {one.text for one in said} == {"entailment", "neutral", "contradiction"}
    explained = model.explain(photos / "images" / "test1.jpg", "it is blue")
    assert explained.words[-1] == f"→ {said[0].text}"
