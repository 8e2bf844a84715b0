"""SCAN, VSRN, CAMP, IMRAM and GSMN: other forms hold too, nothing harmful is unpickled, other files are refused."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from vsrn_case import make_case

from saccade.core.errors import SaccadeError
from saccade.interop import GOLDENS, IMPORTERS, Stage, read_checkpoint, verify
from saccade.interop.harness import difference
from saccade.interop.words import read_vocabulary
from saccade.language import Vocabulary
from saccade.models import Imram


def one_case(golden: Path, folder: Path, **changes: np.ndarray) -> Path:
    """A copy of one golden case with some stored arrays replaced or added."""
    folder.mkdir()
    for name in ("unigru.pth.tar", "vocab.json"):
        shutil.copy(golden / "scan" / name, folder)
    with np.load(golden / "scan" / "unigru.io.npz") as stored:
        np.savez(folder / "unigru.io.npz", **{**stored, **changes})
    return folder


def scan_failures(folder: Path) -> list[str]:
    return [s.stage for case in verify("scan", folder) for s in case.stages if not s.holds]


def test_a_wrong_shape_is_a_failure_not_a_broadcast() -> None:
    assert difference(np.zeros((2, 2)), np.zeros((2, 1))) == float("inf")


def test_recalls_are_compared_where_a_case_stores_them(golden: Path, tmp_path: Path) -> None:
    from saccade.metrics import ranks, summary

    with np.load(golden / "scan" / "unigru.io.npz") as stored:
        table = stored["sims64__i2t__LogSumExp__clipped_l2norm"]
    found = summary(ranks(table, np.arange(30) // 5).image_to_text)
    right = np.array([found[m] for m in ("r1", "r5", "r10", "medr", "meanr")])
    assert scan_failures(one_case(golden, tmp_path / "right", metrics_i2t=right)) == []
    assert scan_failures(one_case(golden, tmp_path / "wrong", metrics_i2t=right + 1)) == ["metrics_i2t"]


def scan_checkpoint(path: Path, **changes: object) -> Path:
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
    model = IMPORTERS["scan"](scan_checkpoint(tmp_path / "a.pth.tar"))
    assert (model.config.unit_regions, model.config.unit_words, model.config.pool) == (False, False, "mean")
    assert len(model.vocabulary) == 9


def test_checkpoints_of_a_data_parallel_model_load(tmp_path: Path) -> None:
    plain = torch.load(scan_checkpoint(tmp_path / "a.pth.tar"), weights_only=False)
    wrapped = [{f"module.{k}": v for k, v in part.items()} for part in plain["model"]]
    model = IMPORTERS["scan"](scan_checkpoint(tmp_path / "b.pth.tar", model=wrapped))
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
def test_other_checkpoints_are_no_scan(tmp_path: Path, changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        IMPORTERS["scan"](scan_checkpoint(tmp_path / "other.pth.tar", **changes))


def test_a_vocabulary_of_another_size(tmp_path: Path, vocabulary: Vocabulary) -> None:
    with pytest.raises(SaccadeError, match="knows 9 words, the vocabulary has 20"):
        IMPORTERS["scan"](scan_checkpoint(tmp_path / "a.pth.tar"), vocabulary)


@pytest.mark.parametrize(("name", "sentence"), [("scna", 'did you mean "scan"'), ("scan", "holds no case")])
def test_nothing_to_verify(tmp_path: Path, name: str, sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        list(verify(name, tmp_path))


def vsrn_stages(folder: Path) -> list[Stage]:
    return [stage for case in verify("vsrn", folder) for stage in case.stages]


def vsrn_failures(folder: Path) -> list[str]:
    return [stage.stage for stage in vsrn_stages(folder) if not stage.holds]


VSRN_OPTIONS: dict[str, dict[str, Any]] = {
    "order": {"measure": "order", "use_abs": True},
    "long vectors": {"no_imgnorm": True, "num_layers": 2},
    "flickr": {"data_name": "f30k_precomp", "measure": "order", "max_len": 60},
    "both ways": {"bidirectional": 1, "max_len": 8},
    "short": {"data_name": "f8k_precomp", "max_len": 4},
}


@pytest.mark.parametrize("name", VSRN_OPTIONS)
def test_other_options_of_vsrn_hold_too(name: str, tmp_path: Path) -> None:
    """Against a plain float64 computation of our own, in the form of a golden case."""
    make_case(tmp_path, "case", **VSRN_OPTIONS[name])
    assert vsrn_failures(tmp_path) == []
    assert len(vsrn_stages(tmp_path)) >= 15


def test_without_the_generator_captions_are_excused(tmp_path: Path) -> None:
    make_case(tmp_path, "case", captions_kept=False)
    excused = {stage.stage for stage in vsrn_stages(tmp_path) if stage.excuse}
    assert vsrn_failures(tmp_path) == []
    assert {"caption_logprobs", "loss_caption", "loss_total"} <= excused
    assert "caption_labels" not in excused


def test_the_forms_of_vsrn_become_configs(golden: Path) -> None:
    coco, flickr = (IMPORTERS["vsrn"](golden / "vsrn" / f"{name}.pth.tar").config for name in ("coco", "f30k"))
    assert (coco.norm_before, coco.norm_after, coco.final_norm) == ("channels", "channels", False)
    assert (flickr.norm_before, flickr.norm_after, flickr.final_norm) == ("none", "channels", True)
    assert coco.caption_weight == 0  # its generator is not in the file


def test_an_imported_vsrn_has_its_words(golden: Path) -> None:
    vocabulary = read_vocabulary(golden / "vsrn" / "vocab.pkl")
    model = IMPORTERS["vsrn"](golden / "vsrn" / "coco.legacy.pth.tar", vocabulary)
    assert model.vocabulary == vocabulary
    assert not model.training


def vsrn_changed(golden: Path, path: Path, **options: object) -> Path:
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
def test_other_options_of_vsrn_are_refused(
    golden: Path, tmp_path: Path, options: dict[str, object], sentence: str
) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        IMPORTERS["vsrn"](vsrn_changed(golden, tmp_path / "a.pth.tar", **options))


def test_other_checkpoints_are_no_vsrn(golden: Path) -> None:
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
        vsrn_failures(tmp_path)


def test_names_of_vsrn(golden: Path) -> None:
    rows = next(iter(GOLDENS["vsrn"].open(golden / "vsrn"))).imported.weight_map.rows
    ours = {official: row.ours for official, (row,) in rows.items()}
    assert ours["img_enc.Rs_GCN_3.W.1.running_mean"] == "blocks.2.norm.running_mean"
    assert ours["txt_enc.rnn.weight_ih_l0"] == "words.rnn.weight_ih_l0"
    assert ours["caption_model.decoder.rnn.bias_hh_l0"] == "caption.writer.bias_hh"


def test_the_padding_of_the_official_mean_matters(golden: Path) -> None:
    """Its 50 places are part of the function: without them the scores are others."""
    case = next(case for case in GOLDENS["camp"].open(golden / "camp") if case.case.name == "cross_attention_new")
    masked = case.imported.variant(text_length=0)
    difference = (masked(case.images, case.texts) - case.case.tensor("sims")).abs().max()
    assert difference > 1e-3


def test_the_number_of_heads_is_read_from_the_weights_and_words_from_the_vocabulary(golden: Path) -> None:
    words = read_vocabulary(golden / "camp" / "vocab.pkl")
    model = IMPORTERS["camp"](golden / "camp" / "gate_fusion.legacy.pth.tar", words)
    assert (model.config.heads, model.config.rounds, model.config.text_length) == (4, 1, 0)
    assert model.vocabulary == words


@pytest.mark.parametrize(
    ("changes", "options", "sentence"),
    [
        ({"model": [{}, {}]}, {}, "2 parts, a CAMP checkpoint has 3"),
        ({}, {"measure": "cosine"}, "measure is 'cosine', expected one of gate_fusion_new"),
        ({}, {"self_attention": True}, "self_attention is on"),
        ({}, {"embed_size": 16}, "do not fit the options"),
        ({}, {"img_dim": None}, 'the options have no "img_dim"'),
        ({"model": [{}, {}, {}]}, {}, "no embed.weight"),
    ],
)
def test_other_checkpoints_are_no_camp(
    golden: Path, tmp_path: Path, changes: dict[str, Any], options: dict[str, Any], sentence: str
) -> None:
    checkpoint = torch.load(golden / "camp" / "gate_fusion_new.plainopt.pth.tar", weights_only=True)
    checkpoint |= changes
    checkpoint["opt"] = {k: v for k, v in {**checkpoint["opt"], **options}.items() if v is not None}
    torch.save(checkpoint, tmp_path / "other.pth.tar")
    with pytest.raises(SaccadeError, match=sentence):
        IMPORTERS["camp"](tmp_path / "other.pth.tar")


def imram_checkpoint(path: Path, state: dict[str, torch.Tensor] | None = None, **options: object) -> Path:
    """A small checkpoint as the official code writes it: two layers, weight norm, one step of the regions."""
    given = {
        "img_dim": 8, "word_dim": 4, "embed_size": 6, "num_layers": 2, "bi_gru": True, "no_imgnorm": True,
        "no_txtnorm": False, "precomp_enc_type": "weight_norm", "model_mode": "image_IMRAM", "iteration_step": 2,
        "no_IMRAM_norm": False, "raw_feature_norm": "softmax", "lambda_softmax": 4.0, "margin": 0.1,
        "agg_func": "LogSumExp", "lambda_lse": 6.0, "cross_attn": "t2i", **options,
    }  # fmt: skip
    torch.manual_seed(0)
    gru = torch.nn.GRU(4, 6, 2, bidirectional=True)
    parts = {f"txt_enc.rnn.{k}": v for k, v in gru.state_dict().items()}
    parts |= {"txt_enc.embed.weight": torch.randn(9, 4), "img_enc.fc_local.bias": torch.randn(6)}
    parts |= {"img_enc.fc_local.weight_v": torch.randn(6, 8), "img_enc.fc_local.weight_g": torch.randn(1, 1)}
    for name in ("linear_t2i", "gate_t2i", "linear_i2t", "gate_i2t"):
        parts |= {f"{name}.weight": torch.randn(6, 12), f"{name}.bias": torch.randn(6)}
    wrapped = {f"module.{k}": v for k, v in {**parts, **(state or {})}.items()}
    checkpoint = {"epoch": 3, "model": wrapped, "best_rsum": 1.0, "opt": argparse.Namespace(**given)}
    torch.save(checkpoint, path)
    return path


def test_options_of_imram_become_a_config_and_unused_memories_are_left_out(tmp_path: Path) -> None:
    model = IMPORTERS["imram"](imram_checkpoint(tmp_path / "a.pth.tar"))
    config = model.config
    assert (config.queries, config.steps, config.unit_memory) == ("regions", 2, True)
    assert (config.normaliser, config.sharpness, config.layers) == ("softmax", 4.0, 2)
    assert (config.unit_regions, config.unit_words, config.pool) == (False, True, "mean")
    assert {name.split(".")[0] for name in model.state_dict()} == {"regions", "words", "regions_ask"}
    one_step = IMPORTERS["imram"](imram_checkpoint(tmp_path / "b.pth.tar", iteration_step=1))
    assert not any("memory" in name for name in one_step.state_dict())


def test_other_options_of_imram_verify(tmp_path: Path) -> None:
    """A case of our own making: two layers, weight norm, and one step more than the model takes."""
    path = imram_checkpoint(tmp_path / "odd.pth.tar")
    model = IMPORTERS["imram"](path)
    tokens = np.array([[1, 5, 2, 0], [1, 6, 7, 2], [1, 8, 2, 0], [1, 4, 4, 2]])
    draw = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {
        "images": draw.normal(size=(2, 3, 8)).astype(np.float32),
        "captions": tokens,
        "lengths": (tokens > 0).sum(axis=1),
        "batch_img_idx": np.array([1, 0]),
        "batch_cap_idx": np.array([3, 0]),
    }
    whole = IMPORTERS["imram"].read(path, queries="both", steps=3).model
    np.savez(tmp_path / "odd.io.npz", **arrays)
    case = next(iter(verify("imram", tmp_path)))
    assert case.stages == []
    given = next(iter(GOLDENS["imram"].open(tmp_path)))
    images, texts = model.encode_images(given.images), model.encode_texts(given.texts)
    assert whole.words_ask is not None
    arrays["step_sims__t2i__2"] = whole.words_ask(*whole.prepare(images, texts))[2].detach().numpy()
    arrays["sims"] = model.similarity(images, texts).detach().numpy()
    gru = torch.nn.GRU(4, 6, 2, batch_first=True, bidirectional=True)
    gru.load_state_dict(model.words.rnn.state_dict())
    lengths = torch.from_numpy(arrays["lengths"])
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        model.words.embed(given.texts.tokens), lengths, batch_first=True, enforce_sorted=False
    )
    last = gru(packed)[1][:2].mean(dim=0)  # the first layer's two directions
    arrays["cap_final_state"] = (last / last.norm(dim=1, keepdim=True)).detach().numpy()
    np.savez(tmp_path / "odd.io.npz", **arrays)
    cases = list(verify("imram", tmp_path))
    assert {s.stage for s in cases[0].stages} == {"step_sims__t2i__2", "sims", "cap_final_state"}
    assert all(s.holds for s in cases[0].stages)


@pytest.mark.parametrize(
    ("options", "state", "sentence"),
    [
        ({"model_mode": "vse"}, None, r"model_mode is 'vse', expected one of text_IMRAM, image_IMRAM, full_IMRAM"),
        ({"bi_gru": False}, None, "bi_gru is off"),
        ({"embed_size": 7}, None, "the weights do not fit the options"),
        ({}, {"surprise": torch.zeros(2)}, "the weights do not fit the options"),
        ({"iteration_step": 0}, None, "steps must be at least 1"),
    ],
)
def test_options_that_are_no_imram_are_refused(
    tmp_path: Path, options: dict[str, object], state: dict[str, torch.Tensor] | None, sentence: str
) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        IMPORTERS["imram"](imram_checkpoint(tmp_path / "a.pth.tar", state, **options))


def test_a_checkpoint_of_two_parts_is_not_imrams(golden: Path) -> None:
    with pytest.raises(SaccadeError, match='"model" is a list'):
        IMPORTERS["imram"](golden / "scan" / "bigru.pth.tar")


def test_an_imported_imram_is_saved_and_loaded(golden: Path, tmp_path: Path) -> None:
    model = IMPORTERS["imram"](golden / "imram" / "full.pth.tar")
    model.save_pretrained(tmp_path / "model")
    loaded = Imram.from_pretrained(str(tmp_path / "model"))
    assert loaded.config == model.config
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), model.parameters(), strict=True))


def test_an_imported_gsmn_passes_no_messages_and_needs_no_parser(golden: Path) -> None:
    model = IMPORTERS["gsmn"](golden / "gsmn" / "sparse.pth.tar")
    assert model.config.text_graph == "sparse"
    assert not model.config.message_passing
    assert (model.config.blocks, model.config.hidden, model.config.kernels) == (8, 16, 8)
    assert model.read(["<word-7> <word-9>"]).links == ()


def gsmn_changed(golden: Path, path: Path, **options: Any) -> Path:
    checkpoint = read_checkpoint(golden / "gsmn" / "dense.pth.tar")
    for name, value in options.items():
        setattr(checkpoint["opt"], name, value)
    torch.save(checkpoint, path)
    return path


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"feat_dim": 4}, "feat_dim is 4, the official code needs 8"),
        ({"out_dim": 2}, "out_dim is 2, the official code needs 1"),
        ({"hid_dim": 24}, "the weights do not fit the options"),
        ({"is_sparse": "maybe"}, "is_sparse is 'maybe', expected one of False, True"),
    ],
)
def test_options_that_are_no_gsmn_are_refused(
    golden: Path, tmp_path: Path, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        IMPORTERS["gsmn"](gsmn_changed(golden, tmp_path / "model.pth.tar", **options))


def test_a_scan_checkpoint_is_no_gsmn(golden: Path) -> None:
    with pytest.raises(SaccadeError, match='"model" has 2 parts, a GSMN checkpoint has 4'):
        IMPORTERS["gsmn"](golden / "scan" / "bigru.pth.tar")
