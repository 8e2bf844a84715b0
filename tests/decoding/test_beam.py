"""Beam search: equal to plain searches and to trying everything, whatever else is in the batch."""

from __future__ import annotations

from dataclasses import replace

import plain_search
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_captioner import Toy, all_sentences, following, toy_pictures

from saccade.batch import END, START, CaptionState, StepOutput, stack
from saccade.decoding import DecodedCaptions, DecodingConfig, beam_search, diverse_beam_search
from saccade.decoding.beam import Search

PLAIN = {
    "keep_slot": plain_search.keep_slot,
    "shrink_beam": plain_search.shrink_beam,
    "keep_beam_full": plain_search.keep_beam_full,
}

configs = st.builds(
    DecodingConfig,
    max_length=st.integers(1, 6),
    num_beams=st.integers(1, 4),
    finished_beams=st.sampled_from(sorted(PLAIN)),
    unfinished_beams=st.sampled_from(["compete", "fallback"]),
    length_penalty=st.sampled_from(["none", "wu", "average"]),
)
models = st.builds(Toy, words=st.integers(4, 6), seed=st.integers(0, 10**6), end=st.sampled_from([-4.0, 0.0, 3.0]))


def sentences(decoded: DecodedCaptions, image: int) -> list[tuple[float, tuple[int, ...]]]:
    """The captions of one picture, those that are there."""
    rows = range(image * decoded.per_image, (image + 1) * decoded.per_image)
    words = [tuple(decoded.words[row, : int(decoded.lengths[row])].tolist()) for row in rows]
    return [(float(decoded.score[row]), said) for row, said in zip(rows, words, strict=True) if said]


def assert_same(got: list[tuple[float, tuple[int, ...]]], wanted: list[tuple[float, tuple[int, ...]]]) -> None:
    assert [said for _, said in got] == [said for _, said in wanted]
    assert [score for score, _ in got] == pytest.approx([score for score, _ in wanted])


@settings(max_examples=60, deadline=None)
@given(models, configs)
def test_all_pictures_at_once_are_as_plain_searches_of_each(model: Toy, config: DecodingConfig) -> None:
    images = toy_pictures(3)
    decoded = beam_search(model, images, config)
    for i in range(len(images)):
        plain = PLAIN[config.finished_beams](following(model, images.select([i])), config)
        assert_same(sentences(decoded, i), plain)


@settings(max_examples=25, deadline=None)
@given(models, st.sampled_from([(2, 2), (4, 2), (6, 2), (3, 3), (6, 3)]), st.integers(1, 6), st.floats(0, 3))
def test_diverse_groups_are_as_plain_ones(model: Toy, shape: tuple[int, int], longest: int, diversity: float) -> None:
    beam, groups = shape
    config = DecodingConfig(num_beams=beam, num_beam_groups=groups, max_length=longest, diversity_penalty=diversity)
    images = toy_pictures(2)
    decoded = diverse_beam_search(model, images, config)
    assert decoded.per_image == beam
    for i in range(len(images)):
        assert_same(sentences(decoded, i), plain_search.diverse(following(model, images.select([i])), config))


@settings(max_examples=15, deadline=None)
@given(models, st.sampled_from(sorted(PLAIN)), st.sampled_from(["none", "wu", "average"]))
def test_a_wide_enough_beam_finds_the_best_of_all_sentences(model: Toy, finished: str, penalty: str) -> None:
    config = DecodingConfig(max_length=3, num_beams=300, finished_beams=finished, length_penalty=penalty)  # type: ignore[arg-type]
    images = toy_pictures(2)
    decoded = beam_search(model, images, config)
    for i in range(len(images)):
        everything = all_sentences(model, images.select([i]), config.max_length)
        scored = [(plain_search.penalised(p, len(said), config), said) for said, p in everything.items()]
        assert_same(sentences(decoded, i)[:10], plain_search.best(scored, 10))


@settings(max_examples=20, deadline=None)
@given(models, configs)
def test_what_is_told_of_a_sentence_is_what_teacher_forcing_says_of_it(model: Toy, config: DecodingConfig) -> None:
    images = toy_pictures(3)
    decoded = beam_search(model, images, config)
    assert bool((decoded.score.view(-1, config.num_beams).diff(dim=1).nan_to_num() <= 0).all()), "best first"
    read = torch.cat([torch.full_like(decoded.words[:, :1], START), decoded.words[:, :-1]], dim=1)
    forced = model.teacher_force(model.start(images).repeat(config.num_beams), read)
    said = forced.log_probabilities.gather(2, decoded.words[..., None])[..., 0]
    torch.testing.assert_close(decoded.log_probabilities, said.masked_fill(~decoded.mask, 0))
    torch.testing.assert_close(decoded.weights, forced.weights * decoded.mask[..., None])
    assert decoded.sentinel is not None
    assert forced.sentinel is not None
    torch.testing.assert_close(decoded.sentinel, forced.sentinel * decoded.mask)
    if config.length_penalty == "none":
        there = decoded.lengths > 0
        torch.testing.assert_close(decoded.score[there], decoded.log_probabilities.sum(dim=1)[there])


@pytest.mark.parametrize("finished", PLAIN)
def test_neither_company_nor_padding_changes_a_caption(finished: str) -> None:
    model, images = Toy(words=6, seed=4), toy_pictures(7)
    config = DecodingConfig(max_length=7, num_beams=4, finished_beams=finished)  # type: ignore[arg-type]
    together = beam_search(model, images.pad(3), config)
    alone = stack([beam_search(model, images.select([i]), config) for i in range(len(images))])
    assert torch.equal(together.words, alone.words)
    torch.testing.assert_close(together.score, alone.score)
    torch.testing.assert_close(together.weights[:, :, : alone.weights.shape[2]], alone.weights)
    assert not together.weights[:, :, alone.weights.shape[2] :].any()


@settings(max_examples=20, deadline=None)
@given(models, configs)
def test_stopping_when_all_is_settled_changes_nothing(model: Toy, config: DecodingConfig) -> None:
    images = toy_pictures(3)
    search = Search(model, model.start(images), config, config.num_beams)
    with torch.no_grad():
        for _ in range(config.max_length):
            search.step()
    stopped, whole = beam_search(model, images, config), search.result()
    assert torch.equal(stopped.words, whole.words)
    assert torch.equal(stopped.score, whole.score)


@settings(max_examples=20, deadline=None)
@given(models, configs)
def test_the_best_caption_alone_is_the_first_of_all(model: Toy, config: DecodingConfig) -> None:
    images = toy_pictures(5)
    one, first = beam_search(model, images, config, keep=1), beam_search(model, images, config).best()
    assert one.per_image == 1
    assert torch.equal(one.words, first.words)
    assert torch.equal(one.score, first.score)
    assert torch.equal(one.weights, first.weights)


class Counting(Toy):
    """How many rows each step had."""

    def step(self, words: torch.Tensor, state: CaptionState) -> StepOutput:
        self.rows = [*getattr(self, "rows", []), len(words)]
        return super().step(words, state)


def test_a_step_is_one_call_of_the_model_however_many_pictures() -> None:
    model = Counting(end=-50.0)
    beam_search(model, toy_pictures(5), DecodingConfig(max_length=6, num_beams=3))
    assert model.rows == [15] * 6


def test_a_search_ends_when_nothing_better_can_come() -> None:
    model = Counting(end=50.0)
    decoded = beam_search(model, toy_pictures(5), DecodingConfig(max_length=50, num_beams=3)).best()
    assert len(model.rows) < 10
    assert decoded.words.tolist() == [[END]] * 5
    model.rows = []
    assert torch.equal(
        beam_search(model, toy_pictures(5), DecodingConfig(max_length=50, num_beams=3), keep=1).words, decoded.words
    )
    assert len(model.rows) == 1


def test_pictures_leave_when_nothing_better_can_come() -> None:
    model, images = Counting(words=6, seed=0, end=2.0), toy_pictures(40)
    config = DecodingConfig(max_length=20, num_beams=3)
    together = beam_search(model, images, config, keep=1)
    assert model.rows[0] == 120
    assert model.rows[-1] <= 90
    alone = stack([beam_search(model, images.select([i]), config, keep=1) for i in range(len(images))])
    assert torch.equal(together.words, alone.words)


def test_sentences_in_the_order_in_which_they_ended() -> None:
    """As the codes with a shrinking beam list them: by length, at one length the better first; the cut ones last."""
    model = Toy(words=6, seed=3)
    decoded = beam_search(
        model, toy_pictures(6), DecodingConfig(max_length=6, num_beams=5, finished_beams="shrink_beam")
    ).by_completion()
    assert decoded.per_image == 5
    for i in range(6):
        keys = [(END not in said, len(said), -score) for score, said in sentences(decoded, i)]
        assert keys == sorted(keys)
        assert len(keys) == 5


def test_diverse_groups_differ_more_the_more_likeness_costs() -> None:
    model, images = Toy(words=8, seed=2), toy_pictures(12)
    config = DecodingConfig(num_beams=3, num_beam_groups=3, max_length=6)

    def shared(diversity: float) -> int:
        words = diverse_beam_search(model, images, replace(config, diversity_penalty=diversity)).words.view(12, 3, -1)
        return int((words[:, 0] == words[:, 1]).logical_and(words[:, 0] > END).sum())

    assert shared(0.0) > shared(2.0) > shared(50.0) == 0


def test_no_pictures_have_no_captions() -> None:
    decoded = beam_search(Toy(), toy_pictures(2).select([]), DecodingConfig())
    assert len(decoded) == 0
