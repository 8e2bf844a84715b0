"""Greedy decoding and sampling, and what may not be said."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_captioner import Toy, following, toy_pictures

from saccade.batch import END, PAD, START, UNKNOWN
from saccade.core.errors import SaccadeError
from saccade.decoding import DecodedCaptions, DecodingConfig, beam_search, decode, greedy, sample, top_k_top_p
from saccade.decoding.sampling import Constraints

FORBIDDEN = float("-inf")
models = st.builds(Toy, words=st.integers(4, 8), seed=st.integers(0, 10**6), end=st.sampled_from([-4.0, 0.0, 3.0]))


def said(decoded: DecodedCaptions) -> list[list[int]]:
    return [row[: int(n)].tolist() for row, n in zip(decoded.words, decoded.lengths, strict=True)]


@settings(max_examples=20, deadline=None)
@given(models, st.integers(1, 7))
def test_greedy_says_the_likeliest_word_each_time(model: Toy, longest: int) -> None:
    images = toy_pictures(4)
    decoded = greedy(model, images.pad(2), DecodingConfig(max_length=longest))
    for i, got in enumerate(said(decoded)):
        after = following(model, images.select([i]))
        words: list[int] = []
        while END not in words and len(words) < longest:
            words.append(int(after(tuple(words)).argmax()))
        assert got == words
        total = sum(float(after(tuple(words[:n]))[word]) for n, word in enumerate(words))
        assert float(decoded.score[i]) == pytest.approx(total)
    assert torch.equal(decoded.words, beam_search(model, images, DecodingConfig(max_length=longest, num_beams=1)).words)


def test_greedy_gives_all_that_could_have_been_said_if_asked() -> None:
    model, images = Toy(seed=5, end=2.0), toy_pictures(5)
    decoded = greedy(model, images, DecodingConfig(suppress_unk=False), distributions=True)
    assert decoded.distributions is not None
    taken = decoded.distributions.gather(2, decoded.words[..., None])[..., 0]
    torch.testing.assert_close(taken, decoded.log_probabilities)
    assert not decoded.distributions[~decoded.mask].any()
    sums = decoded.distributions.exp().sum(dim=2)[decoded.mask]
    torch.testing.assert_close(sums, torch.ones_like(sums))


def test_a_captioner_that_has_looked_goes_on_from_there() -> None:
    model, images = Toy(), toy_pictures(3)
    for how in (greedy, beam_search):
        assert torch.equal(how(model, images).words, how(model, model.start(images)).words)


def test_no_word_twice_in_a_row() -> None:
    model, images = Toy(seed=1, end=-3.0), toy_pictures(6)
    free, bound = DecodingConfig(max_length=8), DecodingConfig(max_length=8, no_immediate_repeat=True)
    for how in (greedy, beam_search):
        assert any(a == b for words in said(how(model, images, free)) for a, b in pairwise(words))
        assert all(a != b for words in said(how(model, images, bound)) for a, b in pairwise(words))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_ngram_twice(size: int) -> None:
    model, images = Toy(words=12, seed=1, end=-3.0), toy_pictures(6)

    def repeated(decoded: DecodedCaptions) -> int:
        grams = [[tuple(s[i : i + size]) for i in range(len(s) - size + 1)] for s in said(decoded)]
        return sum(len(g) - len(set(g)) for g in grams)

    for how in (greedy, beam_search):
        assert repeated(how(model, images, DecodingConfig(max_length=10)))
        assert not repeated(how(model, images, DecodingConfig(max_length=10, no_repeat_ngram_size=size)))


def test_an_ngram_may_have_its_price_instead() -> None:
    """One said twice before costs twice as much."""
    model = Toy(words=4)
    config = DecodingConfig(no_repeat_ngram_size=2, repeat_ngram_penalty=0.5, suppress_unk=False)
    words = torch.tensor([[4, 5, 4, 5, 4], [6, 6, 7, 4, 6], [4, 5, 6, 7, 4]])
    flat = torch.full((3, 8), -1.0)
    paid = flat - Constraints(config, model.vocabulary, torch.device("cpu"))(flat, words)
    assert paid.tolist() == [[0, 0, 0, 0, 0, 1.0, 0, 0], [0, 0, 0, 0, 0, 0, 0.5, 0.5], [0, 0, 0, 0, 0, 0.5, 0, 0]]


def test_no_sentence_ends_with_a_word_that_ends_nothing() -> None:
    model, images = Toy(words=6, seed=3, end=1.0), toy_pictures(8)
    free = DecodingConfig(max_length=12, bad_endings=("a", "c"))
    bad = {model.vocabulary.words.index(word) for word in free.bad_endings}

    def bad_ends(decoded: DecodedCaptions) -> int:
        return sum(words[-1] == END and words[-2:-1] != [] and words[-2] in bad for words in said(decoded))

    for how in (greedy, beam_search):
        assert bad_ends(how(model, images, free))
        assert not bad_ends(how(model, images, replace(free, no_bad_endings=True)))


def test_words_that_may_never_be_said_are_not() -> None:
    model, images = Toy(seed=2), toy_pictures(6)
    favourite = int(greedy(model, images).words.flatten().mode().values)
    with torch.no_grad():
        model.out[:, UNKNOWN] = model.out[:, favourite] * 1.1  # now <unk> is
    for how in (greedy, beam_search, sample):
        assert (how(model, images, DecodingConfig(suppress_unk=False)).words == UNKNOWN).any()
        assert not (how(model, images, DecodingConfig()).words == UNKNOWN).any()
        silenced = how(model, images, DecodingConfig(suppress_tokens=(favourite, END))).words
        assert not (silenced == favourite).any()
        assert silenced.shape[1] == 20


def test_a_sentence_ends_where_nothing_else_may_be_said() -> None:
    model, images = Toy(words=2, end=-30.0), toy_pictures(3)
    config = DecodingConfig(max_length=9, no_repeat_ngram_size=1)
    for how in (greedy, sample):
        assert [len(words) for words in said(how(model, images, config))] == [3, 3, 3]
    assert all(END in words for words in said(beam_search(model, images, config)) if words)


def test_samples_are_drawn_as_their_probabilities_say() -> None:
    model, image, count = Toy(seed=7, sharpness=1.0), toy_pictures(1), 20_000
    config = DecodingConfig(max_length=2, num_return_sequences=count, suppress_unk=False)
    with torch.no_grad():
        drawn = sample(model, image, config, generator=torch.Generator().manual_seed(0))
    words = drawn.words[:, 0]
    wanted = model.predict_next(torch.tensor([START]), model.start(image))[0][0].detach().exp()
    seen = torch.bincount(words, minlength=len(wanted)) / count
    assert float((seen - wanted).abs().max()) < 4 * (0.25 / count) ** 0.5
    first = words == words.mode().values
    torch.testing.assert_close(drawn.log_probabilities[first, 0].exp(), wanted[words[first]])


def test_samples_of_a_picture_stand_together_and_the_seed_decides_them() -> None:
    model, images = Toy(words=8, sharpness=0.5), toy_pictures(4)
    config = DecodingConfig(strategy="sample", num_return_sequences=5)
    one, two, other = (decode(model, images, config, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert (len(one), one.per_image) == (20, 5)
    assert torch.equal(one.words, two.words)
    assert one.words.shape != other.words.shape or not torch.equal(one.words, other.words)
    first = model.start(images).repeat(5)
    weights = model.step(torch.full((20,), START), first).weights
    torch.testing.assert_close(one.weights[:, 0], weights)


def test_gradients_of_samples_are_those_of_teacher_forcing() -> None:
    model, images = Toy(seed=3, sharpness=1.0), toy_pictures(3)
    config = DecodingConfig(max_length=6, num_return_sequences=2, suppress_unk=False)
    drawn = sample(model, images, config, generator=torch.Generator().manual_seed(3))
    reward = torch.linspace(-1, 1, len(drawn), dtype=torch.float64)
    parameters = list(model.parameters())
    got = torch.autograd.grad((drawn.log_probabilities.sum(dim=1) * reward).sum(), parameters)
    read = torch.cat([torch.full_like(drawn.words[:, :1], START), drawn.words[:, :-1]], dim=1)
    forced = model.teacher_force(model.start(images).repeat(2), read).log_probabilities
    nll = forced.gather(2, drawn.words[..., None])[..., 0].masked_fill(~drawn.mask, 0)
    wanted = torch.autograd.grad((nll.sum(dim=1) * reward).sum(), parameters)
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b)
    assert not greedy(model, images).score.requires_grad
    assert not decode(model, images, replace(config, strategy="sample")).score.requires_grad


def test_narrowing_leaves_the_likeliest_words() -> None:
    chances = torch.tensor([[0.4, 0.3, 0.2, 0.1], [0.05, 0.9, 0.05, 0.0]]).log()
    torch.testing.assert_close(top_k_top_p(chances, 0, 1.0), chances)
    two = top_k_top_p(chances, 2, 1.0).exp()
    torch.testing.assert_close(two[0], torch.tensor([4 / 7, 3 / 7, 0, 0]))
    assert (top_k_top_p(chances, 0, 0.71)[0] > FORBIDDEN).tolist() == [True, True, True, False]
    assert (top_k_top_p(chances, 0, 0.69)[0] > FORBIDDEN).tolist() == [True, True, False, False]
    assert top_k_top_p(chances, 0, 0.01).exp().tolist() == [[1, 0, 0, 0], [0, 1, 0, 0]]
    both = top_k_top_p(chances, 3, 0.5)[0] > FORBIDDEN  # 0.4 / 0.9 is below a half
    assert both.tolist() == [True, True, False, False]


def test_a_cold_captioner_is_greedy() -> None:
    model, images = Toy(words=8, seed=6), toy_pictures(5)
    cold = sample(model, images, DecodingConfig(temperature=1e-4))
    narrowest = sample(model, images, DecodingConfig(top_k=1))
    for drawn in (cold, narrowest):
        assert torch.equal(drawn.words, greedy(model, images).words)


def test_roll_outs_of_fixed_length_go_on_after_the_end() -> None:
    model, images = Toy(words=4, seed=8, end=3.0), toy_pictures(4)
    words = greedy(model, images, DecodingConfig(max_length=9, continue_after_end=True)).words
    assert words.shape == (4, 9)
    assert not (words == PAD).any()
    assert (words[:, :-1] == END).any()
    for i in range(4):
        after = following(model, images.select([i]))
        assert all(int(after(tuple(words[i, :n].tolist())).argmax()) == int(words[i, n]) for n in range(9))


def test_a_setting_that_makes_no_sense_is_answered_with_a_sentence() -> None:
    for wrong in ({"max_length": 0}, {"num_beams": 0}, {"temperature": 0.0}, {"top_p": 1.5}, {"top_k": -1}):
        with pytest.raises(SaccadeError, match=next(iter(wrong))):
            DecodingConfig(**wrong)
    with pytest.raises(SaccadeError, match="num_beam_groups=2"):
        DecodingConfig(strategy="diverse", num_beams=3)
