"""Official checkpoints: every stage is reproduced, a wrong model is caught, nothing harmful is unpickled."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.core.errors import SaccadeError
from saccade.interop import IMPORTERS, verify
from saccade.interop.harness import difference
from saccade.language import Vocabulary


def one_case(golden: Path, folder: Path, **changes: np.ndarray) -> Path:
    """A copy of one golden case with some stored arrays replaced or added."""
    folder.mkdir()
    for name in ("unigru.pth.tar", "vocab.json"):
        shutil.copy(golden / "scan" / name, folder)
    with np.load(golden / "scan" / "unigru.io.npz") as stored:
        np.savez(folder / "unigru.io.npz", **{**stored, **changes})
    return folder


def failures(folder: Path) -> list[str]:
    return [s.stage for case in verify("scan", folder) for s in case.stages if not s.holds]


def test_a_wrong_shape_is_a_failure_not_a_broadcast() -> None:
    assert difference(np.zeros((2, 2)), np.zeros((2, 1))) == float("inf")


def test_recalls_are_compared_where_a_case_stores_them(golden: Path, tmp_path: Path) -> None:
    from saccade.metrics import ranks, summary

    with np.load(golden / "scan" / "unigru.io.npz") as stored:
        table = stored["sims64__i2t__LogSumExp__clipped_l2norm"]
    found = summary(ranks(table, np.arange(30) // 5).image_to_text)
    right = np.array([found[m] for m in ("r1", "r5", "r10", "medr", "meanr")])
    assert failures(one_case(golden, tmp_path / "right", metrics_i2t=right)) == []
    assert failures(one_case(golden, tmp_path / "wrong", metrics_i2t=right + 1)) == ["metrics_i2t"]


def official(path: Path, **changes: object) -> Path:
    """A small SCAN checkpoint as the official code writes it, with fields changed or (None) left out."""
    options = argparse.Namespace(
        img_dim=8, word_dim=4, embed_size=6, num_layers=1, bi_gru=False, cross_attn="t2i", agg_func="Mean",
        raw_feature_norm="clipped_l2norm", lambda_softmax=9.0, lambda_lse=6.0, no_imgnorm=True, no_txtnorm=True,
    )  # fmt: skip
    gru = torch.nn.GRU(4, 6)
    words = {"embed.weight": torch.randn(9, 4), **{f"rnn.{k}": v for k, v in gru.state_dict().items()}}
    regions = {"fc.weight": torch.randn(6, 8), "fc.bias": torch.zeros(6), "left.over": torch.zeros(1)}
    checkpoint = {"epoch": 1, "model": [regions, words], "opt": options, "best_rsum": 1.0, "Eiters": 2}
    torch.save({k: v for k, v in {**checkpoint, **changes}.items() if v is not None}, path)
    return path


def test_options_become_a_config(tmp_path: Path) -> None:
    model = IMPORTERS["scan"](official(tmp_path / "a.pth.tar"))
    assert (model.config.unit_regions, model.config.unit_words, model.config.pool) == (False, False, "mean")
    assert len(model.vocabulary) == 9


def test_checkpoints_of_a_data_parallel_model_load(tmp_path: Path) -> None:
    plain = torch.load(official(tmp_path / "a.pth.tar"), weights_only=False)
    wrapped = [{f"module.{k}": v for k, v in part.items()} for part in plain["model"]]
    model = IMPORTERS["scan"](official(tmp_path / "b.pth.tar", model=wrapped))
    assert torch.equal(model.words.embed.weight, wrapped[1]["module.embed.weight"])


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("harm-was-done",)


def test_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for new_container in (True, False):
        torch.save({"model": Harmful()}, "evil.pth.tar", _use_new_zipfile_serialization=new_container)
        with pytest.raises(SaccadeError, match=r"refused: it wants to run .*mkdir"):
            IMPORTERS["scan"]("evil.pth.tar")
        assert not Path("harm-was-done").exists()


@pytest.mark.parametrize("container", ["bigru.pth.tar", "bigru.legacy.pth.tar"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_checkpoint_cut_short(golden: Path, tmp_path: Path, container: str, share: float) -> None:
    whole = (golden / "scan" / container).read_bytes()
    (tmp_path / "cut.pth.tar").write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(SaccadeError, match=r"cut\.pth\.tar is no PyTorch checkpoint"):
        IMPORTERS["scan"](tmp_path / "cut.pth.tar")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": None}, 'has no "model"'),
        ({"opt": None}, 'has no "opt"'),
        ({"model": [{}, {}, {}]}, "3 parts"),
        ({"model": [{}, {}]}, "no embed.weight"),
        ({"opt": argparse.Namespace(img_dim=8)}, 'the options have no "word_dim"'),
        ({"model": [{"fc.weight": torch.zeros(6, 5)}, {"embed.weight": torch.zeros(9, 4)}]}, "do not fit the options"),
    ],
)
def test_other_checkpoints_are_refused(tmp_path: Path, changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        IMPORTERS["scan"](official(tmp_path / "other.pth.tar", **changes))


def test_a_vocabulary_of_another_size(tmp_path: Path, vocabulary: Vocabulary) -> None:
    with pytest.raises(SaccadeError, match="knows 9 words, the vocabulary has 20"):
        IMPORTERS["scan"](official(tmp_path / "a.pth.tar"), vocabulary)


@pytest.mark.parametrize(("name", "sentence"), [("scna", 'did you mean "scan"'), ("scan", "holds no case")])
def test_nothing_to_verify(tmp_path: Path, name: str, sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        list(verify(name, tmp_path))
