"""Every importer: weights go in and gradients come back through the same table, and nothing is written twice."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from saccade.core.errors import SaccadeError
from saccade.interop import IMPORTERS
from saccade.interop.importer import WeightMap, add_to, blocks, ignored, raised, rows, scaled, to, transposed

FILES = {
    "scan": "scan/wn2.pth.tar",
    "vsrn": "vsrn/f30k.pth.tar",
    "camp": "camp/gate_fusion.pth.tar",
    "imram": "imram/text.pth.tar",
    "gsmn": "gsmn/sparse.pth.tar",
    "sgae": "sgae/modelid0001.pth",
    "show_attend_tell": "show_attend_tell_soft/decoder_state_dict.pth",
    "unsupervised": "unsupervised/tf_variables.npz",
    "adaptive": "adaptive/adaatt_model.pth",
    "updown": "updown/updown_bn2_model.pth",
    "updown_vqa": "updown_vqa/baseline0_model.pth",
    "dcn": "dcn/rcnn_ckpt.pth.tar",
    "vcml": "vcml/checkpoint.tar",
    "nscl": "vcml/nscl_reasoning.pth",
    "analogy": "analogy/model_epoch15.pth.tar",
    "plan": "plan/model_ref.pt",
    "hgr": "hgr/model.th",
    "drn": "drn/model_best.pth.tar",
    "interbert": "interbert/pytorch_model.bin",
    "pixelbert": "pixelbert/model.pt",
    "pixelbert_answering": "pixelbert/model.pt",
}
ARCTIC = "show_attend_tell_hard/arctic_params.npz"


@pytest.mark.parametrize(("system", "file"), [*FILES.items(), ("show_attend_tell", ARCTIC)])
def test_gradients_come_back_as_weights_went_in(system: str, file: str, golden: Path) -> None:
    """Σ g·(ours(w + δ) − ours(w)) = Σ gradient(g)·δ for any g and δ: the way back is the transpose of the way in."""
    torch.manual_seed(0)
    imported = IMPORTERS[system].read(golden / file, dtype=torch.float64)
    before = {name: value.detach().clone() for name, value in imported.model.named_parameters()}
    for parameter in imported.model.parameters():
        parameter.grad = torch.randn_like(parameter)
    official = imported.gradients()
    weights = imported.source.weights
    change = {name: torch.randn_like(w, dtype=torch.float64) for name, w in weights.items() if w.is_floating_point()}
    moved = {name: w.double() + change[name] if name in change else w for name, w in weights.items()}
    imported.weight_map.load(moved, "here", "changed")
    ours = sum(float((p.grad * (p.detach() - before[name])).sum()) for name, p in imported.model.named_parameters())
    buffers = {name for name in change if "running_" in name}
    theirs = sum(float((official[name] * change[name]).sum()) for name in change.keys() - buffers)
    assert abs(theirs) > 1
    assert ours == pytest.approx(theirs, rel=1e-9)


def test_there_is_an_importer_for_each_file() -> None:
    assert FILES.keys() == IMPORTERS.keys()


class Toy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.LSTMCell(3, 2), nn.Linear(2, 1)


TABLE = {
    "kernel": (
        to("cell.weight_ih", rows(None, 3), transposed, blocks(0, 2, 1, 3)),
        to("cell.weight_hh", rows(3, None), transposed, blocks(0, 2, 1, 3)),
    ),
    "bias": to("cell.bias_ih", raised(1.0, block=1, of=4)),
    "left": to("out.weight", scaled(2.0), columns=(None, 1)),
    "right": to("out.weight", columns=(1, None)),
    "a.*": add_to("out.*"),
    "step": ignored("a counter"),
}
WEIGHTS = {
    "kernel": torch.arange(40.0).view(5, 8),
    "bias": torch.zeros(8),
    "left": torch.ones(1, 1),
    "right": torch.ones(1),
    "step": torch.zeros(()),
}


def toy_map(**changes: object) -> WeightMap:
    table = {**TABLE, "a.*": ignored("none here"), "b1": add_to("out.bias"), "b2": add_to("out.bias"), **changes}
    return WeightMap({k: v for k, v in table.items() if v is not None}, Toy(), None, zeros=("cell.bias_hh",))  # type: ignore[misc]


def test_the_language() -> None:
    toy = toy_map()
    toy.load({**WEIGHTS, "b1": torch.tensor(1.0), "b2": torch.tensor([2.0])}, "here", "toy")
    model = toy.model
    assert isinstance(model, Toy)
    assert model.cell.weight_ih[:, 0].tolist() == [0, 1, 4, 5, 2, 3, 6, 7]
    assert model.cell.weight_hh[0].tolist() == [24, 32]
    assert model.cell.bias_ih.tolist() == [0, 0, 1, 1, 0, 0, 0, 0]
    assert model.cell.bias_hh.tolist() == [0] * 8
    assert model.out.weight.tolist() == [[2, 1]]
    assert model.out.bias.tolist() == [3]
    model.out.weight.grad = torch.tensor([[5.0, 7.0]])
    found = toy.gradients(WEIGHTS)
    assert (found["left"].tolist(), found["right"].tolist()) == ([[10]], [7])
    assert found["step"] == 0


def test_what_does_not_fit_is_named() -> None:
    both = {"b1": torch.zeros(1), "b2": torch.zeros(1)}
    for weights, sentence in (
        ({**WEIGHTS, "b1": torch.zeros(1)}, "here is no toy checkpoint: it has no b2"),
        ({**WEIGHTS, **both, "odd": torch.zeros(1)}, "odd is not known"),
        ({**WEIGHTS, **both, "bias": torch.zeros(7)}, r"bias of shape \(7,\) does not fit"),
        ({**WEIGHTS, **both, "kernel": torch.zeros(4, 8)}, r"kernel of shape \(4, 8\) does not fit"),
    ):
        with pytest.raises(SaccadeError, match=sentence):
            toy_map().load(weights, "here", "toy")


def test_a_table_writes_everything_once() -> None:
    with pytest.raises(ValueError, match=r"two rows of the table write out\.bias"):
        toy_map(b2=to("out.bias"))
    with pytest.raises(ValueError, match=r"no row of the table writes cell\.bias_ih"):
        toy_map(bias=None)
