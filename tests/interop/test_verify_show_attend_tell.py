"""Both codes of Show, Attend and Tell: every stage holds, other forms too; changes are caught, other files refused."""

from __future__ import annotations

import json
import pickle
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from saccade.batch import END, START, UNKNOWN, RegionBatch
from saccade.core.errors import SaccadeError
from saccade.interop import IMPORTERS
from saccade.interop.checkpoint import read_modules
from saccade.interop.importers.show_attend_tell import ARCTIC, CLASSES
from saccade.interop.words import read_vocabulary
from saccade.language import Vocabulary
from saccade.language.vocabulary import SPECIAL

SOFT, HARD = "show_attend_tell_soft", "show_attend_tell_hard"


@pytest.fixture
def models() -> Iterator[ModuleType]:
    """The tutorial's module `models`, as far as a checkpoint refers to it."""
    module = ModuleType("models")
    for name in ("Attention", "DecoderWithAttention", "Encoder"):
        setattr(module, name, type(name, (nn.Module,), {"__module__": "models"}))
    sys.modules["models"] = module
    yield module
    del sys.modules["models"]


def tutorial(models: ModuleType, regions: int = 6, words: int = 9, drop: float = 0.3) -> nn.Module:
    decoder = models.DecoderWithAttention()
    decoder.attention = models.Attention()
    decoder.attention.encoder_att, decoder.attention.decoder_att = nn.Linear(regions, 3), nn.Linear(5, 3)
    decoder.attention.full_att, decoder.attention.relu = nn.Linear(3, 1), nn.ReLU()
    decoder.embedding, decoder.dropout = nn.Embedding(words, 4), nn.Dropout(drop)
    decoder.decode_step = nn.LSTMCell(4 + regions, 5)
    decoder.init_h, decoder.init_c = nn.Linear(regions, 5), nn.Linear(regions, 5)
    decoder.f_beta, decoder.fc = nn.Linear(5, regions), nn.Linear(5, words)
    return decoder


@pytest.mark.filterwarnings("ignore:Couldn't retrieve source code")
@pytest.mark.parametrize("zipped", [True, False])
def test_pickled_modules_of_both_containers(zipped: bool, models: ModuleType, tmp_path: Path) -> None:
    """What people have: modules, an encoder with a ResNet's parts, and optimisers with their state."""
    torch.manual_seed(0)
    decoder, encoder = tutorial(models), models.Encoder()
    encoder.resnet = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(14))
    optimiser = torch.optim.Adam(decoder.parameters())
    sum(p.sum() for p in decoder.parameters()).backward()
    optimiser.step()
    checkpoint = {"epoch": 3, "bleu-4": 0.2, "encoder": encoder, "decoder": decoder, "decoder_optimizer": optimiser}
    torch.save(checkpoint, tmp_path / "BEST.pth.tar", _use_new_zipfile_serialization=zipped)
    sys.modules["models"].__dict__.clear()  # reading needs no such module
    model = IMPORTERS["show_attend_tell"](tmp_path / "BEST.pth.tar")
    assert model.config.dropout == 0.3
    assert torch.equal(model.lstm.weight_hh, decoder.decode_step.weight_hh)
    assert torch.equal(model.say.weight[END], decoder.fc.weight[8])
    assert torch.equal(model.embed.weight[[0, START, UNKNOWN, 4]], decoder.embedding.weight[[0, 7, 6, 1]])
    both = decoder.attention.encoder_att.bias + decoder.attention.decoder_att.bias
    torch.testing.assert_close(model.look.region.bias, both)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("run",))


def test_anything_else_in_a_pickle_is_refused(
    models: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    decoder = tutorial(models)
    decoder.evil = Evil()
    torch.save({"decoder": decoder}, tmp_path / "evil.pth.tar")
    with pytest.raises(SaccadeError, match=r"refused: it wants to run builtins.print"):
        read_modules(tmp_path / "evil.pth.tar", CLASSES)
    decoder.evil = None
    decoder.decode_step.decoder = decoder
    torch.save({"decoder": decoder}, tmp_path / "cycle.pth.tar")
    with pytest.raises(SaccadeError, match="a part of itself"):
        IMPORTERS["show_attend_tell"](tmp_path / "cycle.pth.tar")
    assert "run" not in capsys.readouterr().out
    with zipfile.ZipFile(tmp_path / "program.pth.tar", "w") as file:
        file.writestr("program/constants.pkl", b"")  # by which a TorchScript archive differs from a checkpoint
    (tmp_path / "cut.pth.tar").write_bytes((tmp_path / "evil.pth.tar").read_bytes()[:1000])
    for name, sentence in (("program", "is a program"), ("cut", "is damaged or cut short"), ("none", "not exist")):
        with pytest.raises(SaccadeError, match=sentence):
            read_modules(tmp_path / f"{name}.pth.tar", CLASSES)


def test_other_checkpoints_are_refused(golden: Path, models: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match="not a mapping of names to tensors"):
        IMPORTERS["show_attend_tell"](golden / "scan" / "unigru.pth.tar")
    with pytest.raises(SaccadeError, match="has no matrix Wemb"):
        IMPORTERS["show_attend_tell"](_saved(tmp_path / "a.npz", {"W": np.zeros((2, 2))}))
    weights = dict(np.load(golden / HARD / "arctic_params.npz"))
    for change, sentence in (
        ({"encoder_W": np.zeros((2, 2))}, "encoder_W belongs to a second LSTM"),
        ({"decoder_U_att": np.zeros((3, 1))}, r"decoder_U_att of shape \(3, 1\) does not fit"),
        ({"surprise": np.zeros(2)}, "surprise is not known"),
    ):
        with pytest.raises(SaccadeError, match=sentence):
            IMPORTERS["show_attend_tell"](_saved(tmp_path / "b.npz", {**weights, **change}))
    with pytest.raises(SaccadeError, match="knows 25 words, the vocabulary has 4"):
        IMPORTERS["show_attend_tell"](golden / SOFT / "decoder_state_dict.pth", Vocabulary(SPECIAL))


def _saved(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    np.savez(path, **arrays)
    return path


def test_word_maps(tmp_path: Path, golden: Path) -> None:
    words = read_vocabulary(golden / SOFT / "WORDMAP.json")
    assert words.words == (*SPECIAL, *(f"w{i}" for i in range(21)))
    (tmp_path / "WORDMAP.json").write_text(json.dumps({"<pad>": 0, "a": 2, "<start>": 1, "<end>": 3, "<unk>": 4}))
    with pytest.raises(SaccadeError, match="not in the order of a WORDMAP"):
        read_vocabulary(tmp_path / "WORDMAP.json")
    (tmp_path / "dictionary.pkl").write_bytes(pickle.dumps({"dog": 3, "a": 2}))
    assert read_vocabulary(tmp_path / "dictionary.pkl").words == (*SPECIAL, "a", "dog")


FORMS: dict[str, dict[str, Any]] = {
    "as released": {},
    "plain": {"first": 1, "attention": 1, "selector": False, "context": False},
    "deep": {"first": 3, "attention": 3, "out": 2},
    "by its options": {"first": 2, "options": {"prev2out": False, "use_dropout": False, "attn_type": "stochastic"}},
}


@pytest.mark.parametrize("form", FORMS)
def test_other_forms_of_the_authors_code(form: str, tmp_path: Path) -> None:
    """Against a plain computation in NumPy of two steps, in the names and layout of the authors' weights."""
    weights, options = arctic(**FORMS[form])
    _saved(tmp_path / "model.npz", weights)
    if options:
        (tmp_path / "model.npz.pkl").write_bytes(pickle.dumps(options, protocol=2))
    model = ARCTIC.read(tmp_path / "model.npz", dtype=torch.float64).model
    assert model.config.attention == ("hard" if options else "soft")
    regions = np.random.default_rng(1).normal(size=(3, 6))
    expected = arctic_probabilities(weights, options, regions, word=5)
    images = RegionBatch(torch.from_numpy(regions)[None], torch.ones(1, 3, dtype=torch.bool), torch.zeros(1, 3, 4))
    forced = model.teacher_force(model.start(images), torch.tensor([[START, 5 + 2]]))  # <end>, <unk>, then the words
    ours = forced.log_probabilities[0].exp()[:, [END, UNKNOWN, *range(4, 11)]]
    np.testing.assert_allclose(ours.detach().numpy(), expected, atol=1e-12)


def arctic(
    first: int = 2,
    attention: int = 2,
    out: int = 1,
    selector: bool = True,
    context: bool = True,
    options: dict[str, Any] | None = None,
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Random weights: 9 words of 4 numbers, regions of 6, a state of 5."""
    shapes: dict[str, tuple[int, ...]] = {
        "Wemb": (9, 4),
        **{f"ff_init_{n}_W": (6, 6) for n in range(1, first)},
        **{f"ff_init_{n}_b": (6,) for n in range(1, first)},
        **{f"ff_{part}_W": (6, 5) for part in ("state", "memory")},
        **{f"ff_{part}_b": (5,) for part in ("state", "memory")},
        "decoder_W": (4, 20),
        "decoder_b": (20,),
        "decoder_U": (5, 20),
        "decoder_Wc": (6, 20),
        "decoder_Wc_att": (6, 6),
        "decoder_Wd_att": (5, 6),
        "decoder_b_att": (6,),
        **{f"decoder_W_att_{n}": (6, 6) for n in range(1, attention)},
        **{f"decoder_b_att_{n}": (6,) for n in range(1, attention)},
        "decoder_U_att": (6, 1),
        "decoder_c_tt": (1,),
        **({"decoder_W_sel": (5, 1), "decoder_b_sel": ()} if selector else {}),
        "ff_logit_lstm_W": (5, 4),
        "ff_logit_lstm_b": (4,),
        **({"ff_logit_ctx_W": (6, 4), "ff_logit_ctx_b": (4,)} if context else {}),
        **{f"ff_logit_h{n}_W": (4, 4) for n in range(1, out)},
        **{f"ff_logit_h{n}_b": (4,) for n in range(1, out)},
        "ff_logit_W": (4, 9),
        "ff_logit_b": (9,),
    }
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}, options or {}


def arctic_probabilities(
    w: dict[str, np.ndarray], options: dict[str, Any], regions: np.ndarray, word: int
) -> np.ndarray:
    """The distribution of the first word in the authors' code, and after `word`."""
    kept = 0.5 if options.get("use_dropout", True) else 1.0

    def sigmoid(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    whole, n = regions.mean(axis=0), 1
    while f"ff_init_{n}_W" in w:
        whole, n = kept * np.maximum(whole @ w[f"ff_init_{n}_W"] + w[f"ff_init_{n}_b"], 0), n + 1
    h, c = (np.tanh(whole @ w[f"ff_{part}_W"] + w[f"ff_{part}_b"]) for part in ("state", "memory"))
    keys, n = regions @ w["decoder_Wc_att"] + w["decoder_b_att"], 1
    while f"decoder_W_att_{n}" in w:
        keys, n = np.tanh(keys @ w[f"decoder_W_att_{n}"] + w[f"decoder_b_att_{n}"]), n + 1
    probabilities = []
    for read in (np.zeros(4), w["Wemb"][word]):
        scores = (np.tanh(keys + h @ w["decoder_Wd_att"]) @ w["decoder_U_att"] + w["decoder_c_tt"])[:, 0]
        found = np.exp(scores) / np.exp(scores).sum() @ regions
        if "decoder_W_sel" in w:
            found = sigmoid(h @ w["decoder_W_sel"] + w["decoder_b_sel"]) * found
        sums = h @ w["decoder_U"] + read @ w["decoder_W"] + w["decoder_b"] + found @ w["decoder_Wc"]
        enter, forget, leave, new = np.split(sums, 4)
        c = sigmoid(forget) * c + sigmoid(enter) * np.tanh(new)
        h = sigmoid(leave) * np.tanh(c)
        logit = kept * h @ w["ff_logit_lstm_W"] + w["ff_logit_lstm_b"]
        logit = logit + (read if options.get("prev2out", True) else 0)
        if "ff_logit_ctx_W" in w:
            logit = logit + found @ w["ff_logit_ctx_W"] + w["ff_logit_ctx_b"]
        logit, n = kept * np.tanh(logit), 1
        while f"ff_logit_h{n}_W" in w:
            logit, n = kept * np.maximum(logit @ w[f"ff_logit_h{n}_W"] + w[f"ff_logit_h{n}_b"], 0), n + 1
        logit = logit @ w["ff_logit_W"] + w["ff_logit_b"]
        probabilities.append(np.exp(logit) / np.exp(logit).sum())
    return np.stack(probabilities)
