"""Analogy's checkpoints: options of every kind become settings, and what does not fit is told; folders of cases."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from saccade.core.errors import SaccadeError
from saccade.interop import GOLDENS, IMPORTERS
from saccade.interop.importers.relations import by_branch


@pytest.fixture
def folder(golden: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(golden / "analogy", tmp_path / "case"))


def change(folder: Path, **options: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | options))
    return folder / "model_epoch15.pth.tar"


def change_weights(file: Path, **weights: torch.Tensor) -> None:
    checkpoint = torch.load(file, weights_only=True)
    checkpoint["model"] |= {name.replace("__", "."): value for name, value in weights.items()}
    torch.save(checkpoint, file)


def test_options_become_settings(folder: Path) -> None:
    file = change(
        folder, analogy_type="vp", gamma="regdeepcond", thresh="value_0.25", sim_method="emb_word2vec",
        use_target=True, scale=2.0, ncommon=1, alpha_s=0.1, normalize_source=False,
    )  # fmt: skip
    change_weights(file, reg_network__A__0__weight=torch.randn(512, 24), reg_network__proj__weight=torch.randn(12, 36))
    config = IMPORTERS["analogy"](file).config
    assert (config.gamma, config.transform, config.similarity, config.use_target) == (
        "vp",
        "conditioned",
        "words",
        True,
    )
    assert (config.top, config.least_similarity, config.scale, config.shared_words) == (None, 0.25, 2.0, 1)
    assert (config.alpha_r, config.alpha_s, config.normalise_sources) == (0.8, 0.1, False)
    assert config.classes[3] == "cow"
    assert dict(zip(config.triplets, config.occurrences, strict=True))[1, 1, 2] == 30  # person-ride-horse


def test_a_verb_that_is_a_noun_too_has_its_own_vector(folder: Path) -> None:
    file = change(folder, predicates=["no_interaction", "ride", "horse", "feed"], triplets={"person-horse-bike": 3})
    model = IMPORTERS["analogy"](file)
    assert model.config.predicates[2] == "horse_verb"
    assert not torch.equal(model.names[2], model.names[8])


def test_branches_are_numbered_as_the_options_say() -> None:
    weights = {"visual_nets.1.proj.proj.0.bias": torch.zeros(1), "reg_network.A.0.weight": torch.ones(1)}
    found = by_branch(weights, {"sro": 0, "s": 1, "o": 2, "r": 3})
    assert list(found) == ["visual_nets.s.proj.proj.0.bias", "reg_network.A.0.weight"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"thresh": "best_5"}, "expected top_NUMBER or value_NUMBER"),
        ({"thresh": "top_many"}, "expected top_NUMBER or value_NUMBER"),
        ({"triplets": {"person-fly-horse": 3}}, "'person-fly-horse'"),
        ({"triplets": {"person-ride-horse": "often"}}, "a count expected"),
        ({"classes": "person"}, "classes is no list"),
        ({"classes": ["background", "person", "person", "cow", "bike", "car"]}, "named twice"),
        ({"gram_id": {"s": 0}}, "gram_id numbers the branches"),
        ({"criterion": "bidirectional_ranking"}, "not logloss"),
        ({"gamma": "regwide"}, "gamma is 'regwide'"),
        ({"classes": ["background", "person"], "triplets": {}}, "does not fit"),
    ],
)
def test_options_that_do_not_fit_are_told(folder: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SaccadeError, match=message):
        IMPORTERS["analogy"](change(folder, **options))


def test_what_lies_beside_a_checkpoint_is_needed_and_its_word_tables_are_one(folder: Path) -> None:
    file = folder / "model_epoch15.pth.tar"
    change_weights(file, language_nets__2__0__emb__weight=torch.zeros(10, 9))
    with pytest.raises(SaccadeError, match="one table of frozen word vectors"):
        IMPORTERS["analogy"](file)
    (folder / "config.json").unlink()
    with pytest.raises(SaccadeError, match=r"config\.json does not exist"):
        IMPORTERS["analogy"](file)


def test_a_folder_may_hold_several_cases(folder: Path) -> None:
    shutil.copytree(folder, folder.parent / "other")
    cases = list(GOLDENS["analogy"].verify(folder.parent))
    assert [case.name for case in cases] == ["case", "other"]
    assert all(stage.holds for case in cases for stage in case.stages)


def test_figures_without_a_number_are_told(golden: Path, tmp_path: Path) -> None:
    shutil.copy(golden / "task_metrics" / "metrics.npz", tmp_path)
    for text, message in (("[]", "figures by name"), ('{"ctr": {"AUC": "high"}}', "is no number")):
        (tmp_path / "expected.json").write_text(text)
        with pytest.raises(SaccadeError, match=message):
            list(GOLDENS["task_metrics"].verify(tmp_path))
