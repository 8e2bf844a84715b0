"""Align2Ground: phrases of captions, local matching by attention, best and best few, phrases in order, the baseline."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from saccade.batch import ImageCode, RegionBatch, TextBatch
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models import Align2Ground, Align2GroundConfig

SMALL = Align2GroundConfig(region_dim=12, word_dim=7, dim=10, hidden_dim=8, state_dim=9)


def build(vocabulary: Vocabulary, **settings: object) -> Align2Ground:
    torch.manual_seed(0)
    return Align2Ground(replace(SMALL, **settings), vocabulary).double().eval()  # type: ignore[arg-type]


def test_captions_come_with_the_phrases_of_the_parser(vocabulary: Vocabulary) -> None:
    texts = build(vocabulary).read(["a red cube is left of the small blue ball", "green"])
    assert texts.phrases == (((1, 4), (7, 11)), ())
    assert texts.words[0][7:11] == ("the", "small", "blue", "ball")
    table = texts.phrase_words()
    assert table.shape == (2, 2, 12)
    assert table[0, 1].nonzero()[:, 0].tolist() == [7, 8, 9, 10]
    assert table[1, 0].tolist() == texts.mask[1].float().tolist()  # the whole sentence is one phrase
    assert not table[1, 1].any()


def test_a_phrase_attends_to_all_regions_its_best_or_its_best_few(vocabulary: Vocabulary) -> None:
    scores = torch.tensor([[[0.1, 0.9, 0.5, 0.7]]]).double()
    mask = torch.tensor([[True, True, True, False]])
    flat = build(vocabulary).choose(scores, mask)[0, 0]
    torch.testing.assert_close(flat[:3], scores[0, 0, :3].softmax(dim=0))
    assert flat[3] == 0
    assert build(vocabulary, local="max").choose(scores, mask).tolist() == [[[0, 1, 0, 0]]]
    few = build(vocabulary, local="topk", top=2, sharpness=2.0).choose(scores, mask)[0, 0]
    torch.testing.assert_close(few[1:3], (scores[0, 0, 1:3] * 2).softmax(dim=0))
    assert few[[0, 3]].tolist() == [0, 0]


def test_the_order_of_phrases_matters_to_the_gru_alone(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    images = toy_images.to(dtype=torch.float64)
    turned = replace(toy_texts, phrases=tuple(spans[::-1] for spans in toy_texts.phrases))
    mean, gru = build(vocabulary), build(vocabulary, aggregate="gru")
    torch.testing.assert_close(mean(images, turned), mean(images, toy_texts), rtol=0, atol=1e-12)
    moved = (gru(images, turned) - gru(images, toy_texts)).abs().amax(dim=0)
    assert (moved > 1e-6).tolist() == [len(spans) > 1 for spans in toy_texts.phrases]


def test_the_baseline_sums_the_best_regions_scores(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    model, images = build(vocabulary, score="pooled"), toy_images.to(dtype=torch.float64)
    regions, texts = model.encode_images(images), model.encode_texts(toy_texts)
    assert texts.phrases is not None
    for image, text in ((0, 1), (1, 3), (3, 0)):
        own = ImageCode(regions.regions[[image]], regions.mask[[image]])
        heat = model.heat(own, texts.select([text]), texts.phrases[[text]])[0]
        said = texts.phrases[text].any(dim=1)
        best = heat[said][:, images.mask[image]].amax(dim=1).sum()
        torch.testing.assert_close(model.similarity(regions, texts)[image, text], best)
    assert not any(name.startswith(("inner", "outer", "caption")) for name, _ in model.named_parameters())


def test_words_attend_as_their_phrase_does(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    model, images = build(vocabulary, sharpness=10.0), toy_images.to(dtype=torch.float64)
    weights = model.align(model.encode_images(images), model.encode_texts(toy_texts)).weights
    first, second = toy_texts.phrases[1]
    for start, end in (first, second):
        torch.testing.assert_close(weights[1, start:end], weights[1, start].expand(end - start, -1))
    assert (weights[1, first[0]] - weights[1, second[0]]).abs().max() > 1e-6
    assert (weights[1, first[1]] - weights[1, first[0]]).abs().max() > 1e-6  # a word of no phrase, by itself


def test_settings_that_do_not_go_together_get_a_sentence() -> None:
    with pytest.raises(SaccadeError, match="phrase=states"):
        replace(SMALL, word_encoder="minilm")
    with pytest.raises(SaccadeError, match="sharpness"):
        replace(SMALL, sharpness=0.0)
