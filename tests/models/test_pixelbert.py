from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from saccade.batch import PictureBatch, RegionBatch, TextBatch
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models import PixelBert, PixelBertAnswering, PixelBertAnsweringConfig, PixelBertConfig
from saccade.models.pixelbert import PixelBertMatching, PixelBertMatchingConfig
from saccade.vision.grid import GridNetwork, cell_boxes, grid_config

SIZES: dict[str, Any] = {
    "region_dim": 12,
    "dim": 8,
    "heads": 2,
    "hidden": 12,
    "pooled_dim": 6,
    "layers": 2,
    "max_words": 20,
    "initial_spread": 0.3,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}


def model_of(vocabulary: Vocabulary, **settings: Any) -> PixelBert:
    torch.manual_seed(0)
    return PixelBert(PixelBertConfig(**{**SIZES, **settings}), vocabulary).double()


def cells_of(rows: int, columns: int, images: int = 4) -> RegionBatch:
    features = torch.randn(images, rows * columns, 12, generator=torch.Generator().manual_seed(1)).double()
    mask = torch.ones(features.shape[:2], dtype=torch.bool)
    return RegionBatch(features, mask, cell_boxes(rows, columns).double().expand(images, -1, -1))


def test_by_default_a_cell_is_a_linear_map_and_one_vector_for_all(vocabulary: Vocabulary, toy_texts: TextBatch) -> None:
    """Neither positions nor norms nor segments; where cells lie does not matter."""
    model, images = model_of(vocabulary).eval(), cells_of(3, 3)
    assert PixelBertConfig().samples == 100
    code = model.encode_images(images)
    weight, bias = model.image.reduce.weight, model.image.reduce.bias
    assert isinstance(bias, torch.Tensor)
    torch.testing.assert_close(code.regions, images.features @ weight.T + bias + model.image.kind)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    moved = replace(images, features=images.features[:, order])
    torch.testing.assert_close(model(moved, toy_texts).pooled, model(images, toy_texts).pooled)
    placed = model_of(vocabulary, rows=3, columns=3).eval()
    assert (placed(moved, toy_texts).pooled - placed(images, toy_texts).pooled).abs().max() > 1e-6


def test_in_training_a_few_cells_are_drawn_and_later_all_are_seen(
    vocabulary: Vocabulary, toy_images: RegionBatch
) -> None:
    """Without replacement, anew each time, and of real cells as long as there are any."""
    model = model_of(vocabulary, samples=3)
    images = toy_images.to(dtype=torch.float64)  # 5, 2, 1 and 4 regions
    every = model.eval().encode_images(images)
    assert torch.equal(every.mask, images.mask)
    drawn = [model.train().encode_images(images) for _ in range(20)]
    assert {tuple(code.mask.sum(dim=1).tolist()) for code in drawn} == {(3, 2, 1, 3)}
    places = []
    for code in drawn:
        same = (code.regions[0][:, None] == every.regions[0]).all(dim=-1)
        assert same.sum(dim=1).tolist() == [1, 1, 1]
        places.append(tuple(sorted(same.nonzero()[:, 1].tolist())))
        assert len(set(places[-1])) == 3
    assert len(set(places)) > 3


def test_the_convolution_reads_a_grid_and_says_where_its_cells_lie(
    vocabulary: Vocabulary, toy_texts: TextBatch
) -> None:
    model = model_of(vocabulary, reduce="conv", image_norm=True, rows=2, columns=3).eval()
    images = cells_of(4, 6)
    code, padded = model.encode_images(images), model.encode_images(images.pad(5))
    assert code.regions.shape == (4, 6, 8)
    torch.testing.assert_close(code.regions, padded.regions)
    assert code.boxes is not None
    torch.testing.assert_close(code.boxes[0], cell_boxes(2, 3))
    with pytest.raises(SaccadeError, match="reads all cells of one grid"):
        model.encode_images(images.resize(region=20))
    with pytest.raises(SaccadeError, match=r"rows and model\.columns go together"):
        PixelBertConfig(rows=3)


def test_an_answerer_with_a_convolution_tells_of_the_cells_that_came_in(
    vocabulary: Vocabulary, toy_texts: TextBatch
) -> None:
    torch.manual_seed(0)
    config = PixelBertAnsweringConfig(**SIZES, reduce="conv", answers=("yes", "no", "two"))
    model = PixelBertAnswering(config, vocabulary).double().eval()
    answered = model.answer(cells_of(4, 4), toy_texts)
    assert answered.alignment is not None
    assert answered.alignment.shape == (4, toy_texts.tokens.shape[1], 16)
    weights = answered.weights.view(4, 4, 4)
    torch.testing.assert_close(weights.sum(dim=(1, 2)), torch.ones(4).double())
    for y, x in ((0, 0), (0, 2), (2, 0), (2, 2)):
        assert (weights[:, y : y + 2, x : x + 2] == weights[:, y : y + 1, x : x + 1]).all()


def test_a_text_chooses_among_as_many_wrong_pairs_as_asked(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    config = PixelBertMatchingConfig(**SIZES, wrong_pairs=5)
    model = PixelBertMatching(config, vocabulary)
    owner, same = torch.arange(4), torch.eye(4, dtype=torch.bool)
    chosen = model.choices(toy_texts, owner, same)
    assert len(chosen) == 6
    assert same[chosen[0]].all()
    assert not any(same[pair].any() for pair in chosen[1:])
    images, texts = model.encode_images(toy_images), model.encode_texts(toy_texts)
    assert model.choice_loss(images, texts, toy_texts, owner, same).isfinite()


def test_words_can_be_averaged_over_all_places(vocabulary: Vocabulary) -> None:
    logits, target = torch.randn(2, 5, len(vocabulary)).double(), torch.full((2, 5), -1)
    target[0, 1], target[1, 3] = 4, 6
    masked, every = (model_of(vocabulary, word_average=kind).word_loss(logits, target) for kind in ("masked", "all"))
    torch.testing.assert_close(every, masked * 2 / 10)


def test_the_largest_of_four_cells_stands_for_them() -> None:
    """`~max2` pools the map, odd maps too; boxes say which cells a region is of, and the name builds it again."""
    config = grid_config("world@120~max2")  # a map of 30 × 30
    assert config.pool == 2
    assert config.name == "grid:world@120~max2"
    network = GridNetwork(config, pretrained=False).eval()
    pixels = torch.randint(0, 256, (1, 120, 120, 3), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    found = network(PictureBatch(pixels))
    cells = network.map(pixels)
    assert found.features.shape == (1, 15 * 15, network.dim)
    torch.testing.assert_close(found.features[0, 16], cells[0, :, 2:4, 2:4].amax(dim=(1, 2)))
    torch.testing.assert_close(found.boxes[0], cell_boxes(15, 15))
    odd = GridNetwork(grid_config("world@100~max2"), pretrained=False).eval()  # 25 × 25
    last = odd(PictureBatch(pixels))
    assert last.boxes.shape[1] == 13 * 13
    torch.testing.assert_close(last.boxes[0, -1], torch.tensor([24 / 25, 24 / 25, 1, 1]))
    torch.testing.assert_close(last.features[0, -1], odd.map(pixels)[0, :, -1, -1])
