"""The official tools' tokens and scores are reproduced, and any change in them is caught."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from saccade.core.errors import SaccadeError
from saccade.interop import Stage, verify

PICTURES = 30


@pytest.fixture
def folder(golden: Path, tmp_path: Path) -> Path:
    """The tokens of a few pictures of the golden, with scores that are for each picture alone."""
    for part in ("captions", "tokenized"):
        content = read(golden / "caption_metrics" / f"toy_{part}.json")
        kept = list(content["candidates"])[:PICTURES]
        few = {key: {image: content[key][image] for image in kept} for key in ("candidates", "references")}
        write(tmp_path / f"few_{part}.json", few)
    scores = read(golden / "caption_metrics" / "toy_scores.json")["per_image"]
    alone = ("Bleu_1", "Bleu_4", "ROUGE_L", "METEOR")  # CIDEr of a picture depends on all the others
    rows = {image: {metric: scores[image][metric] for metric in alone} for image in kept}
    write(tmp_path / "few_scores.json", {"corpus": {}, "per_image": rows})
    return tmp_path


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def stages(folder: Path) -> list[Stage]:
    return [stage for case in verify("caption_metrics", folder) for stage in case.stages]


def broken(folder: Path) -> list[str]:
    return [stage.stage for stage in stages(folder) if not stage.holds]


def test_every_score_of_the_golden_holds(golden: Path) -> None:
    found = stages(golden / "caption_metrics")
    assert [stage for stage in found if not stage.holds] == []
    assert len(found) == 2 * (2 + 9 * 2)
    exact = [stage for stage in found if "METEOR" not in stage.stage]
    assert max(stage.difference for stage in exact) < 1e-12


def test_a_folder_of_other_size_holds(folder: Path) -> None:
    assert broken(folder) == []
    assert len(stages(folder)) == 2 + 4


def test_a_changed_score_is_caught(folder: Path) -> None:
    content = read(folder / "few_scores.json")
    next(iter(content["per_image"].values()))["ROUGE_L"] += 1e-5
    write(folder / "few_scores.json", content)
    assert broken(folder) == ["per_image ROUGE_L"]


def test_a_changed_token_is_caught(folder: Path) -> None:
    content = read(folder / "few_tokenized.json")
    image = next(iter(content["candidates"]))
    content["candidates"][image] += " ."
    write(folder / "few_tokenized.json", content)
    assert f"tokens of {PICTURES} candidates (sentences that differ)" in broken(folder)


def test_meteor_in_another_order_is_caught(folder: Path) -> None:
    content = read(folder / "few_scores.json")
    rows = list(content["per_image"].values())
    for row, value in zip(rows, sorted(row["METEOR"] for row in rows), strict=True):
        row["METEOR"] = value
    write(folder / "few_scores.json", content)
    assert [stage for stage in broken(folder) if "METEOR" in stage]


def test_a_metric_nobody_knows_is_caught_and_spice_is_excused(folder: Path) -> None:
    content = read(folder / "few_scores.json")
    content["corpus"] = {"SPICE": 0.2, "CLIPScore": 0.7}
    write(folder / "few_scores.json", content)
    assert broken(folder) == ["corpus CLIPScore (stored, never compared)"]
    assert [stage.stage for stage in stages(folder) if stage.excuse] == ["corpus SPICE"]


def test_scores_need_no_tokens_beside_them(folder: Path) -> None:
    (folder / "few_tokenized.json").unlink()
    assert broken(folder) == []
    (folder / "few_captions.json").unlink()
    with pytest.raises(SaccadeError, match=r"few_captions\.json was expected"):
        stages(folder)


@pytest.mark.parametrize(
    ("part", "content", "sentence"),
    [
        ("captions", [], '"candidates" and "references"'),
        ("captions", {"candidates": {"1": 5}, "references": {"1": ["a"]}}, "no candidate that is one sentence"),
        ("captions", {"candidates": {"1": "a"}, "references": {}}, "no list of reference sentences"),
        ("captions", {"candidates": {"1": "a"}, "references": {"1": ["a"]}}, "has not the captions"),
        ("scores", {"corpus": {"Bleu_1": "x"}}, "a number for each metric"),
        ("scores", {"per_image": {"1": {}}}, "not the same pictures"),
        ("scores", 5, '"corpus" and "per_image" were expected'),
    ],
)
def test_bad_files_are_refused(folder: Path, part: str, content: Any, sentence: str) -> None:
    write(folder / f"few_{part}.json", content)
    with pytest.raises(SaccadeError, match=sentence):
        stages(folder)
