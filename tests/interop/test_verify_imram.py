"""Official IMRAM: every stage holds for other options too; a checkpoint is read strictly."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.core.errors import SaccadeError
from saccade.interop import GOLDENS, IMPORTERS, verify
from saccade.models import Imram


def official(path: Path, state: dict[str, torch.Tensor] | None = None, **options: object) -> Path:
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


def test_options_become_a_config_and_unused_memories_are_left_out(tmp_path: Path) -> None:
    model = IMPORTERS["imram"](official(tmp_path / "a.pth.tar"))
    config = model.config
    assert (config.queries, config.steps, config.unit_memory) == ("regions", 2, True)
    assert (config.normaliser, config.sharpness, config.layers) == ("softmax", 4.0, 2)
    assert (config.unit_regions, config.unit_words, config.pool) == (False, True, "mean")
    assert {name.split(".")[0] for name in model.state_dict()} == {"regions", "words", "regions_ask"}
    assert not any(
        "memory" in k for k in IMPORTERS["imram"](official(tmp_path / "b.pth.tar", iteration_step=1)).state_dict()
    )


def test_other_options_verify(tmp_path: Path) -> None:
    """A case of our own making: two layers, weight norm, and one step more than the model takes."""
    path = official(tmp_path / "odd.pth.tar")
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
    arrays["step_sims__t2i__2"] = whole.words_ask.similarities(images, texts)[2].detach().numpy()
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
def test_what_does_not_fit_is_a_sentence(
    tmp_path: Path, options: dict[str, object], state: dict[str, torch.Tensor] | None, sentence: str
) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        IMPORTERS["imram"](official(tmp_path / "a.pth.tar", state, **options))


def test_a_checkpoint_of_two_parts_is_not_imrams(golden: Path) -> None:
    with pytest.raises(SaccadeError, match='"model" is a list'):
        IMPORTERS["imram"](golden / "scan" / "bigru.pth.tar")


def test_an_imported_model_is_saved_and_loaded(golden: Path, tmp_path: Path) -> None:
    model = IMPORTERS["imram"](golden / "imram" / "full.pth.tar")
    model.save_pretrained(tmp_path / "model")
    loaded = Imram.from_pretrained(str(tmp_path / "model"))
    assert loaded.config == model.config
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), model.parameters(), strict=True))
