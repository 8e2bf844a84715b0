"""The DETR family through one extractor: tiny random detectors, saved to folders and loaded as users have them."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoModelForObjectDetection as AnyDetector
from transformers import (
    ConditionalDetrConfig,
    DeformableDetrConfig,
    DetrConfig,
    DetrImageProcessor,
    ResNetConfig,
    RTDetrConfig,
    RTDetrImageProcessor,
    RTDetrResNetConfig,
    YolosConfig,
)

from saccade.core.errors import SaccadeError
from saccade.vision import load_extractor, open_picture
from saccade.vision.detectors.detr import DetrExtractor, PictureForm, read_form

NAMES = {0: "dog", 1: "cat", 2: "bus"}
TRANSFORMER = {"encoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
TRANSFORMER |= {"encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "num_queries": 12}
LONG = {"size": {"shortest_edge": 64, "longest_edge": 107}, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.3, 0.4]}
SQUARE = {"size": {"height": 64, "width": 64}, "do_normalize": False}


def resnet(*stages: str, kind: type = ResNetConfig) -> Any:
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 8, 12, 16], "depths": [1] * 4}
    return kind(**sizes, layer_type="basic", out_features=[*stages])


def config_of(family: str) -> Any:
    plain = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None, "id2label": NAMES}
    if family == "detr":
        return DetrConfig(backbone_config=resnet("stage4"), d_model=16, decoder_layers=1, **plain, **TRANSFORMER)
    if family == "conditional":
        return ConditionalDetrConfig(
            backbone_config=resnet("stage4"), d_model=16, decoder_layers=1, **plain, **TRANSFORMER
        )
    if family == "deformable":
        maps = resnet("stage2", "stage3", "stage4")
        levels = {"num_feature_levels": 3, "d_model": 32, "decoder_layers": 2}
        return DeformableDetrConfig(backbone_config=maps, **levels, **plain, **TRANSFORMER)
    if family == "yolos":
        sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
        return YolosConfig(image_size=[64, 96], patch_size=16, num_detection_tokens=12, id2label=NAMES, **sizes)
    maps = resnet("stage2", "stage3", "stage4", kind=RTDetrResNetConfig)
    widths = {
        "encoder_hidden_dim": 16,
        "encoder_in_channels": [8, 12, 16],
        "decoder_in_channels": [16] * 3,
        "d_model": 16,
    }
    counts = {"decoder_layers": 2, "num_denoising": 0, "encode_proj_layers": [2]}
    return RTDetrConfig(backbone_config=maps, id2label=NAMES, **widths, **counts, **TRANSFORMER)


FAMILIES = ("detr", "conditional", "deformable", "yolos", "rt_detr")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A detector of each family, as `save_pretrained` leaves it."""
    made = {}
    for family in FAMILIES:
        torch.manual_seed(3)
        made[family] = tmp_path_factory.mktemp(family)
        network = AnyDetector.from_config(config_of(family))
        for name, weight in network.named_parameters():
            if "class" in name and weight.ndim == 2:
                torch.nn.init.normal_(weight, std=0.7)  # or all queries are equally sure, and their order is chance
        network.save_pretrained(made[family])
        (made[family] / "preprocessor_config.json").write_text(json.dumps(SQUARE if family == "rt_detr" else LONG))
    return made


@pytest.fixture(scope="module")
def extractors(folders: dict[str, Path]) -> dict[str, DetrExtractor]:
    return {family: load_extractor(f"detr:{folder}@3-8") for family, folder in folders.items()}  # type: ignore[misc]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_picture_is_seen_as_the_detector_itself_sees_it(
    family: str, folders: dict[str, Path], extractors: dict[str, DetrExtractor], photos: list[Path]
) -> None:
    """Against the network called directly: best queries first, with their vectors, boxes, scores and names."""
    extractor = extractors[family]
    network = AnyDetector.from_pretrained(folders[family]).eval()
    pixels = extractor.form.normalise(torch.from_numpy(extractor.prepare(photos[0]))[None])
    with torch.no_grad():
        output = network(pixel_values=pixels)
    chance = output.logits.softmax(-1)[0, :, :-1] if family in ("detr", "yolos") else output.logits.sigmoid()[0]
    score, kind = chance.max(dim=1)
    order = score.argsort(descending=True)
    x, y, w, h = output.pred_boxes[0].unbind(dim=1)
    boxes = torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], dim=1).clamp(0, 1)

    seen, named = extractor.extract([photos[0]]), extractor.describe([photos[0]])[0]
    count = int(seen.mask[0].sum()) - 1
    assert 3 <= count <= 8
    order = order[:count]
    torch.testing.assert_close(seen.features[0, :count], output.last_hidden_state[0, -12:][order])
    torch.testing.assert_close(seen.boxes[0, :count], boxes[order])
    assert seen.scores is not None
    torch.testing.assert_close(seen.scores[0, :count], score[order])
    assert [region.text for region in named] == [*(NAMES[int(k)] for k in kind[order]), ""]
    assert seen.boxes[0, count].tolist() == [0, 0, 1, 1]  # the whole picture
    assert seen.ids == (str(photos[0]),)
    assert seen.features.shape[2] == extractor.dim


@pytest.mark.parametrize("family", FAMILIES)
def test_a_picture_does_not_depend_on_its_neighbours_nor_on_being_prepared(
    family: str, extractors: dict[str, DetrExtractor], photos: list[Path]
) -> None:
    extractor = extractors[family]
    few = photos[5:9]  # two shapes
    together = extractor.extract(few)
    prepared = extractor.extract([extractor.prepare(photo) for photo in few], batch_size=2)
    torch.testing.assert_close(prepared.features, together.features, atol=1e-4, rtol=1e-3)
    for i, photo in enumerate(few):
        alone = extractor.extract([photo])
        regions = int(alone.mask.sum())
        assert int(together.mask[i].sum()) == regions
        torch.testing.assert_close(together.features[i, :regions], alone.features[0], atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_given_boxes_are_read_from_the_encoders_map_or_refused(
    family: str, extractors: dict[str, DetrExtractor], photos: list[Path]
) -> None:
    extractor = extractors[family]
    boxes = np.array([[0, 0, 1, 1], [0.1, 0.2, 0.5, 0.6]], dtype=np.float32)
    if family == "deformable":  # its maps of several strides are one sequence
        with pytest.raises(SaccadeError, match="finds its own regions"):
            extractor.extract([photos[0]], [boxes])
        return
    seen = extractor.extract([photos[0], photos[7]], [boxes, boxes[1:]])
    assert seen.mask.sum(dim=1).tolist() == [2, 1]
    assert seen.boxes[0].tolist() == pytest.approx(boxes)
    assert seen.features.abs().sum(dim=2)[seen.mask].min() > 0
    with pytest.raises(SaccadeError, match="not boxes that are given"):
        extractor.describe([photos[0]], [boxes])


def test_a_given_cell_of_the_map_returns_that_cell(extractors: dict[str, DetrExtractor], photos: list[Path]) -> None:
    extractor = extractors["rt_detr"]
    pixels = torch.from_numpy(extractor.prepare(photos[0]))[None]
    finest = extractor.network(pixel_values=extractor.form.normalise(pixels)).encoder_last_hidden_state[0]  # 8 × 8
    cell = np.array([[3 / 8 + 0.0624, 5 / 8 + 0.0624, 3 / 8 + 0.0626, 5 / 8 + 0.0626]])  # about its centre
    seen = extractor.extract([photos[0]], [cell])
    torch.testing.assert_close(seen.features[0, 0], finest[0, :, 5, 3], atol=2e-3, rtol=1e-2)


def test_how_many_regions_is_part_of_the_name(folders: dict[str, Path], photos: list[Path]) -> None:
    five = load_extractor(f"detr:{folders['detr']}@5")
    assert five.extract(photos[:2]).mask.sum(dim=1).tolist() == [6, 6]  # and the whole picture
    assert five.name == f"detr:{folders['detr']}@5"
    again, plain = load_extractor(five.name), load_extractor(f"detr:{folders['detr']}")
    assert again.digest == five.digest != plain.digest
    sure = load_extractor(f"detr:{folders['detr']}@1-100").extract(photos[:1])
    assert sure.scores is not None
    assert (sure.scores > 0.2).all()
    assert plain.extract(photos[:1]).mask.sum() == max(len(sure.scores[0]), 11)  # at least ten, though none is sure
    with pytest.raises(SaccadeError, match="9 to 3 regions"):
        load_extractor(f"detr:{folders['detr']}@9-3")


@pytest.mark.parametrize(("height", "width"), [(171, 256), (256, 170), (224, 224), (60, 400), (64, 90), (500, 333)])
def test_pictures_are_scaled_as_the_librarys_own_processors_do(height: int, width: int, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    for form, processor in ((LONG, DetrImageProcessor(**LONG)), (SQUARE, RTDetrImageProcessor(**SQUARE))):
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(form))
        ours = read_form(tmp_path / "preprocessor_config.json")
        theirs = processor(Image.fromarray(noise), return_tensors="pt")["pixel_values"]
        made = ours.normalise(torch.from_numpy(ours.resize(noise))[None])
        torch.testing.assert_close(made, torch.as_tensor(theirs), atol=1e-5, rtol=1e-5)


def test_a_picture_is_resized_once_whatever_its_shape() -> None:
    forms = [
        PictureForm(shortest=800, longest=1333),
        PictureForm(shortest=64),
        PictureForm(within=(300, 500)),
        PictureForm(),
    ]
    for form in [*forms, PictureForm(fixed=(64, 48))]:
        for shape in ((1, 900), (37, 41), (600, 801), (1333, 750), (64, 64), (3000, 17)):
            size = form.size(*shape)
            assert form.size(*size) == size
            assert min(size) >= 16


def test_a_newer_processor_file_is_read_too(folders: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(folders["yolos"], tmp_path / "new")
    (tmp_path / "new" / "preprocessor_config.json").rename(tmp_path / "new" / "processor_config.json")
    (tmp_path / "new" / "processor_config.json").write_text(json.dumps({"image_processor": LONG}))
    assert load_extractor(f"detr:{tmp_path / 'new'}").digest == load_extractor(f"detr:{folders['yolos']}").digest


def test_what_is_no_detector_gets_one_sentence(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    def copy(name: str, **files: str | None) -> Path:
        folder = tmp_path / name
        shutil.copytree(folders["yolos"], folder)
        for file, text in files.items():
            path = folder / file.replace("__", ".")
            path.unlink() if text is None else path.write_text(text)
        return folder

    resnet_config = json.dumps({"model_type": "resnet"})
    broken = copy("broken")
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    deeper, headless = copy("deeper"), copy("headless")
    config = json.loads((deeper / "config.json").read_text())
    (deeper / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))  # the weights have two
    kept = {k: v for k, v in load_file(headless / "model.safetensors").items() if "class" not in k}
    save_file(kept, headless / "model.safetensors", {"format": "pt"})
    for source, sentence in (
        ("", "detr:HUB/NAME"),
        ("nobody/has-this", "was never fetched from the model hub"),
        (copy("empty", config__json=None), "empty holds no config.json"),
        (copy("resnet", config__json=resnet_config), "cannot be loaded as an object detector"),
        (copy("pickled", model__safetensors=None), "holds no detector with safetensors weights"),
        (broken, "cannot be loaded"),
        (deeper, "cannot be loaded"),
        (headless, "not those of its config: they lack class_labels_classifier.* more"),
        (copy("formless", preprocessor_config__json=None), "preprocessor_config.json is missing"),
        (copy("json", preprocessor_config__json="{"), "not valid JSON"),
        (copy("sizeless", preprocessor_config__json='{"size": {"height": "big"}}'), "size is .* were expected"),
        (copy("mean", preprocessor_config__json=json.dumps({**LONG, "image_mean": 0.5})), "three numbers"),
        (copy("std", preprocessor_config__json=json.dumps({**LONG, "image_std": [1, 0, 1]})), "above zero"),
        (copy("filter", preprocessor_config__json=json.dumps({**LONG, "resample": 17})), "resample is 17"),
    ):
        with pytest.raises(SaccadeError, match=sentence) as error:
            load_extractor(f"detr:{source}")
        assert "\n" not in str(error.value)


def test_without_transformers_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(SaccadeError, match=r'pip install "saccade\[hf\]"'):
        load_extractor("detr:some/detector")


def test_any_mode_and_shape_of_picture_is_seen(extractors: dict[str, DetrExtractor], photos: list[Path]) -> None:
    grey, sliver = open_picture(photos[0]).convert("L"), np.full((1, 300, 3), 0.5)
    seen = extractors["detr"].extract([grey, sliver, np.zeros((40, 30, 4), dtype=np.uint8)])
    assert seen.features.isfinite().all()
    assert seen.mask.any(dim=1).all()
    with pytest.raises(SaccadeError, match="2 pictures but 1 arrays"):
        extractors["detr"].extract([grey, grey], [np.array([[0, 0, 1, 1]])])
