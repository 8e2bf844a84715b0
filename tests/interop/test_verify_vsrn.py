"""Official VSRN: every stage holds, in forms that are not stored too; changes are caught, other files refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from vsrn_case import make_case

from saccade.core.errors import SaccadeError
from saccade.interop import GOLDENS, IMPORTERS, Stage, read_checkpoint, verify
from saccade.interop.words import read_vocabulary


def stages(folder: Path) -> list[Stage]:
    return [stage for case in verify("vsrn", folder) for stage in case.stages]


def failures(folder: Path) -> list[str]:
    return [stage.stage for stage in stages(folder) if not stage.holds]


OPTIONS: dict[str, dict[str, Any]] = {
    "order": {"measure": "order", "use_abs": True},
    "long vectors": {"no_imgnorm": True, "num_layers": 2},
    "flickr": {"data_name": "f30k_precomp", "measure": "order", "max_len": 60},
    "both ways": {"bidirectional": 1, "max_len": 8},
    "short": {"data_name": "f8k_precomp", "max_len": 4},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_other_options_hold_too(name: str, tmp_path: Path) -> None:
    """Against a plain float64 computation of our own, in the form of a golden case."""
    make_case(tmp_path, "case", **OPTIONS[name])
    assert failures(tmp_path) == []
    assert len(stages(tmp_path)) >= 15


def test_without_the_generator_captions_are_excused(tmp_path: Path) -> None:
    make_case(tmp_path, "case", captions_kept=False)
    excused = {stage.stage for stage in stages(tmp_path) if stage.excuse}
    assert failures(tmp_path) == []
    assert {"caption_logprobs", "loss_caption", "loss_total"} <= excused
    assert "caption_labels" not in excused


def test_the_forms_become_configs(golden: Path) -> None:
    coco, flickr = (IMPORTERS["vsrn"](golden / "vsrn" / f"{name}.pth.tar").config for name in ("coco", "f30k"))
    assert (coco.norm_before, coco.norm_after, coco.final_norm) == ("channels", "channels", False)
    assert (flickr.norm_before, flickr.norm_after, flickr.final_norm) == ("none", "channels", True)
    assert coco.caption_weight == 0  # its generator is not in the file


def test_an_imported_model_has_its_words(golden: Path) -> None:
    vocabulary = read_vocabulary(golden / "vsrn" / "vocab.pkl")
    model = IMPORTERS["vsrn"](golden / "vsrn" / "coco.legacy.pth.tar", vocabulary)
    assert model.vocabulary == vocabulary
    assert not model.training


def changed(golden: Path, path: Path, **options: object) -> Path:
    checkpoint = read_checkpoint(golden / "vsrn" / "f30k.pth.tar")
    vars(checkpoint["opt"]).update(options)
    torch.save(checkpoint, path)
    return path


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"embed_size": 33}, "do not fit the options"),
        ({"measure": "euclid"}, "measure is 'euclid', expected one of cosine, order"),
        ({"data_name": "f30k"}, "whole photos cannot be imported"),
    ],
)
def test_other_options_are_refused(golden: Path, tmp_path: Path, options: dict[str, object], sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        IMPORTERS["vsrn"](changed(golden, tmp_path / "a.pth.tar", **options))


def test_other_checkpoints_are_refused(golden: Path) -> None:
    with pytest.raises(SaccadeError, match='the options have no "measure", so this is no VSRN'):
        IMPORTERS["vsrn"](golden / "scan" / "unigru.pth.tar")


def test_old_files_that_count_no_batches_load(golden: Path, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(golden / "vsrn" / "f30k.pth.tar")
    images, texts = checkpoint["model"]
    checkpoint["model"] = [{k: v for k, v in images.items() if "num_batches" not in k}, texts]
    torch.save(checkpoint, tmp_path / "old.pth.tar")
    whole = IMPORTERS["vsrn"](golden / "vsrn" / "f30k.pth.tar").state_dict()
    for key, value in IMPORTERS["vsrn"](tmp_path / "old.pth.tar").state_dict().items():
        assert "num_batches" in key or torch.equal(value, whole[key])


def test_a_generator_of_another_size(golden: Path, tmp_path: Path) -> None:
    for name in ("coco.pth.tar", "coco.io.npz", "vocab.pkl"):
        shutil.copy(golden / "vsrn" / name, tmp_path)
    make_case(tmp_path, "other")
    (tmp_path / "other.caption_model.pt").replace(tmp_path / "coco.caption_model.pt")
    with pytest.raises(SaccadeError, match="do not fit the options"):
        failures(tmp_path)


def test_names(golden: Path) -> None:
    rows = next(iter(GOLDENS["vsrn"].open(golden / "vsrn"))).imported.weight_map.rows
    ours = {official: row.ours for official, (row,) in rows.items()}
    assert ours["img_enc.Rs_GCN_3.W.1.running_mean"] == "blocks.2.norm.running_mean"
    assert ours["txt_enc.rnn.weight_ih_l0"] == "words.rnn.weight_ih_l0"
    assert ours["caption_model.decoder.rnn.bias_hh_l0"] == "caption.writer.bias_hh"
