"""Grid extractors that are trained on: what they see at first, what learns, and what stays."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from torch import nn

from saccade.batch import PictureBatch
from saccade.core.errors import SaccadeError
from saccade.training.run import BackboneConfig, prepare_backbone
from saccade.vision import load_extractor
from saccade.vision.backbones.base import Backbone, load_backbone
from saccade.vision.extractors import trainable_backbone


@pytest.fixture
def pictures() -> PictureBatch:
    pixels = torch.randint(0, 256, (3, 32, 32, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return PictureBatch(pixels, ("a", "b", "c"))


def squared(network: nn.Module, pictures: PictureBatch) -> None:
    """One step's gradient of some loss."""
    network.train()
    network(pictures).features.square().mean().backward()


@pytest.mark.parametrize("name", ["grid:efficientnet-lite0@32", "grid:world@32", "grid:world@32/3+1"])
def test_before_training_it_sees_what_the_extractor_sees(name: str, pictures: PictureBatch) -> None:
    """In training mode too: the normalisations are folded, and no figure of theirs follows the batch."""
    network, extractor = trainable_backbone(name), load_extractor(name)
    seen = extractor.extract(list(pictures.pixels.numpy()))
    for mode in (True, False):
        found = network.train(mode)(pictures)
        torch.testing.assert_close(found.features, seen.features, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found.boxes, seen.boxes)
        assert found.ids == pictures.ids
    assert network.config.name == extractor.name
    assert not any(isinstance(part, nn.BatchNorm2d) for part in network.modules())


@pytest.mark.parametrize(
    "name", ["efficientnet-lite0", "efficientnet-lite2", "mobilenet-v2", "pplcnetv2", "dinov2-s", "world"]
)
def test_the_parts_are_the_backbone_from_its_input_to_its_output(name: str) -> None:
    backbone = load_backbone(name, pretrained=False)
    owned = [id(weight) for part in backbone.parts for weight in part.parameters()]
    assert sorted(owned) == sorted(map(id, backbone.parameters()))  # every weight, and once
    assert len(backbone.parts) > 4
    order: list[int] = []
    for number, part in enumerate(backbone.parts):
        for inner in part.modules():
            inner.register_forward_hook(lambda *_, n=number: order.append(n))
    side = 28 if backbone.multiple > 1 else 32
    backbone(backbone.normalise(torch.zeros(1, side, side, 3, dtype=torch.uint8)))
    first = {number: order.index(number) for number in order}
    used = [number for number in range(len(backbone.parts)) if number in first]
    assert used == sorted(used, key=first.__getitem__)
    assert len(used) == len(backbone.parts)


@pytest.mark.parametrize("count", [0, 3, 8])
def test_gradients_reach_what_is_not_frozen_and_nothing_else(count: int, pictures: PictureBatch) -> None:
    network = trainable_backbone("grid:efficientnet-lite0@32", pretrained=False)
    prepare_backbone(network, BackboneConfig(freeze=count))
    squared(network, pictures)
    for number, part in enumerate(network.backbone.parts):
        reached = {weight.grad is not None for weight in part.parameters()}
        assert reached == {number >= count}


def test_normalisation_that_cannot_be_folded_keeps_its_figures(tmp_path: Path, pictures: PictureBatch) -> None:
    torch.manual_seed(0)
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1], "layer_type": "basic"}
    transformers.ResNetModel(transformers.ResNetConfig(**sizes)).save_pretrained(tmp_path / "resnet")
    network = trainable_backbone(f"grid:hf:{tmp_path / 'resnet'}@32")
    assert any(isinstance(part, nn.BatchNorm2d) for part in network.modules())
    figures = {name: value.clone() for name, value in network.named_buffers()}
    before = network.eval()(pictures).features
    squared(network, pictures)
    assert network.training
    torch.testing.assert_close(network(pictures).features, before)
    assert all(torch.equal(value, figures[name]) for name, value in network.named_buffers())
    with pytest.raises(
        SaccadeError, match=r"backbone\.freeze=1 leaves nothing of the extractor .* to train: it has 1 part$"
    ):
        prepare_backbone(network, BackboneConfig(freeze=1))


def test_only_grids_can_be_tuned() -> None:
    for name in ("world", "bottomup", "gird"):
        with pytest.raises(SaccadeError, match=f'the extractor "{name}" cannot be trained through a matching loss'):
            trainable_backbone(name)


def test_a_backbone_is_one_part_unless_it_says_otherwise() -> None:
    class Plain(Backbone):
        def normalise(self, pixels: torch.Tensor) -> torch.Tensor:
            return pixels.permute(0, 3, 1, 2).float()

        def forward(self, pictures: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return (pictures,)

    plain = Plain()
    assert plain.parts == (plain,)
