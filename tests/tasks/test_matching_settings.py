"""What the matching task makes of its settings: items, negatives, word dropout, the ramp; and ensembles of tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from saccade.batch import ImageCode, RegionBatch, TextBatch, TextCode
from saccade.core.errors import SaccadeError
from saccade.data import CaptionedImages
from saccade.language import Vocabulary
from saccade.language.vocabulary import UNKNOWN
from saccade.models import Vse, VseConfig
from saccade.nn import triplet_loss
from saccade.tasks.matching.evaluate import ensemble_of
from saccade.tasks.matching.task import MatchingConfig, MatchingTask

TEXTS = ("a red cube", "a ball", "the cube is red", "a small cone on a ball", "some balls", "a big red ball")
OWNERS = np.array([0, 1, 0, 3, 1, 1])  # picture 2 has no sentence


class Numbered:
    """Picture i is one region that holds the number i."""

    dim = 4
    ids = ("p0", "p1", "p2", "p3")

    def __len__(self) -> int:
        return 4

    def batch(self, indices: Sequence[int]) -> RegionBatch:
        whole = np.float32([[0, 0, 1, 1]])
        features = [np.full((1, self.dim), i, np.float32) for i in indices]
        return RegionBatch.of(features, [whole] * len(indices), [self.ids[i] for i in indices])


DATA = CaptionedImages("toy", "train", Numbered(), TEXTS, OWNERS)
DEV = CaptionedImages("toy", "dev", Numbered(), TEXTS, np.array([0, 1, 2, 3, 1, 1]))
VOCABULARY = Vocabulary.build(TEXTS, 1)


def make_task(**given: object) -> MatchingTask:
    return MatchingTask(DATA, DEV, VOCABULARY.batch, MatchingConfig(**given))  # type: ignore[arg-type]


class Spy(Vse):
    """Answers with fixed similarities and keeps what it was given."""

    def __init__(self, answer: Tensor | None = None) -> None:
        super().__init__(VseConfig(4, 5, 6), VOCABULARY)
        self.answer = answer
        self.texts: list[TextBatch] = []

    def encode_texts(self, texts: TextBatch) -> TextCode:
        self.texts.append(texts)
        return super().encode_texts(texts)

    def similarity(self, images: ImageCode, texts: TextCode) -> Tensor:
        return torch.zeros(len(images), len(texts)) if self.answer is None else self.answer


def spoken(texts: TextBatch) -> list[str]:
    return [" ".join(words[1:-1]) for words in texts.words]


def test_a_batch_of_pictures_holds_all_their_captions() -> None:
    task = make_task(items="pictures")
    assert len(task) == 4
    batch = task.batch([3, 1, 2, 0])
    assert batch.images.ids == ("p3", "p1", "p2", "p0")
    assert batch.image_index.tolist() == [3, 1, 2, 0]
    expected = [(0, 3), (1, 1), (1, 4), (1, 5), (3, 0), (3, 2)]  # (place in the batch, sentence)
    assert batch.owner.tolist() == [place for place, _ in expected]
    assert spoken(batch.texts) == [TEXTS[text] for _, text in expected]
    assert batch.texts.mask.any(dim=0).all()  # no needless padding


def test_a_batch_of_pairs_counts_sentences() -> None:
    task = make_task(items="pairs")
    assert len(task) == 6
    batch = task.batch([5, 2])
    assert batch.images.ids == ("p1", "p0")
    assert batch.owner.tolist() == [0, 1]
    assert spoken(batch.texts) == [TEXTS[5], TEXTS[2]]


@pytest.mark.parametrize("same_image_negatives", [True, False])
def test_captions_of_the_same_picture_are_negatives_of_pairs_unless_told_otherwise(same_image_negatives: bool) -> None:
    """Sentences 1 and 4 describe one picture, which is then twice in the batch."""
    task = make_task(same_image_negatives=same_image_negatives)
    batch = task.batch([1, 4])
    similarity = torch.tensor([[0.5, 0.4], [0.4, 0.5]])
    loss, _ = task.loss(Spy(similarity), batch, 0)
    assert loss.item() == pytest.approx(4 * 0.1 if same_image_negatives else 0.0)


def test_words_are_lost_in_training_only() -> None:
    task = make_task(word_dropout=0.4)
    batch = task.batch(range(6))
    spy, read = Spy(), batch.texts.tokens.clone()
    torch.manual_seed(0)
    for step in range(200):
        task.loss(spy, batch, step)
    assert torch.equal(batch.texts.tokens, read)  # the batch itself is left alone
    shown = torch.stack([texts.tokens for texts in spy.texts])
    lost = shown != read
    assert (shown[lost] == UNKNOWN).all()
    assert not lost[:, ~batch.texts.mask].any()
    share = lost.float().mean(dim=0)[batch.texts.mask]
    assert share.min() > 0.25  # every word may be lost
    assert share.max() < 0.55
    assert share.mean() == pytest.approx(0.4, abs=0.03)
    assert all(torch.equal(texts.mask, batch.texts.mask) for texts in spy.texts)


class Listening(Vse):
    """A matcher that keeps the words it encodes."""

    heard: list[Tensor]

    def encode_texts(self, texts: TextBatch) -> TextCode:
        self.heard.append(texts.tokens)
        return super().encode_texts(texts)


def test_evaluation_reads_every_word_and_drops_no_number() -> None:
    torch.manual_seed(0)
    model = Listening(VseConfig(4, 5, 6, dropout=0.5), VOCABULARY).train()
    model.heard = []
    task = make_task(word_dropout=0.9)
    assert task.evaluate(model) == task.evaluate(model)
    assert model.training
    for tokens in model.heard:
        assert torch.equal(tokens, VOCABULARY.batch(TEXTS).tokens)
    batch = task.batch(range(6))
    first, second = (model(batch.images, batch.texts) for _ in range(2))
    assert not torch.allclose(first, second)  # in training, dropout is at work


def test_without_word_dropout_nothing_is_drawn() -> None:
    task, spy = make_task(), Spy()
    before = torch.get_rng_state()
    task.loss(spy, task.batch([0, 1]), 0)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("items", ["pairs", "pictures"])
def test_the_loss_moves_from_all_negatives_to_the_hardest(items: str) -> None:
    task = make_task(items=items, hard_negative_ramp_steps=8, margin=0.3)
    batch = task.batch([0, 1, 3])
    texts = len(batch.owner)
    similarity = torch.rand(3, texts, generator=torch.Generator().manual_seed(0))
    hardest = triplet_loss(similarity, 0.3, "hardest", owner=batch.owner)
    every = triplet_loss(similarity, 0.3, "all", owner=batch.owner) / texts
    assert hardest.item() != pytest.approx(every.item(), rel=0.05)
    for step in (0, 1, 5, 7, 8, 100):
        ramp = min(step / 8, 1.0)
        loss, _ = task.loss(Spy(similarity), batch, step)
        assert loss.item() == pytest.approx(ramp * hardest.item() + (1 - ramp) * every.item(), rel=1e-5)


def test_first_steps_may_take_all_negatives() -> None:
    task = make_task(all_negatives_steps=2)
    batch = task.batch([0, 1, 3])
    similarity = torch.rand(3, 3, generator=torch.Generator().manual_seed(0))
    losses = [task.loss(Spy(similarity), batch, step)[0] for step in range(3)]
    every, hardest = (triplet_loss(similarity, 0.2, kind) for kind in ("all", "hardest"))  # type: ignore[arg-type]
    torch.testing.assert_close(losses, [every, every, hardest])


@pytest.mark.parametrize(
    ("given_settings", "sentence"),
    [
        ({"word_dropout": 1.0}, "word_dropout must be at least 0 and less than 1"),
        ({"word_dropout": -0.1}, "word_dropout must be at least 0 and less than 1"),
        ({"eval_batch": 0}, "eval_batch must be at least 1"),
    ],
)
def test_settings_that_cannot_be(given_settings: dict[str, float], sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        make_task(**given_settings)


def test_a_dropout_that_cannot_be() -> None:
    with pytest.raises(SaccadeError, match=r"dropout must be at least 0 and less than 1, not 1\.5"):
        Vse(VseConfig(4, 5, 6, dropout=1.5), VOCABULARY)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 999), st.floats(0.01, 100), st.floats(-50, 50))
def test_an_ensemble_does_not_depend_on_the_scales_of_its_tables(seed: int, scale: float, shift: float) -> None:
    one, other = np.random.default_rng(seed).normal(size=(2, 4, 6))
    expected = (one / one.std() - one.mean() / one.std() + other / other.std() - other.mean() / other.std()) / 2
    np.testing.assert_allclose(ensemble_of([one, other]), expected, atol=1e-9)
    np.testing.assert_allclose(ensemble_of([one, other * scale + shift]), expected, atol=1e-6)


def test_an_ensemble_of_one_ranks_as_it_does_and_a_flat_table_says_nothing() -> None:
    table = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    alone = ensemble_of([table])
    assert np.array_equal(alone.argsort(axis=None), table.argsort(axis=None))
    flat = ensemble_of([table, np.full((4, 6), 3.0, np.float32)])
    assert np.isfinite(flat).all()
    np.testing.assert_allclose(flat, alone / 2, atol=1e-6)
