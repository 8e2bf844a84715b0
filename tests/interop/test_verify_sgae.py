"""Official SGAE: every stage holds, changes are caught, and files that are no SGAE checkpoint are told."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.core.errors import SaccadeError
from saccade.interop import IMPORTERS, Stage, verify
from saccade.models import Sgae, load_model


@pytest.fixture
def folder(golden: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(golden / "sgae", tmp_path / "sgae"))


def stages(folder: Path) -> list[Stage]:
    return [stage for case in verify("sgae", folder) for stage in case.stages]


def change(folder: Path, name: str, edit: Callable[[np.ndarray], np.ndarray]) -> None:
    with np.load(folder / "io.npz", allow_pickle=False) as file:
        arrays = dict(file)
    arrays[name] = edit(arrays[name])
    np.savez(folder / "io.npz", **arrays)


def test_a_changed_graph_is_caught(folder: Path) -> None:
    """Subjects for objects: sentences and pictures are told otherwise."""
    change(folder, "ssg_rela_matrix", lambda array: array[:, :, [1, 0, 2]])
    failed = {stage.stage for stage in stages(folder) if not stage.holds}
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
    assert [stage.stage for stage in stages(folder) if not stage.holds] == []


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
        stages(folder)


def test_a_dictionary_must_be_a_table(folder: Path) -> None:
    np.savez(folder / "memory_cellid0001.npz", memory_cell=np.arange(3))
    with pytest.raises(SaccadeError, match="holds no dictionary"):
        stages(folder)


def test_other_captioners_are_told(folder: Path) -> None:
    path = folder / "infos_id0001.pkl"
    infos = pickle.loads(path.read_bytes())
    infos["opt"].caption_model = "updown"
    path.write_bytes(pickle.dumps(infos, protocol=2))
    with pytest.raises(SaccadeError, match="caption_model is 'updown', for SGAE expected lstm_mem4"):
        stages(folder)


def test_weights_of_another_system_are_told(folder: Path) -> None:
    torch.save({"embed.0.weight": torch.zeros(31, 16)}, folder / "modelid0001.pth")
    with pytest.raises(SaccadeError, match="is no SGAE checkpoint: it has no"):
        stages(folder)
