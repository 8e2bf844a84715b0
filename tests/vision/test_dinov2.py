"""DINOv2: the same numbers as transformers', at any resolution and block; what is not such a network is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from saccade.batch import PictureBatch
from saccade.core.errors import SaccadeError
from saccade.core.pretrained import PRETRAINED, load_pretrained
from saccade.models import entry
from saccade.training.run import BackboneConfig, prepare_backbone
from saccade.vision import load_extractor
from saccade.vision.backbones.base import load_backbone
from saccade.vision.backbones.dinov2 import Block, Dinov2, Dinov2Config
from saccade.vision.extractors import trainable_backbone

SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "patch_size": 14}


def official(registers: int = 4, **settings: Any) -> transformers.PreTrainedModel:
    """A small random network of transformers, nothing in it at its initial zeros or ones."""
    torch.manual_seed(0)
    values = {**SIZES, "image_size": 70, "mlp_ratio": 3, **settings}
    t = transformers
    model: transformers.PreTrainedModel = (
        t.Dinov2WithRegistersModel(t.Dinov2WithRegistersConfig(num_register_tokens=registers, **values))
        if registers
        else t.Dinov2Model(t.Dinov2Config(**values))
    )
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.3)
    return model.eval()


def as_map(tokens: Tensor, front: int, rows: int, columns: int) -> Tensor:
    return tokens[:, front:].transpose(1, 2).unflatten(2, (rows, columns))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dinov2")
    official().save_pretrained(path)
    return path


@pytest.mark.parametrize("registers", [4, 1, 0])
@pytest.mark.parametrize(("height", "width"), [(70, 70), (56, 56), (98, 42), (14, 112), (140, 140)])
def test_it_computes_what_transformers_computes(registers: int, height: int, width: int, tmp_path: Path) -> None:
    """In float64, so that nothing but rounding is forgiven, and in float32."""
    theirs = official(registers)
    theirs.save_pretrained(tmp_path)
    ours = load_backbone(f"dinov2:{tmp_path}")
    pictures = torch.randn(2, 3, height, width)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-6)):  # positions are interpolated in float32
        with torch.inference_mode():
            tokens = theirs.to(dtype)(pictures.to(dtype)).last_hidden_state
            (found,) = ours.to(dtype)(pictures.to(dtype))
        expected = as_map(tokens, 1 + registers, height // 14, width // 14)
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance * float(expected.abs().max()))


def test_the_maps_of_blocks_are_those_of_transformers(folder: Path) -> None:
    stages = transformers.Dinov2WithRegistersBackbone.from_pretrained(folder, out_features=["stage1", "stage3"]).eval()
    pictures = torch.randn(1, 3, 42, 56)
    ours = load_backbone(f"dinov2:{folder}:1+3")
    assert ours.strides == (14, 14)
    assert ours.channels == (32, 32)
    with torch.inference_mode():
        expected, found = stages(pictures).feature_maps, ours(pictures)
        torch.testing.assert_close(found, tuple(expected), rtol=1e-5, atol=3e-5)
        first = load_backbone(f"dinov2:{folder}:1")
        torch.testing.assert_close(first(pictures)[0], found[0])
    assert len(first.parts) == 3  # the blocks after it are not there
    assert first.name == f"dinov2:{folder}:1"


def in_names_of_transformers(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The official names, one by one."""
    found = {}
    changes = [
        (r"^(cls_token|register_tokens|mask_token)$", r"embeddings.\1"),
        (r"^pos_embed$", "embeddings.position_embeddings"),
        (r"^patch_embed\.proj", "embeddings.patch_embeddings.projection"),
        (r"^norm\.", "layernorm."),
        (r"^blocks\.", "encoder.layer."),
        (r"\.ls([12])\.gamma", r".layer_scale\1.lambda1"),
        (r"\.attn\.proj", ".attention.output.dense"),
    ]
    for name, value in state.items():
        for pattern, theirs in changes:
            name = re.sub(pattern, theirs, name)
        if ".attn.qkv." in name:
            for part, rows in zip(("query", "key", "value"), value.chunk(3), strict=True):
                found[name.replace(".attn.qkv.", f".attention.attention.{part}.")] = rows.contiguous()
        else:
            found[name] = value.contiguous()
    return found


def test_the_real_weights_compute_what_transformers_computes(tmp_path: Path) -> None:
    if PRETRAINED["dinov2-s"].where() is None:
        pytest.skip("the weights are not here: SACCADE_WEIGHTS names a folder with them")
    shape = {"hidden_size": 384, "num_attention_heads": 6, "patch_size": 14, "image_size": 518}
    config = transformers.Dinov2WithRegistersConfig(num_register_tokens=4, **shape)
    config.save_pretrained(tmp_path)
    save_file(in_names_of_transformers(load_pretrained("dinov2-s")), tmp_path / "model.safetensors", {"format": "pt"})
    theirs = transformers.Dinov2WithRegistersModel.from_pretrained(tmp_path).eval()
    ours = load_backbone("dinov2-s")
    for height, width in ((224, 224), (518, 518), (336, 448)):
        pictures = torch.randn(1, 3, height, width)
        with torch.inference_mode():
            expected = as_map(theirs(pictures).last_hidden_state, 5, height // 14, width // 14)
            torch.testing.assert_close(ours(pictures)[0], expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


def test_official_weights_and_those_of_transformers_are_the_same_network(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`dinov2-s` is read under the official names, of which the package's file has one more than is used."""
    torch.manual_seed(0)
    plain = Dinov2("dinov2-s")
    names = {
        "embed.class_token": "cls_token",
        "embed.registers": "register_tokens",
        "embed.positions": "pos_embed",
        "embed.patches": "patch_embed.proj",
        ".qkv": ".attn.qkv",
        ".project": ".attn.proj",
        ".fc": ".mlp.fc",
    }
    state = {"mask_token": torch.zeros(1, 384)}
    for name, value in plain.state_dict().items():
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        state[re.sub(r"\.scale([12])$", r".ls\1.gamma", name)] = value
    monkeypatch.setattr("saccade.vision.backbones.dinov2.load_pretrained", lambda name: state)
    found = load_backbone("dinov2-s").state_dict()
    assert all(torch.equal(found[name], value) for name, value in plain.state_dict().items())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_type": "vit"}, "is not the config of a DINOv2: its model_type must be dinov2 or"),
        ({"use_swiglu_ffn": True}, "not the giant one"),
        ({"hidden_size": "wide"}, "hidden_size must be a whole number, not 'wide'"),
        ({"num_hidden_layers": 4}, "are not those of its config: blocks.3.fc1.bias differs"),
        ({"hidden_size": 16}, "are not those of its config: blocks.0.fc1.bias differs"),
    ],
)
def test_another_network_is_refused(change: dict[str, Any], reason: str, folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**config, **change}), encoding="utf-8")
    save_file(load_file(folder / "model.safetensors"), tmp_path / "model.safetensors")
    with pytest.raises(SaccadeError, match=reason):
        load_backbone(f"dinov2:{tmp_path}")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("dinov2", r"dinov2-s, dinov2:HUB/NAME or dinov2:FOLDER was expected"),
        ("dinov2-s:last", r"such as :9 or :6\+12"),
        ("dinov2-s:13", r"must name blocks from 1 to 12, each once and in order, not 13"),
        ("dinov2-s:9+6", r"not 9\+6"),
        ("dinov2-s:0", r"not 0"),
        ("dinov2:./nowhere", r"there is no folder nowhere"),
    ],
)
def test_a_bad_name_is_answered_with_one_sentence(name: str, reason: str) -> None:
    with pytest.raises(SaccadeError, match=reason):
        load_backbone(name, pretrained=False)


def test_the_sides_of_pictures_are_multiples_of_a_patch(folder: Path) -> None:
    backbone = Dinov2("small", Dinov2Config(dim=8, depth=1, heads=2)).eval()
    with pytest.raises(SaccadeError, match="multiples of 14 pixels: 224, say, not 225"):
        backbone(torch.zeros(1, 3, 224, 225))
    with pytest.raises(SaccadeError, match="multiples of 14 pixels: 252, say, not 256"):
        load_extractor(f"grid:dinov2:{folder}@256/7")


def test_as_a_grid_it_gives_cells_and_the_inside_of_boxes(folder: Path) -> None:
    extractor = load_extractor(f"grid:dinov2:{folder}@70/2")
    picture = np.random.default_rng(0).integers(0, 256, (70, 70, 3), dtype=np.uint8)
    regions = extractor.extract([picture])
    assert regions.features.shape == (1, 4, 32)
    (patches,) = load_backbone(f"dinov2:{folder}")(extractor.network.backbone.normalise(torch.tensor(picture)[None]))
    torch.testing.assert_close(regions.features[0, 0], patches[0, :, :3, :3].mean(dim=(1, 2)), rtol=1e-4, atol=1e-4)
    boxes = np.array([[0, 0, 1, 1], [0.2, 0.2, 0.4, 0.4]], dtype=np.float32)
    inside = extractor.extract([picture], [boxes])
    torch.testing.assert_close(inside.boxes[0], torch.tensor(boxes))
    assert inside.features.shape == (1, 2, 32)
    assert load_extractor(f"grid:dinov2:{folder}:1@70/2").digest != extractor.digest


def test_drop_path_drops_in_training_alone_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    backbone = Dinov2("small", Dinov2Config(dim=8, depth=3, heads=2, positions=2))
    backbone.set_drop_path(0.5)
    blocks = [block for block in backbone.blocks if isinstance(block, Block)]
    assert [block.drop_path for block in blocks] == [0, 0.25, 0.5]
    tokens = torch.randn(1, 5, 8).expand(4000, -1, -1)
    with torch.no_grad():
        whole = blocks[2].eval()(tokens)
        dropped = blocks[2].train()(tokens)
    kinds = torch.unique((dropped - tokens).flatten(1), dim=0)
    assert len(kinds) <= 4  # either branch, both, or none
    assert (dropped == tokens).all(dim=(1, 2)).float().mean() == pytest.approx(0.25, abs=0.05)
    torch.testing.assert_close(whole, backbone.eval().blocks[2](tokens))
    with pytest.raises(SaccadeError, match='the backbone "efficientnet-lite0" has no drop path'):
        load_backbone("efficientnet-lite0", pretrained=False).set_drop_path(0.1)


def test_each_part_learns_more_slowly_than_the_one_after_it(folder: Path) -> None:
    model = nn_model(f"grid:dinov2:{folder}@28")
    model.backbone_lr_scale, model.backbone_layer_decay = 0.1, 0.5
    groups = model.parameter_groups()
    assert [group["factor"] for group in groups] == pytest.approx([1, 0.1, 0.05, 0.025, 0.0125, 0.00625])
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    assert groups[1]["params"][0] is model.backbone.backbone.norm.weight
    assert any(weight is model.backbone.backbone.embed.class_token for weight in groups[-1]["params"])
    model.backbone_layer_decay = 1.0
    assert [group["factor"] for group in model.parameter_groups()] == [1, 0.1]
    for wrong in ({"layer_decay": 0.0}, {"layer_decay": 1.5}, {"drop_path": 1.0}, {"drop_path": -0.1}):
        with pytest.raises(SaccadeError, match=next(iter(wrong))):
            BackboneConfig(**wrong)


def nn_model(extractor: str) -> Any:
    from saccade.language import Vocabulary

    known = entry("vse").model
    model: Any = known(known.Config(region_dim=32, dim=8, word_dim=8), Vocabulary.build(["a dog"], 1))
    model.backbone = trainable_backbone(extractor)
    return model


def test_it_is_trained_further_and_its_first_parts_can_stay(folder: Path) -> None:
    network = trainable_backbone(f"grid:dinov2:{folder}@28/1")
    prepare_backbone(network, BackboneConfig(freeze=2))  # the patches and the first block
    network.train()
    network(PictureBatch(torch.randint(0, 256, (2, 28, 28, 3), dtype=torch.uint8))).features.square().mean().backward()
    reached = [{weight.grad is not None for weight in part.parameters()} for part in network.backbone.parts]
    assert reached == [{False}, {False}, {True}, {True}, {True}]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_half_precision_stays_near(device: str, folder: Path) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU here")
    backbone, pictures = load_backbone(f"dinov2:{folder}").to(device), torch.randn(2, 3, 70, 70, device=device)
    with torch.inference_mode():
        full = backbone(pictures)[0]
        with torch.autocast(device, torch.bfloat16):
            half = backbone(pictures)[0].float()
    assert float((half - full).norm() / full.norm()) < 0.05
