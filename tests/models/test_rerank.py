from __future__ import annotations

import pytest
import torch

from saccade.batch import RegionBatch, TextBatch
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models import InterBertMatching, InterBertMatchingConfig
from saccade.models.base.rerank import TwoStages, best_of, reordered


@pytest.fixture
def reader(vocabulary: Vocabulary) -> InterBertMatching:
    torch.manual_seed(0)
    sizes = {"region_dim": 12, "dim": 8, "heads": 2, "image_heads": 4, "hidden": 12, "image_hidden": 10}
    depths = {"layers": 1, "text_layers": 1, "image_layers": 0, "pooled_dim": 6, "max_words": 20}
    config = InterBertMatchingConfig(**sizes, **depths, initial_spread=0.5, budget_mb=0)  # type: ignore[arg-type]
    return InterBertMatching(config, vocabulary).double().eval()


def test_chosen_items_go_by_the_new_scores_and_the_rest_by_the_old_below_them() -> None:
    first = torch.tensor([[5.0, 1.0, 4.0, 3.0, 2.0], [0.0, 1.0, 2.0, 3.0, 4.0]])
    chosen = best_of(first, 3)
    assert chosen.tolist() == [[0, 2, 3], [4, 3, 2]]
    table = reordered(first, chosen, torch.tensor([[-3.0, -1.0, -2.0], [0.0, 9.0, 8.0]]))
    assert table.argsort(dim=1, descending=True).tolist() == [[2, 3, 0, 4, 1], [3, 2, 4, 1, 0]]
    kept = reordered(first, chosen, torch.tensor([[-3.0, -1.0, -2.0], [0.0, 9.0, 8.0]]), blend=100.0)
    assert kept.argsort(dim=1, descending=True).tolist() == first.argsort(dim=1, descending=True).tolist()


def test_scores_of_chosen_pairs_are_those_of_the_table(
    reader: InterBertMatching, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    """In any order, one pair in a block (a budget of nothing) or many."""
    with torch.no_grad():
        images, texts = reader.encode_images(toy_images.to(dtype=torch.float64)), reader.encode_texts(toy_texts)
        table = reader.similarity(images, texts)
    image, text = torch.tensor([3, 0, 0, 2, 1]), torch.tensor([1, 0, 3, 2, 1])
    torch.testing.assert_close(reader.score_pairs(images, texts, image, text), table[image, text])
    assert reader.score_pairs(images, texts, image[:0], text[:0]).shape == (0,)


def test_all_candidates_give_the_cross_encoders_ranking_and_one_gives_the_firsts(
    reader: InterBertMatching, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    with torch.no_grad():
        images, texts = reader.encode_images(toy_images.to(dtype=torch.float64)), reader.encode_texts(toy_texts)
        table = reader.similarity(images, texts)
    first = torch.randn(4, 4, generator=torch.Generator().manual_seed(3))
    every = TwoStages.score(reader, images, texts, first, 9)
    assert every.pairs == 16
    for found, own in ((every.image_to_text(9), table), (every.text_to_image(9), table.T)):
        assert torch.equal(found.argsort(dim=1), own.argsort(dim=1))
    few = TwoStages.score(reader, images, texts, first, 2)
    assert few.pairs < 16
    assert torch.equal(few.image_to_text(1).argsort(dim=1), first.argsort(dim=1))
    assert torch.equal(few.text_to_image(1).argsort(dim=1), first.T.argsort(dim=1))
    for found, before, own in ((few.image_to_text(2), first, table), (few.text_to_image(2), first.T, table.T)):
        order, old = found.argsort(dim=1, descending=True), before.argsort(dim=1, descending=True)
        assert torch.equal(order[:, 2:], old[:, 2:])
        top = own.gather(1, order[:, :2])
        assert (top[:, 0] >= top[:, 1]).all()
    with pytest.raises(SaccadeError, match="at least 1"):
        TwoStages.score(reader, images, texts, first, 0)
    with pytest.raises(SaccadeError, match="4 pictures and 4 texts"):
        TwoStages.score(reader, images, texts, first[:2], 1)
