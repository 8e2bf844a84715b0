"""The grid extractor: cells and their boxes, names that build it again, given boxes, gradients, and what its digest
tells.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from saccade.batch import PictureBatch, RegionBatch
from saccade.core.errors import SaccadeError
from saccade.vision import load_extractor
from saccade.vision.backbones.base import stretch
from saccade.vision.grid import GridConfig, GridExtractor, GridNetwork, cell_boxes, grid_config, resized

configs = st.builds(
    GridConfig,
    backbone=st.one_of(
        st.sampled_from(["efficientnet-lite0", "world", "hf:microsoft/resnet-50", "hf:/a/b@224", "hf:/a/7", "hf:a#1"]),
        st.text(min_size=1),
        st.text("0123456789#@/+-", min_size=1),
    ),
    size=st.none() | st.integers(16, 4096),
    levels=st.lists(st.integers(-99, 99), max_size=3).map(tuple),
    corners=st.booleans(),
    cells=st.lists(st.integers(0, 64), min_size=1, max_size=4).map(tuple),
)


def network(name: str = "efficientnet-lite0@64") -> GridNetwork:
    torch.manual_seed(0)
    return GridNetwork(grid_config(name), pretrained=False).eval()


@pytest.fixture(scope="module")
def extractor() -> GridExtractor:
    return GridExtractor(network())


@pytest.fixture
def pictures() -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    return [draw.integers(0, 256, (64, 64, 3), dtype=np.uint8) for _ in range(5)]


@settings(deadline=None)
@given(configs)
def test_the_name_builds_the_same_grid_again(config: GridConfig) -> None:
    kind, _, argument = config.name.partition(":")
    assert kind == "grid"
    assert grid_config(argument) == config


def test_names_read_as_they_are_documented() -> None:
    assert grid_config("") == GridConfig()
    assert grid_config("efficientnet-lite2") == GridConfig("efficientnet-lite2")
    assert grid_config("efficientnet-lite0@288") == GridConfig(size=288)
    assert grid_config("efficientnet-lite0/7+3+1") == GridConfig(cells=(7, 3, 1))
    assert grid_config("efficientnet-lite0#-2@288/0+1") == GridConfig(size=288, levels=(-2,), cells=(0, 1))
    assert grid_config("hf:microsoft/resnet-50@224") == GridConfig("hf:microsoft/resnet-50", 224)
    assert GridConfig(size=288, cells=(7, 3, 1)).name == "grid:efficientnet-lite0@288/7+3+1"
    assert GridConfig().name == "grid"
    assert grid_config("dinov2-s:3+12#all@224/8") == GridConfig("dinov2-s:3+12", 224, (), (8,))
    assert grid_config("world#0+-1~tf1") == GridConfig("world", levels=(0, -1), corners=True)


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("efficientnet-lite0@8", "16 to 4096"),
        ("efficientnet-lite0/99", "0 to 64"),
        ("efficientnet-lite9", "did you mean"),
        ("world#7", "has 2 maps"),
    ],
)
def test_a_grid_that_cannot_be_gets_a_sentence(argument: str, told: str) -> None:
    with pytest.raises(SaccadeError, match=told):
        load_extractor(f"grid:{argument}")


def test_cells_tile_the_picture_row_by_row() -> None:
    boxes = cell_boxes(2, 4)
    assert boxes[1].tolist() == [0.25, 0, 0.5, 0.5]
    assert boxes[4].tolist() == [0, 0.5, 0.25, 1]
    torch.testing.assert_close(((boxes[:, 2:] - boxes[:, :2]).prod(dim=1)).sum(), torch.tensor(1.0))


@pytest.mark.parametrize("cells", [1, 2, 3, 5, 7])
def test_the_box_of_a_pooled_cell_holds_just_the_cells_it_was_pooled_from(cells: int) -> None:
    where = torch.zeros(1, 49, 7, 7)  # channel k is the place of cell k
    where[0, torch.arange(49), torch.arange(49) // 7, torch.arange(49) % 7] = 1
    pooled = torch.nn.functional.adaptive_avg_pool2d(where, cells).flatten(2)[0].T > 0  # [pooled cell, cell]
    small, large = cell_boxes(7, 7), cell_boxes(7, 7, cells)
    middle = (small[:, :2] + small[:, 2:]) / 2
    inside = (middle > large[:, None, :2]).all(dim=2) & (middle < large[:, None, 2:]).all(dim=2)
    assert torch.equal(inside, pooled)


def test_several_grids_make_one_set() -> None:
    seen = network("efficientnet-lite0@224/7+3+1")(
        PictureBatch(torch.zeros(2, 224, 224, 3, dtype=torch.uint8), ("a", "b"))
    )
    assert seen.features.shape == (2, 49 + 9 + 1, 1280)
    assert seen.mask.all()
    assert seen.boxes[1, -1].tolist() == [0, 0, 1, 1]
    assert seen.ids == ("a", "b")
    torch.testing.assert_close(seen.features[:, -1], seen.features[:, :49].mean(dim=1))


def test_the_gradient_reaches_the_backbone() -> None:
    net = network("efficientnet-lite0#-2@64").train()
    seen = net(PictureBatch(torch.randint(0, 256, (2, 48, 80, 3), dtype=torch.uint8)))
    assert seen.features.shape == (2, 16, 112)
    seen.features.square().mean().backward()
    assert net.backbone.stem.conv.weight.grad.abs().sum() > 0


def test_pictures_of_other_sizes_are_stretched_as_pillow_does(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    array = draw.integers(0, 256, (90, 140, 3), dtype=np.uint8)
    ours = stretch(torch.from_numpy(array)[None], 64)[0].numpy().astype(int)
    theirs = np.asarray(Image.fromarray(array).resize((64, 64), Image.Resampling.BILINEAR)).astype(int)
    assert abs(ours - theirs).max() <= 1


def test_folding_and_batching_change_no_feature(extractor: GridExtractor, pictures: list[np.ndarray]) -> None:
    seen = extractor.extract(pictures, batch_size=2)
    with torch.inference_mode():
        plain = network()(PictureBatch(torch.from_numpy(np.stack(pictures))))
    torch.testing.assert_close(seen.features, plain.features, rtol=1e-4, atol=1e-5 * float(plain.features.max()))
    assert torch.equal(seen.boxes, plain.boxes)


def test_given_boxes_are_read_where_they_lie(extractor: GridExtractor, pictures: list[np.ndarray]) -> None:
    cells = extractor.extract(pictures[:2])
    quarter, whole = cells.boxes[0, 1].numpy(), np.array([0, 0, 1, 1])
    seen = extractor.extract(pictures[:2], [np.stack([quarter, whole]), whole[None]])
    assert seen.mask.tolist() == [[True, True], [True, False]]
    assert seen.boxes[0, 0].tolist() == quarter.tolist()
    near = torch.nn.functional.cosine_similarity(seen.features[0, :1], cells.features[0], dim=1)
    assert near.argmax() == 1
    middle = torch.nn.functional.cosine_similarity(seen.features[0, 1], cells.features[0].mean(dim=0), dim=0)
    assert middle > 0.99


def test_paths_become_ids_and_bad_files_get_a_sentence(extractor: GridExtractor, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.png", tmp_path / "bad.png"
    Image.new("RGB", (50, 30), "red").save(good)
    bad.write_bytes(b"no picture")
    assert extractor.extract([good]).ids == (str(good),)
    with pytest.raises(SaccadeError, match=r"bad\.png is not a picture"):
        extractor.extract([good, bad])
    with pytest.raises(SaccadeError, match="1 pictures but 0 arrays"):
        extractor.extract([good], [])
    assert len(extractor.extract([])) == 0


def test_the_digest_knows_weights_and_settings_and_nothing_else() -> None:
    same = {GridExtractor(network(name)).digest for name in ("world", "world@128", "world#1", "world#-1/0")}
    assert len(same) == 1
    others = {GridExtractor(network(name)).digest for name in ("world@64", "world#0", "world/3", "world/3+1")}
    assert len(others | same) == 5
    changed = network("world")
    with torch.no_grad():
        next(changed.backbone.parameters()).view(-1)[0] += 1
    assert GridExtractor(changed).digest not in same


def test_an_extractor_of_a_grid_names_nothing(extractor: GridExtractor, pictures: list[np.ndarray]) -> None:
    assert isinstance(extractor.extract(pictures[:1]), RegionBatch)
    with pytest.raises(SaccadeError, match="has no names"):
        extractor.describe(pictures[:1])


@pytest.mark.parametrize("name", ["dinov2-s@28", "efficientnet-lite0@64"])
def test_weights_in_bfloat16_change_features_little_and_the_digest(name: str, pictures: list[np.ndarray]) -> None:
    full, half = (GridExtractor(network(name)) for _ in range(2))
    half.read_in_bfloat16()
    assert {p.dtype for p in half.network.backbone.parameters()} == {torch.bfloat16}
    assert half.digest != full.digest
    boxes = [np.array([[0.1, 0.2, 0.8, 0.9]])] * len(pictures)
    for given_boxes in (None, boxes):
        seen, rounded = (one.extract(pictures, given_boxes).features for one in (full, half))
        assert rounded.dtype == torch.float32
        assert 0 < (seen - rounded).norm() < 0.1 * seen.norm()


def test_an_extractor_without_bfloat16_says_so() -> None:
    with pytest.raises(SaccadeError, match='the extractor "world" knows float32 alone'):
        load_extractor("world", precision="bf16")


def test_several_maps_come_to_the_finest_and_stand_side_by_side() -> None:
    pictures = PictureBatch(torch.randint(0, 256, (1, 64, 64, 3), dtype=torch.uint8))
    both, fine, coarse = (network(f"world{which}@64")(pictures) for which in ("#all", "#0", "#1"))
    assert both.features.shape == (1, 32 * 32, 16 + 64)
    torch.testing.assert_close(both.features[..., :16], fine.features)
    torch.testing.assert_close(both.boxes, fine.boxes)
    whole = network("world#all@64/1")(pictures).features[0, 0]
    torch.testing.assert_close(
        whole[16:], resized(coarse.features.mT.unflatten(2, (16, 16)), 32, 32)[0].mean(dim=(1, 2))
    )
    names = [GridExtractor(network(f"world{which}@64")).digest for which in ("", "#1", "#all", "#all~tf1")]
    assert names[0] == names[1]
    assert len(set(names)) == 3


def test_a_map_grows_by_the_middles_of_its_cells_or_by_their_corners() -> None:
    row = torch.tensor([[[[0.0, 4.0]]]])
    assert resized(row, 1, 4)[0, 0, 0].tolist() == [0, 1, 3, 4]
    assert resized(row, 1, 4, corners=True)[0, 0, 0].tolist() == [0, 2, 4, 4]
    assert resized(row.mT, 4, 1, corners=True)[0, 0, :, 0].tolist() == [0, 2, 4, 4]
    assert resized(row, 1, 2, corners=True) is row


def test_the_worlds_layers_are_those_of_its_extractor() -> None:
    layers = load_extractor("grid:world-layers#0/8")
    joined = load_extractor("grid:world/8")
    picture = np.random.default_rng(0).integers(0, 256, (128, 128, 3), dtype=np.uint8)
    torch.testing.assert_close(layers.extract([picture]).features, joined.extract([picture]).features)
    assert load_extractor("grid:world-layers#all/8").dim == 48 + 96 + 160 + 64
