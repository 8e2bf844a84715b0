"""The multi-level common space: which level a word chooses, empty heat maps, the release's padding, neighbours."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from saccade.batch import ImageCode, RegionBatch, TextBatch, TextCode
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models import Multilevel, MultilevelConfig
from saccade.vision.grid import cell_boxes

SMALL = MultilevelConfig(region_dim=12, levels=(5, 7), hidden=(), dim=4, word_dim=3)


def build(vocabulary: Vocabulary, **settings: object) -> Multilevel:
    torch.manual_seed(0)
    return Multilevel(replace(SMALL, **settings), vocabulary).double().eval()  # type: ignore[arg-type]


def given(cells: list[list[list[float]]], words: list[list[float]]) -> tuple[ImageCode, TextCode]:
    """One picture, [cell level dim], and one sentence."""
    regions, said = torch.tensor(cells).double().flatten(1)[None], torch.tensor(words).double()[None]
    return (
        ImageCode(regions, torch.ones(regions.shape[:2]).bool()),
        TextCode(said, torch.ones(said.shape[:2]).bool(), said[:, 0]),
    )


def test_a_word_is_found_in_the_level_that_fits_it_and_shows_that_heat_map(vocabulary: Vocabulary) -> None:
    x, y, z = [1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 1.0, 0]
    images, texts = given([[x, z], [z, y], [z, z]], [x, y])
    found = build(vocabulary).align(images, texts)
    assert found.word_level is not None
    assert found.word_score is not None
    assert found.word_level.tolist() == [[0, 1]]
    assert found.weights[0].tolist() == [[1, 0, 0], [0, 1, 0]]
    torch.testing.assert_close(found.word_score, torch.ones(1, 2).double())
    phrases = torch.ones(1, 1, 2).double()
    assert build(vocabulary).heat(images, texts, phrases)[0, 0].tolist() == [0.5, 0.5, 0]


def test_a_word_that_fits_nowhere_has_no_score_and_chooses_nothing(vocabulary: Vocabulary) -> None:
    x, back = [1.0, 0, 0, 0], [-1.0, 0, 0, 0]
    images, texts = given([[back, back], [back, back]], [x])
    found = build(vocabulary).align(images, texts)
    assert found.word_score is not None
    assert found.word_score.tolist() == [[0]]
    assert found.weights.tolist() == [[[0.5, 0.5]]]
    assert build(vocabulary).heat(images, texts, torch.ones(1, 1, 1).double()).tolist() == [[[0, 0]]]


def test_a_slope_below_zero_lets_a_lost_word_learn_and_shows_no_heat(vocabulary: Vocabulary) -> None:
    x, back = [1.0, 0, 0, 0], [-1.0, 0.5, 0, 0]
    for slope, learns in ((0.0, False), (0.1, True)):
        images, texts = given([[back, back]], [x])
        words = texts.words.requires_grad_()
        model = build(vocabulary, slope=slope)
        model.word_pairs(*model.prepare(images, texts)).sum().backward()  # type: ignore[no-untyped-call]
        assert words.grad is not None
        assert bool(words.grad.any()) == learns
        assert model.heat(images, texts, torch.ones(1, 1, 1).double()).tolist() == [[[0]]]


def test_entries_for_no_cell_take_attention_that_finds_nothing(vocabulary: Vocabulary) -> None:
    model = build(vocabulary, attention="nowhere", nowhere=1, levels=(), region_dim=4)
    with torch.no_grad():
        model.no_cell.copy_(torch.tensor([[[1.0, 0, 0, 0]]]))
    images, texts = given([[[0, 1.0, 0, 0]], [[0, 0, 1.0, 0]]], [[1.0, 0, 0, 0], [0, 1.0, 0, 0]])
    heat, _, _ = model.heat_maps(*model.prepare(images, texts))
    assert heat[0, 0].sum() < 1e-3  # went nowhere
    assert heat[0, 1, 0] > 0.99


def test_padding_counts_as_words_in_the_releases_form_alone(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    images, longer = toy_images.to(dtype=torch.float64), toy_texts.pad(3)
    paper, release = build(vocabulary), build(vocabulary, count_padding=True)
    torch.testing.assert_close(paper(images, longer), paper(images, toy_texts), rtol=0, atol=1e-12)
    assert (release(images, longer) - release(images, toy_texts)).abs().max() > 1e-3
    alignment = release.align(release.encode_images(images), release.encode_texts(longer))
    assert not alignment.weights[~longer.mask].any()


def test_words_and_sentences_are_ranked_by_losses_of_their_own(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    model, images = build(vocabulary), toy_images.to(dtype=torch.float64)
    sides = model.encode_images(images), model.encode_texts(toy_texts)
    words, sentences = model.ranked(*sides)
    torch.testing.assert_close(words + sentences, model.similarity(*sides))
    (alone,) = build(vocabulary, tables="words").ranked(*sides)
    torch.testing.assert_close(alone, words)


def test_convolutions_of_three_see_neighbours_and_need_a_grid(vocabulary: Vocabulary, toy_images: RegionBatch) -> None:
    torch.manual_seed(0)
    features, boxes = torch.randn(1, 6, 12).double(), cell_boxes(2, 3).double()[None]
    images = RegionBatch(features, torch.ones(1, 6).bool(), boxes)
    model = build(vocabulary, kernel=3)
    seen = model.encode_images(images).regions
    assert seen.shape == (1, 6, 8)
    features[0, 0] += 1
    moved = (model.encode_images(images).regions - seen).abs().sum(dim=2)[0] > 1e-9
    assert moved.tolist() == [True, True, False, True, True, False]  # row by row: the cells around the first
    torch.testing.assert_close(model.encode_images(images.pad(2)).regions[:, :6], model.encode_images(images).regions)
    with pytest.raises(SaccadeError, match="cells of one grid"):
        model.encode_images(toy_images.to(dtype=torch.float64))


def test_levels_that_do_not_add_up_are_refused(vocabulary: Vocabulary) -> None:
    with pytest.raises(SaccadeError, match="add up to 11, a cell has 12 numbers"):
        build(vocabulary, levels=(5, 6))
