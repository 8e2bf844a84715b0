"""Questions of several data sets as one: data=daquar+vqa_rad root=FOLDER, which holds both folders."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
import torch
from question_samples import daquar_table, rad_lines
from rich.console import Console

from saccade.core.errors import SaccadeError
from saccade.data import DataConfig
from saccade.data.registry import same_data
from saccade.features import open_questions
from saccade.models import load_model
from saccade.training.run import learned_from, run_config, train_run

EXTRACTOR = "grid:world@16"


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataConfig:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    daquar_table(tmp_path / "daquar")
    rad_lines(tmp_path / "vqa_rad")
    return DataConfig("daquar+vqa_rad", tmp_path, extractor=EXTRACTOR)


@pytest.mark.parametrize("in_memory", [False, True])
def test_every_question_keeps_its_picture_and_its_answer(both: DataConfig, in_memory: bool) -> None:
    assert both.root is not None
    config = DataConfig("daquar+vqa_rad", both.root, extractor=EXTRACTOR, in_memory=in_memory)
    joined = open_questions(config, "train")
    parts = [
        open_questions(DataConfig(name, both.root / name, extractor=EXTRACTOR), "train")
        for name in ("daquar", "vqa_rad")
    ]
    assert joined.texts == parts[0].texts + parts[1].texts
    assert joined.answers == parts[0].answers + parts[1].answers
    assert joined.ids[0] == f"daquar/{parts[0].ids[0]}"
    assert joined.ids[-1] == f"vqa_rad/{parts[1].ids[-1]}"
    assert set(joined.kinds) == {"daquar_object", "daquar_number", "vqa_rad_closed", "vqa_rad_open"}
    expected = [p.images.batch(p.pictures.image_of_text.tolist()).features for p in parts]
    found = joined.images.batch(joined.pictures.image_of_text.tolist())
    torch.testing.assert_close(found.features.float(), torch.cat(expected).float())
    assert joined.pictures.extractor == EXTRACTOR


def test_of_a_sum_of_splits_each_data_set_gives_those_it_has(both: DataConfig) -> None:
    assert open_questions(both, "train+extra").texts == open_questions(both, "train").texts
    with pytest.raises(SaccadeError, match="no split"):
        open_questions(both, "extra")


def test_a_sum_shares_pictures_with_each_of_its_data_sets(both: DataConfig) -> None:
    assert both.root is not None
    alone = DataConfig("daquar", both.root / "daquar")
    assert same_data(both, alone)
    assert same_data(alone, both)
    assert not same_data(both, DataConfig("daquar", both.root / "elsewhere"))


def test_a_sum_that_cannot_be_read_is_one_sentence(both: DataConfig) -> None:
    with pytest.raises(SaccadeError, match="needs a folder: give root=FOLDER, which holds daquar/ and vqa_rad/"):
        open_questions(DataConfig("daquar+vqa_rad"), "train")
    with pytest.raises(SaccadeError, match="names a data set twice"):
        open_questions(DataConfig("daquar+daquar", both.root), "train")
    with pytest.raises(SaccadeError, match="flickr8k is not a folder"):
        open_questions(DataConfig("daquar+flickr8k", both.root, extractor=EXTRACTOR), "train")
    with pytest.raises(SaccadeError, match="there is no data set"):
        open_questions(DataConfig("daquar+dakuar", both.root, extractor=EXTRACTOR), "train")
    with pytest.raises(SaccadeError, match="learns from one data set"):
        open_questions(both, "train", 32)


def test_a_model_learns_from_a_sum_and_its_card_says_how(both: DataConfig, tmp_path: Path) -> None:
    words = ["data=daquar+vqa_rad", f"root={both.root}", f"extractor={EXTRACTOR}", "dim=8", "word_dim=6"]
    config = run_config("updown_vqa", [*words, "answer_min_count=1", "epochs=1", "batch_size=4", "accelerator=cpu"])
    train_run(config, tmp_path / "run", console=Console(file=StringIO()))
    assert "desk" in load_model(tmp_path / "run").config.answers
    card = (tmp_path / "run" / "best" / "README.md").read_text()
    assert "saccade train updown_vqa data=daquar+vqa_rad " in card
    assert "root=data " in card
    assert "NYU Depth v2" in card
    assert "CC0" in card
    assert learned_from(tmp_path / "run", DataConfig("daquar", tmp_path / "daquar"), "train")
    assert not learned_from(tmp_path / "run", DataConfig("daquar", tmp_path / "daquar"), "dev")
