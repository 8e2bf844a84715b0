"""Weights on disk come back as they were, or as near as their form promises."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from saccade.core.errors import SaccadeError
from saccade.core.weights import read_weights, write_weights


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "matrix": torch.randn(6, 40, generator=generator) * torch.logspace(-4, 2, 6)[:, None],  # rows of unlike size
        "kernel": torch.randn(4, 3, 5, 5, generator=generator),
        "bias": torch.randn(40, generator=generator),
        "zeros": torch.zeros(3, 8),
        "steps": torch.tensor([3, 5]),
    }


def test_in_full_nothing_changes(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    write_weights(tmp_path / "w.safetensors", state)
    found = read_weights(tmp_path / "w.safetensors")
    assert found.keys() == state.keys()
    assert all(torch.equal(found[name], value) for name, value in state.items())


def test_in_bytes_each_row_is_off_by_at_most_half_a_step(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    write_weights(tmp_path / "w.safetensors", state, "int8")
    found = read_weights(tmp_path / "w.safetensors")
    assert found.keys() == state.keys()
    for name in ("matrix", "kernel", "zeros"):
        wanted = state[name].flatten(1)
        step = wanted.abs().amax(dim=1, keepdim=True) / 127
        assert found[name].dtype == torch.float32
        assert bool(((found[name].flatten(1) - wanted).abs() <= step * 0.501 + 1e-12).all()), name
    assert torch.allclose(found["bias"], state["bias"], rtol=1e-3)
    assert torch.equal(found["steps"], state["steps"])


def test_bytes_take_a_quarter(tmp_path: Path) -> None:
    state = {"matrix": torch.randn(256, 1024)}
    for form in ("float32", "float16", "int8"):
        write_weights(tmp_path / form, state, form)  # type: ignore[arg-type]
    full, half, small = (Path(tmp_path / form).stat().st_size for form in ("float32", "float16", "int8"))
    assert half < 0.51 * full
    assert small < 0.26 * full


def test_a_file_that_is_missing_or_cut_short_is_named(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    with pytest.raises(SaccadeError, match=r"w\.safetensors does not exist"):
        read_weights(path)
    write_weights(path, state)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(SaccadeError, match=r"w\.safetensors is damaged or cut short"):
        read_weights(path)


def test_a_full_disk_is_a_sentence_though_safetensors_wraps_it(
    state: dict[str, torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(SaccadeError, match="the disk is full"):
        write_weights(tmp_path / "w.safetensors", state)
    assert not list(tmp_path.iterdir())
