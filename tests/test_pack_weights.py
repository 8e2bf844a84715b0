"""The card of a packed model has the figures of its task, and those of a grounder are what `saccade eval` prints."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from PIL import Image

from saccade.cli import main
from saccade.core.config import save_yaml
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models import Hierarchical, load_model
from saccade.training.run import run_config
from toy_scenes import SMALL


@pytest.fixture
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("pack_weights")


@pytest.fixture
def photos_with_boxes(tmp_path: Path) -> Path:
    """Three photos of a dev split, each with a thing and a person."""
    root = tmp_path / "flickr8k"
    (root / "images").mkdir(parents=True)
    lines = []
    for n in range(3):
        Image.effect_noise((60, 40), 90).convert("RGB").save(root / "images" / f"{n}.jpg")
        phrases = [
            {"first_word": 0, "n_words": 3, "phrase": "A red cube", "chain": "1", "types": ["other"]},
            {"first_word": 4, "n_words": 2, "phrase": "the ball", "chain": "2", "types": ["people"]},
        ]
        line = {"image": f"{n}.jpg", "width": 60, "height": 40, "split": "dev", "scene": [], "nobox": []}
        boxes = {"1": [[1, 1, 60, 40]], "2": [[1, 1, 30, 40]]}
        lines.append({**line, "boxes": boxes, "sentences": [{"text": "A red cube on the ball .", "phrases": phrases}]})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (root / "entities.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    return root


def make_run(folder: Path, vocabulary: Vocabulary, *parts: str) -> Path:
    """As training leaves it on another machine, whose folder of photos is not here."""
    torch.manual_seed(0)
    words = ["data=flickr8k", "root=/elsewhere/flickr8k", "extractor=grid:world/4", f"task.parts=[{','.join(parts)}]"]
    save_yaml(run_config("hierarchical", words), folder / "config.yaml")
    config = replace(SMALL, parts=parts, region_dim=64, answers=("red",))
    Hierarchical(config, vocabulary, "grid:world/4").save_pretrained(folder / "best")
    return folder


@pytest.mark.parametrize("limit", [None, 2])
def test_a_grounder_is_packed_and_its_card_has_what_eval_prints(
    script: ModuleType,
    vocabulary: Vocabulary,
    photos_with_boxes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limit: int | None,
) -> None:
    run, out = make_run(tmp_path / "run", vocabulary, "grounding"), tmp_path / "mine"
    script.main(run, out, root=photos_with_boxes, limit=limit)
    card = (out / "README.md").read_text()
    measured = "first 2 photos" if limit else "1,000 photos and 13,123 such phrases"
    assert f"In per cent on the {measured} of the dev split" in card
    assert "/elsewhere" not in card
    line = next(line for line in card.splitlines() if line.startswith("The last column is what"))
    words = [*line.split("`")[1].replace("root=DIR", f"root={photos_with_boxes}").split(), "--json", "figures.json"]
    assert words[-4:-2] == (["grounding", "limit=2"] if limit else ["--task", "grounding"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit):
        main()
    found = json.loads((tmp_path / "figures.json").read_text())
    assert sum(found["phrases"].values()) == 2 * (limit or 3)
    own = found["results"]["mine"]
    for figure, title in script.FIGURES["grounding"].items():
        row = [line for line in card.splitlines() if line.startswith(f"| {title} |")]
        assert [line.split("|")[3].strip() for line in row] == ([f"{own[figure]:.1f}"] if figure in own else [])
    for title in ("right box (IoU ≥ 0.5)", "right box (IoU ≥ 0.5), other", "points into the box, people"):
        assert f"| {title} |" in card
    before, after = (load_model(folder, Hierarchical).state_dict() for folder in (run, out))
    assert (out / "model.safetensors").stat().st_size < 0.6 * (run / "best" / "model.safetensors").stat().st_size
    for key, value in before.items():
        torch.testing.assert_close(after[key], value, atol=0.02, rtol=0.02)


def test_a_model_of_several_tasks_is_not_packed(script: ModuleType, vocabulary: Vocabulary, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", vocabulary, "matching", "grounding")
    with pytest.raises(SaccadeError, match="grounding and detection are packed"):
        script.main(run, tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize(
    ("task", "figures", "said"),
    [
        (
            "referring",
            {"accuracy": 71.26, "accuracy_people": 70.0, "chance": 31.0},
            "| in bytes | 71.3 | 70.0 | 31.0 |",
        ),
        ("relations", {"map": 12.34, "map_seen": 13.0, "map_unseen": 5.0}, "| in bytes | 12.3 | 13.0 | 5.0 |"),
    ],
)
def test_a_card_has_the_figures_that_a_task_measures(
    script: ModuleType, task: str, figures: dict[str, float], said: str
) -> None:
    card = script.card("mine", "# mine\n", {"in bytes": figures}, "saccade train", "grid:dinov2-s@224/8", task, None)
    assert said in card
    assert "saccade eval mine data=flickr8k root=DIR split=dev" in card
    assert "DINOv2" in card


def test_every_task_that_is_packed_says_what_its_model_learned_from(script: ModuleType) -> None:
    assert set(script.FIGURES) == set(script.LEARNED)
