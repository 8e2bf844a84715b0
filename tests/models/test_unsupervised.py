"""The players of unsupervised captioning: who learns from what, what a word earns, what the switches leave out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from saccade.batch import END, RegionBatch, TextBatch
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models import Unsupervised, UnsupervisedConfig
from saccade.models.unsupervised import Rollout, discounted, first_mentions, up_to_end

SMALL: dict[str, Any] = {"region_dim": 12, "dim": 10, "dropout": 0.0}


def player(vocabulary: Vocabulary, **settings: Any) -> Unsupervised:
    torch.manual_seed(0)
    model = Unsupervised(UnsupervisedConfig(**{**SMALL, **settings}), vocabulary)
    for weight in model.parameters():
        weight.data += 0.3 * torch.randn_like(weight)  # fresh words are so small that sentences would hardly differ
    return model


@pytest.fixture
def said(toy_images: RegionBatch) -> Rollout:
    """Sentences of 3, 5, 5 and 1 words, the second without an end; what follows an end is of no account."""
    words = torch.tensor([[7, 4, END, 9, 9], [5, 6, 7, 8, 9], [4, 5, 4, 6, END], [END, 4, 4, 4, 4]])
    concepts = torch.tensor([[4, 9, 4], [8, 0, 0], [4, 6, 0], [4, 0, 0]])
    scores = torch.tensor([[0.5, 0.9, 0.25], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    return Rollout(words, torch.zeros(4, 10), concepts, scores)


def test_a_concept_is_rewarded_where_it_is_first_named_and_before_the_end(said: Rollout) -> None:
    named = first_mentions(said.words, up_to_end(said.words), said.concepts, said.scores)
    expected = torch.zeros(4, 5)
    expected[0, 1] = 0.75  # named twice by the detector: both count; word 9 comes after the end
    expected[1, 3] = 1.0
    expected[2, 0] = expected[2, 3] = 0.5  # the second "4" of the sentence earns nothing
    torch.testing.assert_close(named, expected)


def test_what_comes_later_counts_less() -> None:
    rewards = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]])
    torch.testing.assert_close(discounted(rewards, 0.5), torch.tensor([[1.5, 1.0, 2.0], [1.5, 3.0, 0.0]]))


def test_each_loss_reaches_its_own_player_only(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch, said: Rollout
) -> None:
    model = player(vocabulary)
    told = model(toy_images, TextBatch(torch.cat([torch.ones_like(said.words[:, :1]), said.words], dim=1), None))  # type: ignore[arg-type]
    spoken = told.log_probabilities.gather(2, said.words[:, :, None])[:, :, 0]
    seen = replace(said, pictures=model.encode_images(toy_images)[0])
    players = {
        "generator": model.generator_loss(spoken, seen, said.words.flip(0))[0],
        "critic": torch.stack([*model.discriminator_losses(toy_texts, seen).values()]).sum(),
    }
    for name, loss in players.items():
        model.zero_grad()
        loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
        reached = {key for key, weight in model.named_parameters() if weight.grad is not None and weight.grad.any()}
        assert reached
        assert all(key.startswith("critic.") == (name == "critic") for key in reached), name


def test_a_better_sentence_than_the_greedy_one_becomes_likelier(vocabulary: Vocabulary, said: Rollout) -> None:
    """Where only concepts differ, words up to the naming of one gain probability."""
    model = player(vocabulary, image_weight=0.0, concept_weight=100.0, baseline_mask="own")
    spoken = torch.zeros(4, 5, requires_grad=True)
    loss, _ = model.generator_loss(spoken, said, torch.full_like(said.words, END))
    (gradient,) = torch.autograd.grad(loss, spoken)
    assert (gradient[1, :4] < 0).all()
    assert gradient[0, 3:].eq(0).all()  # after its end
    assert gradient.abs().max() <= 5 / up_to_end(said.words).sum() + 1e-6  # advantages are cut at 5


def test_switches_leave_parts_out(vocabulary: Vocabulary, toy_texts: TextBatch, said: Rollout) -> None:
    mask = up_to_end(said.words)
    full, plain = player(vocabulary), player(vocabulary, concept_weight=0.0, image_weight=0.0)
    without = replace(said, scores=torch.zeros_like(said.scores), pictures=None)
    torch.testing.assert_close(plain.returns(said, mask), full.returns(without, mask))
    assert not torch.allclose(plain.returns(said, mask), full.returns(said, mask))
    assert set(full.discriminator_losses(toy_texts, said)) == {"adversarial_loss", "image_loss"}
    assert set(plain.discriminator_losses(toy_texts, said)) == {"adversarial_loss"}
    assert plain.reader is not None
    assert player(vocabulary, concept_reader=False).reader is None


def test_padding_never_changes_what_is_seen_or_judged(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    model = player(vocabulary)
    vectors, shares = model.encode_images(toy_images)
    padded, more = model.encode_images(toy_images.pad(3))
    torch.testing.assert_close(vectors, padded)
    torch.testing.assert_close(shares, more[:, :-3])
    assert more[:, -3:].eq(0).all()
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(4))
    judged, long = (model.critic.score(t.tokens, t.mask) for t in (toy_texts, toy_texts.pad(4)))
    torch.testing.assert_close(judged.recalled, long.recalled)
    torch.testing.assert_close(judged.logits[judged.mask], long.logits[long.mask])
    loss, other = (model.sentence_loss(t, judged.recalled) for t in (toy_texts, toy_texts.pad(4)))
    torch.testing.assert_close(loss, other)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"concept_weight": -1.0}, "concept_weight must be zero or more"),
        ({"discount": 1.5}, "discount must be between 0 and 1"),
        ({"first_momentum": 1.0}, "first_momentum must be at least 0"),
        ({"dropout": 1.0}, "dropout must be at least 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    vocabulary: Vocabulary, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        player(vocabulary, **settings)


def test_sentences_begin_with_vectors_of_their_own(vocabulary: Vocabulary) -> None:
    """f' of unlike sentences, before anything is learned: with random biases they are nearly one."""
    torch.manual_seed(0)
    words = torch.randint(4, len(vocabulary), (20, 8))
    alike = {}
    for initialiser in ("xavier", "pytorch"):
        config = UnsupervisedConfig(region_dim=16, dim=128, dropout=0.0, initialiser=initialiser)
        recalled = (
            Unsupervised(config, vocabulary)
            .critic.score(words, torch.ones_like(words, dtype=torch.bool))
            .recalled.detach()
        )
        alike[initialiser] = float((recalled @ recalled.T).triu(1).sum() / 190)
    assert abs(alike["xavier"]) < 0.5 < 0.8 < alike["pytorch"]
