"""SGAE: three stages of lessons, a dictionary both kinds share, and attention that lands on regions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from saccade.batch import RegionBatch, TextBatch
from saccade.core.config import override
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.language.vocabulary import padded_graphs
from saccade.models import Sgae, SgaeConfig, load_model
from saccade.models.sgae import SentenceGraphContext

TEXTS = ["a red cube", "the small blue ball is left of a cone", "green", "a cube on the large ball and a zebra"]
SMALL = SgaeConfig(12, 7, 10, 6, entries=9, dropout=0.0, sentence_steps=2, dictionary_steps=3)
FORMS: dict[str, dict[str, Any]] = {
    "paper": {},
    "released": {"fusion": "released", "peek": True},
    "no dictionary": {"dictionary": False, "dictionary_steps": 0},
    "released, no dictionary": {"fusion": "released", "dictionary": False, "dictionary_steps": 0},
    "things alone": {"relations": False},
    "one speaker": {"shared_decoder": True, "neighbours": 1, "fusion_norm": True, "entry_spread": 0.3},
}


def built(vocabulary: Vocabulary, **switches: Any) -> Sgae:
    torch.manual_seed(0)
    return Sgae(replace(SMALL, **switches), vocabulary)


def with_graphs(images: RegionBatch) -> RegionBatch:
    """Names for some regions, relations and attributes between them; the third picture has none."""
    return replace(
        images,
        graph=padded_graphs(
            [[8, 0, 9, 0, 10], [9, 8, 0, 0, 0], [0] * 5, [0] * 5],
            [[(0, 1, 15), (4, 1, 11)], [(1, 0, 12)], [], [(3, 0, 15)]],
            [{0: [5, 17], 4: [6]}, {1: [18]}, {}, {}],
        ),
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("graphs", [False, True], ids=["boxes", "graphs"])
def test_padding_changes_nothing_that_is_told_of_pictures(
    form: str, graphs: bool, vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    model = built(vocabulary, **FORMS[form]).double().eval()
    images = (with_graphs(toy_images) if graphs else toy_images).to(dtype=torch.float64)
    plain, padded = (model(given, toy_texts) for given in (images, images.pad(3)))
    torch.testing.assert_close(padded.log_probabilities, plain.log_probabilities)
    torch.testing.assert_close(padded.weights[:, :, :5], plain.weights)
    assert (padded.weights[:, :, 5:] == 0).all()
    shares = torch.ones_like(plain.weights[..., 0])
    torch.testing.assert_close(plain.weights.sum(dim=-1), shares)
    assert (plain.weights.transpose(1, 2)[~images.mask] == 0).all()


@pytest.mark.parametrize("form", FORMS)
def test_lessons_go_from_sentences_through_the_dictionary_to_pictures(
    form: str, vocabulary: Vocabulary, toy_images: RegionBatch
) -> None:
    """What each stage learns is what it uses: D not before its stage, what sees regions not before pictures."""
    model = built(vocabulary, **FORMS[form]).train()
    texts, owner = model.read(TEXTS), torch.arange(4)
    stages = []
    for _ in range(6):
        stages.append(model.stage)
        model.zero_grad()
        state = model.start_training(toy_images, texts, owner)
        said = model.teacher_force(state, texts.tokens[:, :-1]).log_probabilities
        said[:, 0, 2].sum().backward()  # type: ignore[no-untyped-call]
        moved = {name for name, weight in model.named_parameters() if weight.grad is not None and weight.grad.any()}
        assert isinstance(state.context, SentenceGraphContext) == (stages[-1] != "pictures")
        assert ("dictionary.entries" in moved) == (model.config.dictionary and stages[-1] != "sentences")
        assert any(name.startswith("picture_graph.") for name in moved) == (stages[-1] == "pictures")
        assert any(name.startswith("sentence_graph.") for name in moved) == (stages[-1] != "pictures")
    through = 3 if model.config.dictionary else 0
    assert stages == ["sentences"] * 2 + ["dictionary"] * through + ["pictures"] * (4 - through)


def test_sentences_are_learned_from_their_graphs(vocabulary: Vocabulary, toy_images: RegionBatch) -> None:
    """Two sentences of the same words in another order: only their graphs tell which is which."""
    texts = ["a red cube left of a blue ball", "a blue cube left of a red ball"]
    sizes = {"dim": 32, "word_dim": 16, "attention_gain": 8.0}
    model = built(vocabulary, **sizes, sentence_steps=100, dictionary_steps=0).train()
    read, pictures = model.read(texts), toy_images.select([0, 0])
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(90):
        forced = model.teacher_force(model.start_training(pictures, read, torch.arange(2)), read.tokens[:, :-1])
        loss = -forced.log_probabilities.gather(2, read.tokens[:, 1:, None]).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    assert loss.item() < 0.1  # a model that cannot tell them apart stays above 2 log 2 / 9 = 0.154


def test_the_stage_is_kept_with_the_weights(vocabulary: Vocabulary, toy_images: RegionBatch, tmp_path: Path) -> None:
    model = built(vocabulary).train()
    texts = model.read(TEXTS)
    for _ in range(4):
        model.start_training(toy_images, texts, torch.arange(4))
    model.save_pretrained(tmp_path)
    found = load_model(tmp_path, Sgae)
    assert found.stage == model.stage == "dictionary"
    found.start_training(toy_images, texts, torch.arange(4))
    assert int(found.lessons) == 4  # a lesson that is only looked at is none


def test_the_dictionary_learns_at_a_rate_of_its_own(vocabulary: Vocabulary) -> None:
    model = built(vocabulary, dictionary_rate=0.02)
    groups = model.parameter_groups()
    assert [g["factor"] for g in groups if any(p is model.dictionary.entries for p in g["params"])] == [0.02]
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("entries=0", "entries must be at least 1"),
        ("neighbours=-1", "neighbours must not be negative"),
        ("dictionary_rate=0", "dictionary_rate must be more than zero"),
        ("dictionary=false", "they go with dictionary=true"),
        ("fusion=released shared_decoder=true", "goes with fusion=paper"),
    ],
)
def test_settings_that_make_no_sense_are_told(words: str, told: str) -> None:
    with pytest.raises(SaccadeError, match=told):
        override(SMALL, words.split())


def test_sentences_without_graphs_are_told(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    with pytest.raises(SaccadeError, match=r"read\(\)"):
        built(vocabulary).train().start_training(toy_images, toy_texts, torch.arange(4))
