"""Backbones of transformers: tiny random models, written by the test, become maps behind our interface."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.vision.backbones.base import load_backbone
from saccade.vision.grid import GridExtractor, GridNetwork, grid_config

TOWER = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}
TEXT = {**TOWER, "vocab_size": 20, "projection_dim": 8, "max_position_embeddings": 8}


def _make(kind: str) -> transformers.PreTrainedModel:
    t = transformers
    staged = {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 12, 16, 20]}
    make: dict[str, Callable[[], Any]] = {
        "resnet": lambda: t.ResNetModel(t.ResNetConfig(embedding_size=8, layer_type="basic", **staged)),
        "resnet-classifier": lambda: t.ResNetForImageClassification(
            t.ResNetConfig(embedding_size=8, layer_type="basic", **staged)
        ),
        "convnext": lambda: t.ConvNextModel(t.ConvNextConfig(image_size=64, **staged)),
        "swin": lambda: t.SwinModel(
            t.SwinConfig(image_size=64, embed_dim=8, depths=[1, 1, 1, 1], num_heads=[1, 1, 2, 2], window_size=2)
        ),
        "dinov2": lambda: t.Dinov2Model(t.Dinov2Config(**TOWER)),
        "vit": lambda: t.ViTModel(t.ViTConfig(**TOWER)),
        "clip": lambda: t.CLIPModel(t.CLIPConfig(text_config=TEXT, vision_config=TOWER, projection_dim=8)),
        "clip-vision": lambda: t.CLIPVisionModel(t.CLIPVisionConfig(**TOWER)),
        "siglip": lambda: t.SiglipModel(t.SiglipConfig(text_config=TEXT, vision_config=TOWER)),
    }
    torch.manual_seed(0)
    return make[kind]().eval()


STAGED = ((4, 8, 16, 32), (8, 12, 16, 20))
ONE_MAP = ((8,), (16,))
EXPECTED = {
    "resnet": STAGED,
    "resnet-classifier": STAGED,
    "convnext": STAGED,
    "swin": ((4, 8, 16, 32), (8, 16, 32, 64)),
    "dinov2": ONE_MAP,
    "vit": ONE_MAP,
    "clip": ONE_MAP,
    "clip-vision": ONE_MAP,
    "siglip": ONE_MAP,
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root = tmp_path_factory.mktemp("hub")

    def folder(kind: str) -> Path:
        if not (root / kind).exists():
            _make(kind).save_pretrained(root / kind)
        return root / kind

    return folder


@pytest.mark.parametrize("kind", EXPECTED)
def test_maps_have_the_strides_and_channels_that_are_told(kind: str, saved: Callable[[str], Path]) -> None:
    backbone = load_backbone(f"hf:{saved(kind)}")
    assert (backbone.strides, backbone.channels) == EXPECTED[kind]
    assert not backbone.training
    for size in (64, 96):  # of which the models know at most one: positions are interpolated
        with torch.inference_mode():
            maps = backbone(backbone.normalise(torch.zeros(2, size, size, 3, dtype=torch.uint8)))
        sides = [(2, c, size // s, size // s) for c, s in zip(backbone.channels, backbone.strides, strict=True)]
        assert [m.shape for m in maps] == sides


@pytest.mark.parametrize("kind", ["vit", "clip", "siglip", "dinov2"])
def test_a_cell_of_the_map_is_the_token_of_its_patch(kind: str, saved: Callable[[str], Path]) -> None:
    backbone = load_backbone(f"hf:{saved(kind)}")
    model = _make(kind)
    tower = getattr(model, "vision_model", model)
    pictures = torch.randn(1, 3, 32, 32)
    with torch.inference_mode():
        tokens: Tensor = tower(pictures).last_hidden_state
        (found,) = backbone(pictures)
    patches = tokens[0, -16:]  # row by row, after the class token
    torch.testing.assert_close(found[0, :, 1, 2], patches[1 * 4 + 2])
    torch.testing.assert_close(found[0].flatten(1).T, patches)


def test_stages_are_those_of_the_saved_weights(saved: Callable[[str], Path]) -> None:
    pictures = torch.randn(1, 3, 64, 64)
    with torch.inference_mode():
        for kind in ("resnet", "resnet-classifier"):  # the second keeps its backbone under a prefix
            model = _make(kind)
            expected = getattr(model, "resnet", model)(pictures).last_hidden_state
            torch.testing.assert_close(load_backbone(f"hf:{saved(kind)}")(pictures)[-1], expected)
            random = load_backbone(f"hf:{saved(kind)}", pretrained=False)(pictures)[-1]
            assert not torch.equal(random, expected)


def test_normalising_follows_the_models_own_processor(saved: Callable[[str], Path], tmp_path: Path) -> None:
    grey = torch.full((1, 2, 2, 3), 128, dtype=torch.uint8)
    imagenet = (128 / 255 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    torch.testing.assert_close(load_backbone(f"hf:{saved('vit')}").normalise(grey)[0, :, 0, 0], imagenet)
    assert load_backbone(f"hf:{saved('vit')}").size == 32  # its config's
    model = _make("vit")
    model.save_pretrained(tmp_path)
    settings = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.25], "size": {"shortest_edge": 48}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings), encoding="utf-8")
    backbone = load_backbone(f"hf:{tmp_path}")
    expected = (torch.full((3,), 128 / 255) - 0.5) / torch.tensor([0.5, 0.5, 0.25])
    torch.testing.assert_close(backbone.normalise(grey)[0, :, 0, 0], expected)
    assert backbone.size == 48
    nested = {"image_processor": {**settings, "do_normalize": False, "crop_size": {"height": 40, "width": 40}}}
    (tmp_path / "preprocessor_config.json").unlink()
    (tmp_path / "processor_config.json").write_text(json.dumps(nested), encoding="utf-8")
    backbone = load_backbone(f"hf:{tmp_path}")
    torch.testing.assert_close(backbone.normalise(grey)[0, :, 0, 0], torch.full((3,), 128 / 255))
    assert backbone.size == 40


def test_a_grid_of_a_hub_model_knows_its_normalisation(saved: Callable[[str], Path], tmp_path: Path) -> None:
    extractor = GridExtractor(GridNetwork(grid_config(f"hf:{saved('clip')}@64/0+1")))
    assert extractor.extract([torch.zeros(9, 9, 3, dtype=torch.uint8).numpy()]).features.shape == (1, 65, 16)
    before = GridExtractor(GridNetwork(grid_config(f"hf:{saved('clip')}"))).digest
    _make("clip").save_pretrained(tmp_path)
    assert (
        GridExtractor(GridNetwork(grid_config(f"hf:{tmp_path}"))).digest == before
    )  # the same model in another folder
    (tmp_path / "preprocessor_config.json").write_text('{"image_mean": [0, 0, 0]}', encoding="utf-8")
    assert GridExtractor(GridNetwork(grid_config(f"hf:{tmp_path}"))).digest != before


def test_what_cannot_be_opened_gets_a_sentence(
    saved: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    text = transformers.BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    transformers.BertModel(text).save_pretrained(tmp_path / "bert")
    empty = tmp_path / "empty"
    empty.mkdir()
    cut = tmp_path / "cut"
    _make("vit").save_pretrained(cut)
    whole = (cut / "model.safetensors").read_bytes()
    (cut / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    other = tmp_path / "other"
    _make("vit").save_pretrained(other)
    (other / "config.json").write_bytes((saved("resnet") / "config.json").read_bytes())
    pickled = tmp_path / "pickled"
    _make("vit").save_pretrained(pickled)
    torch.save(load_file(pickled / "model.safetensors"), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    lacking = tmp_path / "lacking"
    _make("vit").save_pretrained(lacking)
    kept = {k: v for k, v in load_file(lacking / "model.safetensors").items() if "layernorm.bias" not in k}
    save_file(kept, lacking / "model.safetensors", {"format": "pt"})
    broken = tmp_path / "broken"
    _make("vit").save_pretrained(broken)
    (broken / "preprocessor_config.json").write_text("[1]")
    cases = {
        f"{tmp_path}/nowhere": "there is no folder",
        str(tmp_path / "bert"): "does not see pictures",
        str(empty): "could not open",
        str(cut): "could not open",
        str(other): "not those of its config",
        str(pickled): "could not open.*safetensors",
        str(lacking): "not those of its config: they lack .*layernorm.bias",
        str(broken): "preprocessor_config.json must hold an object",
        "nobody/has-such-a-model": "was never fetched from the model hub",
        "not a name!": "there is no folder not a name!",
        "": "needs the name of a model",
    }
    for source, told in cases.items():
        with pytest.raises(SaccadeError, match=told) as caught:
            load_backbone(f"hf:{source}")
        assert "\n" not in str(caught.value)


def test_without_transformers_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(SaccadeError, match=r'pip install "saccade\[hf\]"'):
        load_backbone("hf:microsoft/resnet-50")


def test_a_classifiers_checkpoint_is_enough(tmp_path: Path) -> None:
    """It has no pooler and no normalisation of each stage, and none of its own maps depends on either."""
    torch.manual_seed(0)
    vit = transformers.ViTForImageClassification(transformers.ViTConfig(**TOWER)).eval()
    vit.save_pretrained(tmp_path)
    pictures = torch.randn(1, 3, 32, 32)
    with torch.inference_mode():
        (found,) = load_backbone(f"hf:{tmp_path}")(pictures)
        expected = vit.vit(pictures).last_hidden_state[0, 1:]
    torch.testing.assert_close(found[0].flatten(1).T, expected)
