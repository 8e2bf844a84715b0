"""`saccade eval --first`: a cross-encoder re-ranks the best of a first stage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from saccade.core.files import read_json
from saccade.metrics import ranks
from saccade.models import Matcher, load_model
from saccade.tasks.matching.evaluate import similarity_table
from saccade.tasks.matching.task import SPEC
from saccade.training.run import load_run_config
from toy_runs import IMAGES, make_features, make_run, saccade_command

SMALL = (
    *("heads=2", "hidden=24", "layers=1", "pooled_dim=16", "max_words=20", "initial_spread=0.5", "vocabulary=words"),
    *("backbone.train=false", "dropout=0", "attention_dropout=0"),
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("stages")
    features = make_features(folder / "features")
    return make_run(folder / "vse", features, "vse"), make_run(folder / "read", features, "pixelbert_matching", SMALL)


def test_the_best_of_the_first_stage_are_ranked_again(
    runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All candidates: the cross-encoder's own recalls. A few: between the first stage and a perfect order of them."""
    first, read = runs
    everything = 5 * IMAGES
    file = tmp_path / "found.json"
    assert saccade_command("eval", read, "--first", first, "--rerank", f"3,{everything}", "--json", file) == 0
    assert f"of {IMAGES * everything} pairs" in " ".join(capsys.readouterr().out.split())
    found = read_json(file)
    rows = found["results"]
    assert saccade_command("eval", read, first, "--json", file) == 0
    alone = read_json(file)["results"]
    assert rows[str(first)] == alone[str(first)]
    assert rows[f"{read}, best {everything}"]["rsum"] == pytest.approx(alone[str(read)]["rsum"])
    assert rows[f"perfect order, best {everything}"]["rsum"] == 600
    data = SPEC.open(load_run_config(first).data, "test")
    own = ranks(similarity_table(load_model(first, Matcher), data), data.image_of_text)
    for way, places in (("i2t", own.image_to_text), ("t2i", own.text_to_image)):
        within = 100 * float(np.mean(places < 3))
        assert rows["perfect order, best 3"][f"{way}_r1"] == pytest.approx(within)
        assert rows[f"{read}, best 3"][f"{way}_r1"] <= within
        for k in (5, 10):
            assert rows[f"{read}, best 3"][f"{way}_r{k}"] == alone[str(first)][f"{way}_r{k}"]
    assert saccade_command("eval", read, "--first", first, "--rerank", "3", "--blend", "0,1e6", "--json", file) == 0
    blended = read_json(file)["results"]
    assert blended[f"{read}, best 3"] == rows[f"{read}, best 3"]
    assert blended[f"{read} + 1e+06 × {first}, best 3"] == pytest.approx(rows[str(first)])  # the first's own order
    assert found["protocol"]["best"] == [3, everything]
    assert found["protocol"]["pairs"] == {str(read): IMAGES * everything}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--rerank", "0"), "whole numbers from 1 on"),
        (("--rerank", "8;9"), "whole numbers from 1 on"),
        (("--blend", "-1"), "numbers from 0 on"),
        (("--blend", "much"), "numbers from 0 on"),
        (("--folds", "2"), "--first ranks in two stages"),
    ],
)
def test_a_bad_option_gets_a_sentence(
    words: tuple[str, ...], sentence: str, runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    first, read = runs
    assert saccade_command("eval", read, "--first", first, *words) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_only_a_cross_encoder_ranks_again(runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    first, read = runs
    assert saccade_command("eval", first, "--first", read) == 2
    assert "holds a model of vse" in " ".join(capsys.readouterr().err.split())


def test_the_leaderboard_has_a_row_of_both_stages(
    runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The figures are those of `saccade eval --first`; what it costs is added up."""
    first, read = runs
    page, file = tmp_path / "board.md", tmp_path / "board.json"
    words = ("--first", first, "--rerank", "3", "--blend", "1")
    assert saccade_command("eval", read, *words, "--json", file) == 0
    wanted = read_json(file)["results"][f"{read} + 1 × {first}, best 3"]
    assert saccade_command("leaderboard", first, read, *words, "-o", page, "--json", file) == 0
    rows = {row["system"]: row for row in read_json(file)["rows"]}
    alone, both = rows["vse"], rows["pixelbert_matching"]
    assert both["figures"][0] == pytest.approx(wanted)
    assert both["variant"] == f"best 3 of {first.name} + 1 × its score"
    assert alone["variant"] == ""
    count = load_model(read, Matcher).parameter_count()
    assert both["cost"]["parameters"] == alone["cost"]["parameters"] + count
    assert both["cost"]["code_bytes"] > alone["cost"]["code_bytes"]
    said = page.read_text()
    assert f"- **best … of {first.name}**: a cross-encoder" in said.replace("\n  ", " ")
    assert "--rerank 3 --blend 1`" in said
    again = tmp_path / "again.md"
    assert saccade_command("leaderboard", "--from", file, "-o", again) == 0
    assert again.read_text() == said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("READ", "--first", "FIRST", "--ensembles"), "ensembles average whole tables"),
        (("FIRST", "--first", "FIRST"), "none of these models is one"),
        (("READ", "--first", "nowhere"), "nowhere"),
        (("READ", "--first", "FIRST", "--rerank", "0"), "greater than or equal to 1"),
    ],
)
def test_what_the_leaderboard_cannot_rank_again_gets_a_sentence(
    words: tuple[str, ...], sentence: str, runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    named = {"FIRST": runs[0], "READ": runs[1]}
    assert saccade_command("leaderboard", *(named.get(word, word) for word in words)) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
