"""`saccade ground`, and `saccade eval --task grounding` of a matcher."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

from saccade.language import Vocabulary
from saccade.models import Multilevel, MultilevelConfig, Scan, ScanConfig, UpDown, UpDownConfig

Saccade = Callable[..., tuple[int, str, str]]


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    Image.effect_noise((60, 40), 90).convert("RGB").save(tmp_path / "noise.png")
    return tmp_path / "noise.png"


@pytest.fixture
def model(tmp_path: Path, vocabulary: Vocabulary) -> Path:
    torch.manual_seed(0)
    config = MultilevelConfig(region_dim=368, levels=(64, 48, 96, 160), hidden=(), dim=8, word_dim=4)
    Multilevel(config, vocabulary, "grid:world-layers#all/4").save_pretrained(tmp_path / "multilevel")
    return tmp_path / "multilevel"


def test_a_sentence_becomes_boxes_a_drawing_and_levels(
    saccade: Saccade, model: Path, photo: Path, tmp_path: Path
) -> None:
    out = tmp_path / "where.png"
    words = ("ground", photo, "a red cube left of the ball", "-m", model, "-o", out)
    code, said, _ = saccade(*words)
    assert code == 0
    assert "a red cube" in said
    assert "level" in said
    assert Image.open(out).width > 500
    out.unlink()
    code, said, _ = saccade(*words, "--json")
    facts = json.loads(said.splitlines()[0])
    assert (facts["width"], facts["height"]) == (60, 40)
    assert [phrase["text"] for phrase in facts["phrases"]] == ["a red cube", "the ball"]
    for phrase in facts["phrases"]:
        x1, y1, x2, y2 = phrase["box"]
        assert 0 <= x1 < x2 <= 60
        assert 0 <= y1 < y2 <= 40
        assert set(phrase["levels"].values()) <= {1, 2, 3, 4}
    assert set(facts["phrases"][0]["levels"]) == {"red", "cube"}
    assert out.exists()


def test_a_phrase_that_the_model_does_not_know_has_neither_box_nor_score(
    saccade: Saccade, model: Path, photo: Path, tmp_path: Path
) -> None:
    words = ("ground", photo, "a zebra on the ball", "-m", model, "-o", tmp_path / "where.png")
    code, said, _ = saccade(*words)
    assert code == 0
    rows = {row.split("│")[1].strip(): row for row in said.splitlines() if row.startswith("│")}
    assert "unknown" in rows["a zebra"]
    assert not any(map(str.isdigit, rows["a zebra"]))
    assert "unknown" not in rows["the ball"]
    code, said, _ = saccade(*words, "--json")
    zebra, ball = json.loads(said.splitlines()[0])["phrases"]
    assert zebra == {"text": "a zebra", "unknown": True}
    assert (len(ball["box"]), ball["unknown"]) == (4, False)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("zebra", "knows none of the words"),
        ("a zebra on the zyzzyva", 'knows none of the things that "a zebra on the zyzzyva" names'),
        ("left of", "names nothing that could be found"),
    ],
)
def test_a_sentence_of_nothing_gets_one_sentence(
    saccade: Saccade, model: Path, photo: Path, tmp_path: Path, text: str, told: str
) -> None:
    code, _, error = saccade("ground", photo, text, "-m", model, "-o", tmp_path / "where.png")
    assert code == 2
    assert told in error
    assert error.count("\n") == 1
    assert not (tmp_path / "where.png").exists()


def test_a_model_that_finds_no_phrases_is_refused(
    saccade: Saccade, photo: Path, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    UpDown(UpDownConfig(region_dim=8, word_dim=4, dim=8, attention_dim=4), vocabulary).save_pretrained(tmp_path / "up")
    code, _, error = saccade("ground", photo, "a red cube", "-m", tmp_path / "up", "-o", tmp_path / "where.png")
    assert code == 2
    assert "cannot say where phrases are" in error
    code, _, error = saccade("eval", tmp_path / "up", "--task", "grounding", "data=world", "pictures=20")
    assert code == 2
    assert "is a captioner: it cannot be measured as a grounder" in error
    code, _, error = saccade("eval", tmp_path / "up", "--task", "grunding")
    assert 'did you mean "grounding"?' in error


def test_a_matcher_is_measured_as_a_grounder(saccade: Saccade, tmp_path: Path, vocabulary: Vocabulary) -> None:
    torch.manual_seed(0)
    Scan(ScanConfig(region_dim=64, word_dim=4, dim=8), vocabulary, "grid:world/4").save_pretrained(tmp_path / "scan")
    words = ("eval", tmp_path / "scan", "--task", "grounding", "data=world", "pictures=20", "split=dev")
    code, said, error = saccade(*words, "--heat-boxes", "peaks", "--json", tmp_path / "out.json")
    assert code == 0, error
    assert "pointing" in said
    found = json.loads((tmp_path / "out.json").read_text())
    assert set(found["results"]) == {"at random", "centre box", "largest box", str(tmp_path / "scan")}
    assert found["boxes"] == "peaks"
    assert sum(found["phrases"].values()) > 8
    own = found["results"][str(tmp_path / "scan")]
    assert own["upper_bound"] >= own["recall_10"] >= own["recall_5"] >= own["accuracy"]
    assert {"accuracy_merged", "pointing"} <= set(own)


def test_entities_of_another_folder_are_grounded_in_its_photos(
    saccade: Saccade, photo: Path, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    """A folder that holds nothing but the test split: its photos and their Entities."""
    root = tmp_path / "kept aside"
    (root / "images").mkdir(parents=True)
    Image.open(photo).save(root / "images" / "a.jpg")
    phrases = [
        {"first_word": 0, "n_words": 3, "phrase": "A red cube", "chain": "1", "types": ["other"]},
        {"first_word": 4, "n_words": 2, "phrase": "the ball", "chain": "2", "types": ["other"]},
        {"first_word": 7, "n_words": 2, "phrase": "the dark", "chain": "3", "types": ["scene"]},  # has no box
    ]
    line = {
        "image": "a.jpg",
        "width": 60,
        "height": 40,
        "split": "test",
        "scene": ["3"],
        "nobox": [],
        "boxes": {"1": [[1, 1, 60, 40]], "2": [[1, 1, 30, 40], [31, 1, 60, 40]]},
        "sentences": [{"text": "A red cube on the ball in the dark .", "phrases": phrases}],
    }
    (root / "entities.jsonl.gz").write_bytes(gzip.compress(json.dumps(line).encode() + b"\n"))
    torch.manual_seed(0)
    Scan(ScanConfig(region_dim=64, word_dim=4, dim=8), vocabulary, "grid:world/4").save_pretrained(tmp_path / "scan")
    words = ("eval", tmp_path / "scan", "--task", "grounding", "data=flickr8k", f"root={root}")
    code, said, error = saccade(*words, "split=test", "--json", tmp_path / "out.json")
    assert code == 0, error
    assert "test: 1 pictures, 2 phrases" in said
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["phrases"] == {"other": 2}
    own = found["results"][str(tmp_path / "scan")]
    assert (own["pointing"], own["upper_bound"]) == (100.0, 100.0)  # the boxes leave no place out
    code, _, error = saccade(*words, "split=dev")
    assert code == 2
    assert "test" in error
