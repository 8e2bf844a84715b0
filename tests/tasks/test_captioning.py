"""Captioning: losses by hand, lessons and rewards, and small runs that learn to say what is there."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from test_matching import bindings

from saccade.batch import END, START, UNKNOWN, TextBatch
from saccade.core.errors import SaccadeError
from saccade.data import CaptionedImages
from saccade.decoding import sample
from saccade.language import Vocabulary
from saccade.metrics import cider_d
from saccade.models import UpDown, UpDownConfig, load_model
from saccade.models.base.captioner import Captioner
from saccade.tasks.captioning.evaluate import caption_all, caption_figures, references_of
from saccade.tasks.captioning.task import (
    CaptioningConfig,
    CaptioningTask,
    RewardConfig,
    SpokenBatch,
    mean_of_others,
    policy_loss,
    uniform_nll,
)
from saccade.tasks.pairs import cut
from saccade.training import Trainer, TrainerConfig, seed_everything

SMALL = UpDownConfig(region_dim=8, word_dim=16, dim=32, attention_dim=16, forget_bias=0.0)


@pytest.fixture(scope="module")
def data() -> tuple[CaptionedImages, CaptionedImages]:
    return bindings(0, 200), bindings(1, 20)


def task_and_model(data: tuple[CaptionedImages, CaptionedImages], **given: Any) -> tuple[CaptioningTask, UpDown]:
    seed_everything(0)
    model = UpDown(SMALL, Vocabulary.build(data[0].texts, 1))
    return CaptioningTask(*data, model.read, CaptioningConfig(min_count=1, **given)), model


def train(task: CaptioningTask, model: UpDown, folder: Path, **given: Any) -> Captioner:
    settings = {"steps": 150, "batch_size": 40, "learning_rate": 1e-2, "accelerator": "cpu", "evaluate_every": 1000}
    Trainer(TrainerConfig(**(settings | given)), folder, Console(quiet=True)).fit(model, task)
    return load_model(folder, Captioner)


def test_the_loss_is_the_mean_over_words_of_what_was_missed(data: tuple[CaptionedImages, CaptionedImages]) -> None:
    task, model = task_and_model(data)
    batch = task.batch([3, 7])
    loss, figures = task.loss(model.eval(), batch, 0)
    forced = model(batch.images, batch.texts)
    by_hand = []
    for row, words in enumerate(batch.texts.tokens.tolist()):
        said = words[1:][: int(batch.texts.lengths[row]) - 1]
        by_hand += [-forced.log_probabilities[row, step, word].item() for step, word in enumerate(said)]
    assert loss.item() == pytest.approx(np.mean(by_hand), rel=1e-5)
    assert figures == {}


def test_label_smoothing_gives_a_share_to_every_word_that_can_be_said(
    data: tuple[CaptionedImages, CaptionedImages],
) -> None:
    plain, model = task_and_model(data)
    smooth, _ = task_and_model(data, label_smoothing=0.2)
    batch = plain.batch([0, 1, 2])
    forced, wanted = model.eval()(batch.images, batch.texts), batch.texts.mask[:, 1:]
    chances = forced.log_probabilities[wanted]
    evenly = -chances[:, 2:].mean()  # all but padding and <start>
    torch.testing.assert_close(uniform_nll(forced, wanted).sum() / wanted.sum(), evenly)
    expected = 0.8 * plain.loss(model, batch, 0)[0] + 0.2 * evenly
    torch.testing.assert_close(smooth.loss(model, batch, 0)[0], expected)


def test_nothing_is_missed_at_padding(data: tuple[CaptionedImages, CaptionedImages]) -> None:
    task, model = task_and_model(data)
    batch = task.batch([0, 1])
    wide = dataclasses.replace(batch, texts=batch.texts.pad(3))
    forced = model.eval()(wide.images, wide.texts)
    nll = forced.nll(wide.texts.tokens[:, 1:], wide.texts.mask[:, 1:])
    assert nll[:, -3:].abs().max() == 0
    torch.testing.assert_close(task.loss(model, wide, 0)[0], task.loss(model, batch, 0)[0])


def test_long_captions_are_cut_and_end() -> None:
    texts = TextBatch.of(
        [[START, 5, 6, 7, END], [START, 8, END]], [["<start>", "a", "b", "c", "<end>"], ["<start>", "d", "<end>"]]
    )
    short = cut(texts, 2)
    assert short.tokens.tolist() == [[START, 5, 6, END], [START, 8, END, 0]]
    assert short.words[0] == ("<start>", "a", "b", "<end>")
    assert short.mask.sum(dim=1).tolist() == [4, 3]
    assert cut(texts, 3) is texts


def test_own_words_come_in_steps_and_only_after_their_time() -> None:
    config = CaptioningConfig(scheduled_sampling=0.2, scheduled_sampling_start=100, scheduled_sampling_every=50)
    chances = [config.scheduled_sampling_chance(step) for step in (0, 99, 100, 149, 150, 10_000)]
    assert chances == pytest.approx([0, 0, 0.05, 0.05, 0.1, 0.2])


def test_a_model_that_always_hears_its_own_words_hears_no_teacher(
    data: tuple[CaptionedImages, CaptionedImages],
) -> None:
    """With a chance of one only the first word is the teacher's: the loss cannot tell other inputs apart."""
    task, model = task_and_model(data, scheduled_sampling=1.0, scheduled_sampling_every=1)
    batch = task.batch([0, 1, 2, 3])
    heard: list[torch.Tensor] = []
    step = model.step

    def listen(words: torch.Tensor, state: Any) -> Any:
        heard.append(words)
        return step(words, state)

    model.step = listen  # type: ignore[method-assign]
    task.loss(model.eval(), batch, 10_000)
    assert (heard[0] == START).all()
    given = torch.stack(heard[1:], dim=1)
    assert not torch.equal(given, batch.texts.tokens[:, 1 : given.shape[1] + 1])


def test_a_small_run_learns_to_say_what_is_there(data: tuple[CaptionedImages, CaptionedImages], tmp_path: Path) -> None:
    """Better than the captions of other pictures, which are as fluent and say other things."""
    task, model = task_and_model(data)
    trained = train(task, model, tmp_path)
    dev = data[1]
    figures = caption_figures(trained, dev)
    others = [dev.texts[(i + 2) % len(dev.texts)] for i in range(len(dev.texts))]
    words = [text.split() for text in dev.texts]
    chance = 100 * cider_d([text.split() for text in others], [[text] for text in words]).corpus
    assert figures["cider_d"] > 1.5 * chance
    assert set(figures) == {"bleu1", "bleu4", "rouge_l", "cider_d"}
    assert caption_all(trained, dev, batch_size=3) == caption_all(trained, dev)
    assert references_of(dev)[0] == [dev.texts[0]]


def test_rewards_rise(data: tuple[CaptionedImages, CaptionedImages], tmp_path: Path) -> None:
    """Self-critical lessons after a few of cross-entropy: what is sampled earns more than before."""
    task, model = task_and_model(data)
    start = train(task, model, tmp_path / "words", steps=60)
    rewarding, _ = task_and_model(data, reward=RewardConfig(after=0, num_samples=4, baseline="samples"))
    batch = rewarding.batch(list(range(60)))

    def earned(of: Captioner) -> float:
        torch.manual_seed(1)
        return float(np.mean([rewarding.before_loss(of.train(), batch, 0).reward for _ in range(3)]))

    before = earned(start)
    assert isinstance(start, UpDown)
    after = earned(train(rewarding, start, tmp_path / "rewards", steps=40, learning_rate=3e-3))
    assert after > 1.05 * before


def test_a_greedy_baseline_is_of_the_model_at_rest(data: tuple[CaptionedImages, CaptionedImages]) -> None:
    task, model = task_and_model(data, reward=RewardConfig(after=0))
    batch = task.before_loss(model.train(), task.batch([0, 1, 2]), 0)
    _, figures = task.loss(model, batch, 0)
    assert set(figures) == {"reward", "baseline"}
    assert model.training


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_what_was_said_is_judged_as_it_was_drawn(
    data: tuple[CaptionedImages, CaptionedImages], temperature: float
) -> None:
    """The loss says the drawn captions again: their log-probabilities are those that they were drawn by."""
    reward = RewardConfig(after=0, num_samples=3, baseline="samples", temperature=temperature)
    task, model = task_and_model(data, reward=reward)
    batch = task.batch([0, 1])
    torch.manual_seed(0)
    spoken = task.before_loss(model.eval(), batch, 0)
    assert isinstance(spoken, SpokenBatch)
    loss, _ = task.loss(model, spoken, 0)
    torch.manual_seed(0)
    with torch.no_grad():
        drawn = sample(model, batch.images, task.self_critical.decoding)
    assert torch.equal(drawn.words, spoken.texts.tokens[:, 1:])
    torch.testing.assert_close(loss, policy_loss(drawn.log_probabilities, spoken.advantage, drawn.mask))


def test_the_captions_of_a_beam_may_be_judged(data: tuple[CaptionedImages, CaptionedImages]) -> None:
    reward = RewardConfig(after=0, num_samples=3, baseline="samples", sampling="beam")
    task, model = task_and_model(data, reward=reward)
    spoken = task.before_loss(model.eval(), task.batch([0, 1]), 0)
    assert isinstance(spoken, SpokenBatch)
    assert spoken.owner.tolist() == [0, 0, 0, 1, 1, 1]
    rows = spoken.texts.tokens.tolist()
    assert len(set(map(tuple, rows[:3]))) == len(set(map(tuple, rows[3:]))) == 3
    assert torch.isfinite(task.loss(model, spoken, 0)[0])


@pytest.mark.parametrize("after", [None, 0])
def test_a_batch_to_be_captured_has_the_same_loss(
    data: tuple[CaptionedImages, CaptionedImages], after: int | None
) -> None:
    """It is padded to sizes that come back, and nothing in it but tensors counts."""
    task, model = task_and_model(data, reward=RewardConfig(after=after))
    sizes = set()
    for items in ([0, 1, 2], [3, 4, 5]):
        batch = task.before_loss(model.eval(), task.batch(items), 0)
        still = task.graph_batch(model, batch, 0)
        assert still is not None
        assert still.images.ids == ()
        sizes.add((still.texts.tokens.shape, still.images.mask.shape[1] % 4))
        torch.testing.assert_close(task.loss(model, still, 0)[0], task.loss(model, batch, 0)[0])
    assert len(sizes) == 1


def test_losses_that_change_are_not_captured(data: tuple[CaptionedImages, CaptionedImages]) -> None:
    task, model = task_and_model(data, scheduled_sampling=0.5, scheduled_sampling_start=10)
    batch = task.batch([0, 1])
    assert task.graph_batch(model, batch, 0) is not None
    assert task.graph_batch(model, batch, 10) is None


def test_the_policy_is_pushed_towards_what_earned_more() -> None:
    logs = torch.zeros(2, 3, requires_grad=True)
    said = torch.tensor([[True, True, True], [True, False, False]])
    policy_loss(logs, torch.tensor([2.0, -1.0]), said).backward()
    assert logs.grad is not None
    assert logs.grad.tolist() == [[-0.5, -0.5, -0.5], [0.25, 0, 0]]  # −advantage / 4 words
    others = mean_of_others(torch.tensor([1.0, 2.0, 6.0, 0.0, 0.0, 3.0]), 3)
    assert others.tolist() == [4.0, 3.5, 1.5, 1.5, 1.5, 0.0]


def test_unknown_words_earn_nothing(data: tuple[CaptionedImages, CaptionedImages]) -> None:
    task, model = task_and_model(data, reward=RewardConfig(after=0))
    assert task.self_critical.decoding.suppress_unk
    with torch.no_grad():
        model.out.bias[UNKNOWN] = 100
    loss, _ = task.loss(model, task.before_loss(model.train(), task.batch([0, 1]), 0), 0)
    assert torch.isfinite(loss)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"max_words": 0}, "max_words must be at least 1 word"),
        ({"label_smoothing": 1.0}, "label_smoothing must be at least 0 and less than 1"),
        ({"scheduled_sampling": 1.5}, "scheduled_sampling is a chance between 0 and 1"),
        ({"eval_batch": 0}, "must be at least 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        CaptioningConfig(**given)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"after": -1}, "reward.after counts steps"),
        ({"num_samples": 0}, "reward.num_samples must be at least 1"),
        ({"temperature": 0.0}, "temperature must be more than zero"),
        ({"baseline": "samples"}, "give reward.num_samples=5"),
        ({"after": 0, "cider": 0.0}, "a reward needs reward.cider or reward.bleu"),
    ],
)
def test_rewards_that_make_no_sense_are_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        RewardConfig(**given)


def test_batches_count_captions_or_pictures(data: tuple[CaptionedImages, CaptionedImages]) -> None:
    texts = (*data[0].texts, *data[0].texts)
    twice = dataclasses.replace(data[0], texts=texts, image_of_text=np.tile(data[0].image_of_text, 2))
    pairs, _ = task_and_model((twice, data[1]))
    pictures, _ = task_and_model((twice, data[1]), items="pictures")
    assert (len(pairs), len(pictures)) == (400, 200)
    batch = pictures.batch([4, 9])
    assert batch.owner.tolist() == [0, 0, 1, 1]
    assert len(batch.images) == 2
