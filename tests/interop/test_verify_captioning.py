"""Up-Down, adaptive attention and SGAE: other forms hold too, changes are caught, other files are refused."""

from __future__ import annotations

import argparse
import os
import pickle
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from captioner_case import OPTIONS, WORDS, make_case

from saccade.batch import END, PAD, START, UNKNOWN
from saccade.core.errors import SaccadeError
from saccade.interop import IMPORTERS, Stage, verify
from saccade.interop.checkpoint import read_plain_pickle
from saccade.interop.importers.captioning import infos_beside, numbered_from_one
from saccade.models import Sgae, load_model


def stages(system: str, folder: Path) -> list[Stage]:
    return [stage for case in verify(system, folder) for stage in case.stages]


def failures(system: str, folder: Path) -> list[str]:
    return [stage.stage for stage in stages(system, folder) if not stage.holds]


FORMS: dict[str, dict[str, Any]] = {
    "norm before": {"use_bn": 1},
    "norm around": {"use_bn": 2, "clip": True},
    "no unknown word": {"unknown": False, "steps": 3},
    "adaptive, wide words": {"caption_model": "adaatt", "input_encoding_size": 7, "clip": True},
    "adaptive, two layers": {"caption_model": "adaatt", "num_layers": 2, "steps": 3},
    "adaptive, max-out, three layers": {"caption_model": "adaattmo", "num_layers": 3, "use_bn": 2},
}


@pytest.mark.parametrize("name", FORMS)
def test_other_options_hold_too(name: str, tmp_path: Path) -> None:
    """Against a plain computation of our own, in the form of a golden case."""
    make_case(tmp_path, "case", **FORMS[name])
    system = "adaptive" if name.startswith("adaptive") else "updown"
    assert failures(system, tmp_path) == []
    assert len(stages(system, tmp_path)) >= 30


@pytest.mark.parametrize(
    "key", ["attn_tf", "xe_loss", "greedy_seq", "beam2_scores", "ctx2att", "grad_norms", "beam2_odd_seqs"]
)
def test_what_is_changed_is_caught(key: str, tmp_path: Path) -> None:
    make_case(tmp_path, "case")
    with np.load(tmp_path / "case_io.npz") as file:
        stored = dict(file)
    stored[key] = stored.get(key, np.zeros(2)) + 1
    np.savez(tmp_path / "case_io.npz", **stored)
    assert {name.split("__")[0].split(" ")[0] for name in failures("updown", tmp_path)} == {key}


def test_imported_models_are_saved_and_loaded(golden: Path, tmp_path: Path) -> None:
    for load, path in (
        (IMPORTERS["updown"], golden / "updown" / "updown_bn2_model.pth"),
        (IMPORTERS["adaptive"], golden / "adaptive" / "adaattmo_model.pth"),
    ):
        model = load(path)
        model.save_pretrained(tmp_path / model.name)
        again = load_model(tmp_path / model.name)
        assert again.config == model.config
        assert all(
            torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values(), strict=True)
        )


def test_words_go_there_and_back() -> None:
    words = numbered_from_one({"1": "a", "2": "UNK", "3": "dog"}, "here")
    assert words.vocabulary.words[4:] == ("a", "dog")
    ids = torch.tensor([[1, 3, 0, 0], [2, 1, 3, 1]])
    ours = words.sentences(ids)
    assert ours.tolist() == [[4, 5, END, PAD], [UNKNOWN, 4, 5, 4]]
    assert torch.equal(words.back(ours), ids)
    table = torch.arange(8.0).view(4, 2)
    inputs = words.input_rows(table)
    assert torch.equal(inputs[[PAD, START, END]], table[[0, 0, 0]])
    assert torch.equal(words.columns(words.output_rows(table).T), table.T)
    assert numbered_from_one({"1": "a"}, "here").output_rows(torch.zeros(2))[UNKNOWN] < -1000


def test_plain_pickles_are_read_and_nothing_else(tmp_path: Path) -> None:
    plain = {"opt": argparse.Namespace(a=1), "counts": defaultdict(float, {("1", "2"): 3.0}), "best": np.float64(2.0)}
    for protocol in (2, pickle.HIGHEST_PROTOCOL):
        (tmp_path / "plain.pkl").write_bytes(pickle.dumps(plain, protocol=protocol))
        found = read_plain_pickle(tmp_path / "plain.pkl")
        assert found["opt"].a == 1
        assert found["counts"] == {("1", "2"): 3.0}

    class Bad:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path / 'ran'}",)

    (tmp_path / "bad.pkl").write_bytes(pickle.dumps({"opt": Bad()}))
    with pytest.raises(SaccadeError, match=r"refused: it wants to run posix\.system"):
        read_plain_pickle(tmp_path / "bad.pkl")
    assert not (tmp_path / "ran").exists()
    (tmp_path / "cut.pkl").write_bytes(pickle.dumps(plain)[:-5])
    with pytest.raises(SaccadeError, match="damaged"):
        read_plain_pickle(tmp_path / "cut.pkl")


def rewrite(folder: Path, vocab: Any = None, **options: Any) -> Path:
    """The infos of a case with other options or words."""
    vocab = {str(i + 1): word for i, word in enumerate([*WORDS, "UNK"])} if vocab is None else vocab
    infos = {"opt": argparse.Namespace(**{**OPTIONS, **options}), "vocab": vocab}
    (folder / "case_infos.pkl").write_bytes(pickle.dumps(infos, protocol=2))
    return folder / "case_model.pth"


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "another model": ({"caption_model": "transformer"}, "caption_model is 'transformer', for updown expected"),
    "another size": ({"rnn_size": 7}, "do not fit"),
    "picture vectors of their own": ({"fc_feat_size": 3}, "fc_feat_size is 3"),
    "another end": ({"eos_idx": 2}, "eos_idx"),
    "no words": ({"vocab": {}}, "vocab"),
    "fewer words": ({"vocab": {"1": "a"}}, "knows 9 words"),
    "gaps": ({"vocab": {"1": "a", "3": "b"}}, "not 1, 2, 3"),
    "norms that are not there": ({"use_bn": 2}, "do not fit"),
}


@pytest.mark.parametrize("name", WRONG)
def test_other_files_are_refused(name: str, tmp_path: Path) -> None:
    make_case(tmp_path, "case")
    options, sentence = WRONG[name]
    with pytest.raises(SaccadeError, match=sentence):
        IMPORTERS["updown"](rewrite(tmp_path, **options))


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    make_case(tmp_path, "case")
    with pytest.raises(SaccadeError, match=r"it has no core\.attention\.ho_embed\.bias"):
        IMPORTERS["adaptive"](rewrite(tmp_path, caption_model="adaatt"))


def test_the_infos_of_a_checkpoint_are_found(golden: Path, tmp_path: Path) -> None:
    for name in ("model.pth", "model-best.pth", "infos_td.pkl", "infos_td-best.pkl"):
        kind = "infos.pkl" if "infos" in name else "model.pth"
        shutil.copy(golden / "updown" / f"updown_{kind}", tmp_path / name)
    assert infos_beside(tmp_path / "model.pth").name == "infos_td.pkl"
    assert infos_beside(tmp_path / "model-best.pth").name == "infos_td-best.pkl"
    assert IMPORTERS["updown"](tmp_path / "model-best.pth").config.word_relu
    (tmp_path / "infos_td.pkl").unlink()
    with pytest.raises(SaccadeError, match="needs its options and words"):
        infos_beside(tmp_path / "model.pth")


@pytest.fixture
def folder(golden: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(golden / "sgae", tmp_path / "sgae"))


def change(folder: Path, name: str, edit: Callable[[np.ndarray], np.ndarray]) -> None:
    with np.load(folder / "io.npz", allow_pickle=False) as file:
        arrays = dict(file)
    arrays[name] = edit(arrays[name])
    np.savez(folder / "io.npz", **arrays)


def test_a_changed_graph_is_caught(folder: Path) -> None:
    """Subjects for objects: sentences are reconstructed otherwise."""
    change(folder, "ssg_rela_matrix", lambda array: array[:, :, [1, 0, 2]])
    failed = {stage.stage for stage in stages("sgae", folder) if not stage.holds}
    assert {"ssg_obj_feats", "mode0_logprobs", "mode1_logprobs"} <= failed
    assert "mode2_rela1_logprobs" not in failed


def test_more_padding_holds_too(folder: Path) -> None:
    """Boxes, relations and attributes that are not there, of any value."""

    def wider(array: np.ndarray, value: float) -> np.ndarray:
        return np.pad(array, [(0, 0), (0, 2), *[(0, 0)] * (array.ndim - 2)], constant_values=value)

    for name in ("att_feats", "rela_matrix", "attr_matrix", "ssg_obj", "ssg_rela_matrix", "ssg_attr"):
        change(folder, name, lambda array: wider(array, 1))
    for name in ("att_masks", "rela_masks", "attr_masks", "ssg_obj_masks", "ssg_rela_masks", "ssg_attr_masks"):
        change(folder, name, lambda array: wider(array, 0))
    assert [stage.stage for stage in stages("sgae", folder) if not stage.holds] == []


def test_an_imported_model_is_one_of_ours(golden: Path, tmp_path: Path) -> None:
    model = IMPORTERS["sgae"](golden / "sgae" / "modelid0001.pth")
    assert model.config.fusion == "released"
    assert model.vocabulary.words[4:6] == ("w1", "w2")
    model.save_pretrained(tmp_path / "model")
    again = load_model(tmp_path / "model", Sgae)
    torch.testing.assert_close(again.state_dict(), model.state_dict())


def test_without_its_dictionary_a_checkpoint_is_not_whole(folder: Path) -> None:
    (folder / "memory_cellid0001.npz").unlink()
    with pytest.raises(SaccadeError, match=r"memory_cellid0001\.npz does not exist"):
        stages("sgae", folder)


def test_a_dictionary_must_be_a_table(folder: Path) -> None:
    np.savez(folder / "memory_cellid0001.npz", memory_cell=np.arange(3))
    with pytest.raises(SaccadeError, match="holds no dictionary"):
        stages("sgae", folder)


def test_other_captioners_are_refused(folder: Path) -> None:
    path = folder / "infos_id0001.pkl"
    infos = pickle.loads(path.read_bytes())
    infos["opt"].caption_model = "updown"
    path.write_bytes(pickle.dumps(infos, protocol=2))
    with pytest.raises(SaccadeError, match="caption_model is 'updown', for SGAE expected lstm_mem4"):
        stages("sgae", folder)


def test_weights_of_another_system_are_refused(folder: Path) -> None:
    torch.save({"embed.0.weight": torch.zeros(31, 16)}, folder / "modelid0001.pth")
    with pytest.raises(SaccadeError, match="is no SGAE checkpoint: it has no"):
        stages("sgae", folder)
