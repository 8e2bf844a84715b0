"""The card of a model folder: what it learned from, how good it is and by which command, its licence and its use."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from saccade.language import Vocabulary
from saccade.models import Analogy, AnalogyConfig, Vse, VseConfig, load_model
from saccade.training.run import load_run_config, run_config
from toy_runs import make_features, saccade_command

SECTIONS = ["Data", "Figures", "Licence", "Intended use", "Settings"]


def test_training_writes_the_whole_card(tmp_path: Path) -> None:
    run, features = tmp_path / "run", make_features(tmp_path / "features", ("train", "dev"))
    words = ["epochs=1", "batch_size=4", "dim=8", "word_dim=4", "min_count=1", "accelerator=cpu", "pool=mean"]
    assert saccade_command("train", "scan", "data=precomp", f"root={features}", *words, "-o", run) == 0
    for folder in (run / "best", run / "last"):
        card = (folder / "README.md").read_text(encoding="utf-8")
        assert re.findall("^## (.*)$", card, re.MULTILINE) == SECTIONS
        assert "the split train of precomp (6 pictures, 30 texts)" in card
        assert re.search(r"^\| rsum \| \d", card, re.MULTILINE)
        assert "Of the split dev" in card
        assert str(tmp_path) not in card
    (command,) = re.findall("^saccade train .*$", card, re.MULTILINE)
    given = [word for word in shlex.split(command)[3:] if not word.startswith("data.root=")]
    assert run_config("scan", [*given, f"data.root={features}"]) == load_run_config(run)


def test_a_folder_written_again_keeps_what_is_known(tmp_path: Path) -> None:
    features = make_features(tmp_path / "features", ("train", "dev"))
    words = ["epochs=1", "batch_size=4", "dim=8", "word_dim=4", "min_count=1", "accelerator=cpu"]
    assert saccade_command("train", "vse", "data=precomp", f"root={features}", *words, "-o", tmp_path / "run") == 0
    load_model(tmp_path / "run").save_pretrained(tmp_path / "again")
    cards = [(folder / "README.md").read_text() for folder in (tmp_path / "run" / "best", tmp_path / "again")]
    assert cards[0] == cards[1]


def test_weights_of_unknown_origin_say_so(tmp_path: Path, vocabulary: Vocabulary) -> None:
    Vse(VseConfig(region_dim=4, word_dim=4, dim=4), vocabulary).save_pretrained(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert "Not known: these weights were not made by `saccade train`." in card
    assert "## Intended use" in card


def test_a_long_list_of_settings_is_cut(tmp_path: Path, vocabulary: Vocabulary) -> None:
    """A relation detector lists its triplets in its settings, ten thousand of them."""
    triplets = tuple((1, 1, n % 3 + 1) for n in range(5000))
    config = AnalogyConfig(
        classes=("green", "cube", "ball", "cone"),
        predicates=("is", "on"),
        triplets=triplets,
        occurrences=(1.0,) * len(triplets),
        region_dim=4,
        word_dim=4,
        hidden_dim=4,
        dim=4,
    )
    Analogy(config, vocabulary).save_pretrained(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert "| classes | ['green', 'cube', 'ball', 'cone'] |" in card
    assert "[1, 1, 2], … 5,000 in all] |" in card
    assert len(card) < 5000
