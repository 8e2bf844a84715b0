"""Figures are of pictures that a model has not seen, or say plainly that it was trained on them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from saccade.cli import main
from saccade.core.errors import SaccadeError
from saccade.data import Caption, StoreWriter, write_captions
from saccade.lab.claims.claim import load_claim
from saccade.lab.claims.plan import Request, plan
from toy_runs import make_features, make_run

Saccade = Callable[..., tuple[int, str, str]]
WORDS = [f"{first}{last}" for first in "bdfgklmn" for last in ("a", "e", "i", "o", "u")]
SMALL = ["epochs=60", "batch_size=50", "dim=32", "word_dim=16", "min_count=1", "accelerator=cpu", "learning_rate=0.01"]


@pytest.fixture(scope="module")
def nonsense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on random captions of random pictures, none of which names a split."""
    folder, draw = tmp_path_factory.mktemp("nonsense"), np.random.default_rng(0)
    captions = []
    with StoreWriter(folder / "store", 24) as writer:
        for n in range(300):
            writer.append(f"{n}.jpg", draw.normal(size=(2, 24)).astype(np.float32), np.tile([0, 0, 1, 1], (2, 1)))
            captions.append(Caption(f"{n}.jpg", " ".join(draw.choice(WORDS, 5))))
    write_captions(folder / "store" / "captions.jsonl", captions)
    with pytest.MonkeyPatch.context() as patch:
        words = ["data=store", f"root={folder / 'store'}", "evaluate_every=1000", *SMALL]
        patch.setattr("sys.argv", ["saccade", "train", "vse", *words, "-o", str(folder / "run")])
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code
    return folder


def test_random_captions_come_out_near_chance(nonsense: Path, tmp_path: Path, saccade: Saccade) -> None:
    """Where the run knows its training pairs by heart, and says so."""
    file, run = tmp_path / "figures.json", str(nonsense / "run")
    for folder in (run, f"{run}/best"):
        assert saccade("eval", folder, "--json", file)[0] == 0
        unseen = json.loads(file.read_text())
        assert unseen["results"][folder]["rsum"] < 1.5 * unseen["results"]["chance"]["rsum"]
        assert "trained_on" not in unseen
    code, out, _ = saccade("eval", run, "--split", "train", "--json", file)
    assert (code, "(TRAINED ON)" in out, "nothing of new pictures" in out) == (0, True, True)
    seen = json.loads(file.read_text())
    assert seen["results"][run]["rsum"] > 6 * seen["results"]["chance"]["rsum"]
    assert seen["trained_on"] == [run]


@pytest.mark.parametrize(
    "words",
    [
        ["eval", "RUN", "test_split=train"],
        ["eval", "RUN/best", "test_split=train+dev"],
        ["calibrate", "RUN", "--split", "train"],
        ["leaderboard", "RUN", "--split", "all"],
        ["probe", "RUN", "split=train"],
    ],
)
def test_no_verb_measures_on_what_was_trained_on_unasked(nonsense: Path, saccade: Saccade, words: list[str]) -> None:
    code, _, error = saccade(*(word.replace("RUN", str(nonsense / "run")) for word in words))
    assert code == 2
    assert "was trained on pictures of" in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize("system", ["updown", "unsupervised", "scan"])
def test_it_holds_for_every_task(tmp_path: Path, saccade: Saccade, system: str) -> None:
    run = make_run(tmp_path / "run", make_features(tmp_path / "features", ("train", "test")), system)
    code, _, error = saccade("eval", run, "test_split=train", "--device", "cpu")
    assert (code, f'{run} was trained on pictures of "train"' in error) == (2, True)


def test_a_run_is_not_judged_by_what_it_learns_from(tmp_path: Path, saccade: Saccade) -> None:
    words = ["train", "densecap", "pictures=40", "train_split=train+dev", "-o", tmp_path / "run"]
    code, _, error = saccade(*words)
    assert code == 2
    assert "dev_split=dev is part of train_split=train+dev; give another, or held_out=10" in error
    assert not (tmp_path / "run").exists()


def test_claims_are_not_judged_by_what_was_trained_on() -> None:
    request = Request(("world",), 1, ("train_split=train+test",), None, "cpu", (), ())
    with pytest.raises(SaccadeError, match=r"is judged by test, and train_split=train[+]test would learn from it"):
        plan([load_claim("scan-attention")], request)
