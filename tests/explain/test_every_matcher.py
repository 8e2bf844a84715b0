"""Every matcher of the registry, untrained, through its alignment to its picture."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from saccade.batch import Alignment, RegionBatch
from saccade.explain import Explanation, draw_explanation
from saccade.explain.panels.compose import AFFINITY, GATES, GRAPHS, STEPS, Panel, find_panels
from saccade.language import Vocabulary
from saccade.models import Fusion, Matcher, entries
from toy_runs import transformer_sizes

SENTENCES = ["a red cube", "the small blue ball is left of a cone", "green", "a cube on the large ball"]
PANEL: dict[str, tuple[Panel, ...]] = {
    "imram": (STEPS,),
    "camp": (GATES,),
    "gsmn": (GRAPHS,),
    "vsrn": (AFFINITY,),
}
SMALL = {"region_dim": 12, "word_dim": 7, "dim": 32, "parts": ("matching",)}
MATCHERS = [entry.name for entry in entries() if issubclass(entry.model, Matcher)]


def build(name: str, vocabulary: Vocabulary) -> Matcher:
    torch.manual_seed(1)
    model = next(entry.model for entry in entries() if entry.name == name)
    sizes = {k: v for k, v in SMALL.items() if k in {f.name for f in fields(model.Config)}}
    if issubclass(model, Fusion):
        sizes |= transformer_sizes(model.Config)
    matcher = model(replace(model.Config(), **sizes), vocabulary, "world").double().eval()
    assert isinstance(matcher, Matcher)
    return matcher.requires_grad_(False)


@torch.no_grad()
def align(
    name: str, vocabulary: Vocabulary, images: RegionBatch, padding: int = 0
) -> tuple[Alignment, list[list[str]]]:
    matcher = build(name, vocabulary)
    texts = matcher.read(SENTENCES)
    regions = images.to(dtype=torch.float64).pad(padding)
    alignment = matcher.align(matcher.encode_images(regions), matcher.encode_texts(texts.pad(padding)))
    return alignment, [list(words) for words in texts.words]


@pytest.mark.parametrize("name", MATCHERS)
def test_a_model_explains_itself_by_its_own_panel(name: str, vocabulary: Vocabulary, toy_images: RegionBatch) -> None:
    alignment, words = align(name, vocabulary, toy_images)
    image = np.full((60, 80, 3), 120, np.uint8)
    for pair, sentence in enumerate(SENTENCES):
        explanation = Explanation.from_alignment(alignment, pair, words[pair], toy_images.boxes[pair], image)
        assert " ".join(explanation.words) == sentence
        wanted = PANEL.get(name, ())
        if wanted == (AFFINITY,) and len(explanation.boxes) == 1:  # one region takes from none
            wanted = ()
        assert find_panels(explanation) == wanted
    assert draw_explanation(explanation).width > 1000


@pytest.mark.parametrize("name", MATCHERS)
def test_padding_never_changes_an_explanation(name: str, vocabulary: Vocabulary, toy_images: RegionBatch) -> None:
    image = np.zeros((8, 8, 3), np.uint8)
    plain, words = align(name, vocabulary, toy_images)
    padded, _ = align(name, vocabulary, toy_images, padding=3)
    for pair in range(len(SENTENCES)):
        one, other = (
            Explanation.from_alignment(a, pair, words[pair], toy_images.pad(more).boxes[pair], image)
            for a, more in ((plain, 0), (padded, 3))
        )
        for field in fields(one):
            first, second = getattr(one, field.name), getattr(other, field.name)
            if isinstance(first, np.ndarray | float):
                np.testing.assert_allclose(first, second, atol=1e-9, err_msg=field.name)


@pytest.mark.parametrize("name", MATCHERS)
def test_words_are_shown_by_themselves(name: str, vocabulary: Vocabulary, toy_images: RegionBatch) -> None:
    """Each word has one to give, whatever else the sentence says; all but the weights is the alignment's."""
    matcher = build(name, vocabulary)
    images, texts = (
        matcher.encode_images(toy_images.to(dtype=torch.float64)),
        matcher.encode_texts(matcher.read(SENTENCES)),
    )
    aligned, located = matcher.align(images, texts), matcher.locate(images, texts)
    torch.testing.assert_close(located.score, aligned.score)
    given = located.weights.sum(dim=2) * aligned.word_mask
    torch.testing.assert_close(given, aligned.word_mask.double())
    assert not located.weights.masked_select(~aligned.region_mask[:, None]).any()
    if name in ("scan", "imram", "gsmn"):
        alone = matcher.locate(images, texts.trimmed(1)).weights  # words before others
        torch.testing.assert_close(alone, located.weights[:, :1])
