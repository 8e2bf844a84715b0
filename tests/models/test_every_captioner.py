"""One sweep takes every captioner of the registry through what all captioners must do."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from saccade.batch import END, PAD, START, RegionBatch, TeacherForced, TextBatch
from saccade.decoding import DecodingConfig, decode
from saccade.language import Vocabulary
from saccade.language.vocabulary import padded_graphs
from saccade.models import Captioner, Sgae, Unsupervised, entries, load_model
from saccade.models.unsupervised import Rollout

SMALL = {"region_dim": 12, "word_dim": 7, "dim": 10, "attention_dim": 6, "entries": 9}
SWITCHES: dict[str, list[dict[str, Any]]] = {
    "show_attend_tell": [
        {},
        {"attention": "hard", "reward": "word"},
        {"attention": "hard", "at_test": "likeliest", "semi_sampling": 1.0},
        {"attention": "none", "gate": "none", "deep_output": False},
        {"gate": "vector", "activation": "relu", "coverage_over": "mean", "output_layers": 2, "first_tanh": False},
    ],
    "adaptive": [
        {},
        {"sentinel": False, "transforms": False},
        {"layers": 2, "maxout": True, "word_relu": False},
        {"region_norm": "around"},
    ],
    "updown": [
        {},
        {"embed_regions": True, "word_relu": True, "attention_bias": True, "dropout": 0.5},
        {"embed_regions": True, "region_norm": "before"},
    ],
    "sgae": [
        {},
        {"fusion": "released", "peek": True},
        {"dictionary": False, "relations": False},
        {"shared_decoder": True, "neighbours": 1},
    ],
    "unsupervised": [{}, {"dropout": 0.0, "smoothing": 0.0}],
}
CASES = [
    pytest.param(entry.name, switches, id=f"{entry.name}-{'-'.join(map(str, switches.values())) or 'paper'}")
    for entry in entries()
    if issubclass(entry.model, Captioner)
    for switches in SWITCHES.get(entry.name, [{}])  # a model without a row is swept as its paper has it
]
sweep = pytest.mark.parametrize(("name", "switches"), CASES)


def build(name: str, switches: dict[str, Any], vocabulary: Vocabulary) -> Captioner:
    torch.manual_seed(1)
    model = next(e.model for e in entries() if e.name == name)
    sizes = {k: v for k, v in SMALL.items() if k in {f.name for f in fields(model.Config)}}
    built = model(replace(model.Config(), **{**sizes, **switches}), vocabulary, "world")
    assert isinstance(built, Captioner)
    with torch.no_grad():  # words of a fresh model are all but equally likely: beams would be told apart by rounding
        for weight in built.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return built


def read_sentences(model: Sgae, images: RegionBatch, texts: TextBatch) -> list[Tensor]:
    """S → G → D → S, which pictures leave untouched."""
    graphs = replace(model.config, dictionary_steps=1) if model.config.dictionary else model.config
    model.config = replace(graphs, sentence_steps=1)
    read = model.read([" ".join(words[1:-1]) for words in texts.words])
    state = model.start_from_sentences(read, images, model.config.dictionary)
    return [model.teacher_force(state, read.tokens[:, :-1]).log_probabilities[..., 4:].sin().sum()]


def with_graphs(images: RegionBatch) -> RegionBatch:
    """Names for some regions, relations and attributes between them, as a detector of such things would give."""
    return replace(
        images,
        graph=padded_graphs(
            [[8, 0, 9, 0, 10], [9, 8, 0, 0, 0], [0] * 5, [0] * 5],
            [[(0, 1, 15), (4, 1, 11)], [(1, 0, 12)], [], [(3, 0, 15)]],
            [{0: [5, 17], 4: [6]}, {1: [18]}, {}, {}],
        ),
    )


def play_both_sides(model: Unsupervised, images: RegionBatch, texts: TextBatch) -> list[Tensor]:
    """The critic's losses, and sentences said from what it recalls and from concepts."""
    pictures, _ = model.encode_images(images)
    no_concepts = torch.zeros(4, 1)
    said = Rollout(texts.tokens[:, 1:].flip(0), pictures, no_concepts.long(), no_concepts)
    assert model.reader is not None
    lengths = texts.mask[:, 1:]
    recalled = model.critic.score(texts.tokens[:, 1:], lengths).recalled
    read = model.reader.whole(texts.tokens[:, 1:], lengths)
    return [
        *model.discriminator_losses(texts, said).values(),
        model.sentence_loss(texts, recalled),
        model.sentence_loss(texts, read),
    ]


BESIDE_PICTURES: dict[str, Callable[..., list[Tensor]]] = {"sgae": read_sentences, "unsupervised": play_both_sides}


def test_every_captioner_is_swept() -> None:
    assert {e.name for e in entries() if issubclass(e.model, Captioner)} >= set(SWITCHES)


@sweep
def test_pickled_and_copied_it_says_the_same(
    name: str, switches: dict[str, Any], vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    model = build(name, switches, vocabulary).eval()
    said = model(toy_images, toy_texts).log_probabilities
    for copied in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert torch.equal(copied(toy_images, toy_texts).log_probabilities, said)


@sweep
def test_it_is_loaded_in_the_numbers_asked_for(
    name: str,
    switches: dict[str, Any],
    vocabulary: Vocabulary,
    toy_images: RegionBatch,
    toy_texts: TextBatch,
    tmp_path: Path,
) -> None:
    model = build(name, switches, vocabulary).eval()
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, dtype="bfloat16")
    assert {p.dtype for p in loaded.parameters()} == {torch.bfloat16}
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        said = loaded(toy_images, toy_texts).log_probabilities
    torch.testing.assert_close(said.float(), model(toy_images, toy_texts).log_probabilities, rtol=0.05, atol=0.3)


@sweep
def test_gradients_reach_every_parameter(
    name: str, switches: dict[str, Any], vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    """Of a caption's loss, of the paper's own losses, and of the lessons without pictures where there are such."""
    model = build(name, switches, vocabulary).train()
    toy_images = with_graphs(toy_images) if name == "sgae" else toy_images
    forced = model.teacher_force(model.start_training(toy_images, toy_texts, torch.arange(4)), toy_texts.tokens[:, :-1])
    labels, wanted = toy_texts.tokens[:, 1:], toy_texts.mask[:, 1:]
    said = forced.log_probabilities.gather(2, labels.masked_fill(~wanted, END)[..., None])[..., 0]
    nll = -said * wanted
    assert nll.isfinite().all()
    own = model.own_losses(forced, labels, nll, wanted)
    beside = BESIDE_PICTURES[name](model, toy_images, toy_texts) if name in BESIDE_PICTURES else []
    total = torch.stack([nll.sum(), *own.values(), *beside]).sum()
    assert total.isfinite()
    total.backward()  # type: ignore[no-untyped-call]
    silent = [k for k, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    if not switches.get("relations", True):  # nobody hears from neighbours
        silent = [k for k in silent if not k.startswith("picture_graph.")]
    assert not silent


@sweep
def test_what_is_told_is_a_distribution_over_words_and_a_look_one_over_regions(
    name: str, switches: dict[str, Any], vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    model = build(name, switches, vocabulary).double().eval()
    forced = model(toy_images.to(dtype=torch.float64), toy_texts)
    steps = toy_texts.tokens.shape[1] - 1
    assert forced.log_probabilities.shape == (4, steps, len(vocabulary))
    assert forced.log_probabilities[..., [PAD, START]].isneginf().all()
    torch.testing.assert_close(forced.log_probabilities.exp().sum(dim=2), torch.ones(4, steps, dtype=torch.float64))
    assert forced.weights.shape == (4, steps, toy_images.mask.shape[1])
    assert (forced.weights >= 0).all()
    assert (forced.weights * ~toy_images.mask[:, None]).max() == 0
    beside = torch.zeros(4, steps, dtype=torch.float64) if forced.sentinel is None else forced.sentinel
    torch.testing.assert_close(forced.weights.sum(dim=2) + beside, torch.ones(4, steps, dtype=torch.float64))


@sweep
def test_padding_changes_nothing(
    name: str, switches: dict[str, Any], vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    """Neither padding regions nor padding words, nor the other pictures of a batch."""
    model = build(name, switches, vocabulary).double().eval()
    images = toy_images.to(dtype=torch.float64)
    plain = model(images, toy_texts)
    steps, regions = plain.weights.shape[1:]
    padded = model(images.pad(7), toy_texts.pad(5))
    same(padded.log_probabilities[:, :steps], plain.log_probabilities)
    same(padded.weights[:, :steps, :regions], plain.weights)
    for i in range(4):
        alone = model(images.select([i]), toy_texts.select([i]))
        same(alone.log_probabilities[0], plain.log_probabilities[i])


def same(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@sweep
def test_word_by_word_is_as_under_teacher_forcing(
    name: str, switches: dict[str, Any], vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    """Also where every picture is told twice and the two change places on the way, as beams do."""
    model = build(name, switches, vocabulary).double().eval()
    images = toy_images.to(dtype=torch.float64)
    forced = model(images, toy_texts)
    state = model.start(images).repeat(2)
    swap = torch.arange(8).view(4, 2).flip(1).flatten()
    for step, words in enumerate(toy_texts.tokens[:, :-1].unbind(dim=1)):
        log_probabilities, output = model.predict_next(words.repeat_interleave(2), state)
        state = output.state.reorder(swap)
        for beam in (0, 1):
            same(log_probabilities[beam::2], forced.log_probabilities[:, step])
            same(output.weights[beam::2], forced.weights[:, step])


@sweep
@pytest.mark.parametrize("how", ["greedy", "beam", "sample"])
def test_captions_do_not_depend_on_padding(
    name: str, switches: dict[str, Any], how: str, vocabulary: Vocabulary, toy_images: RegionBatch
) -> None:
    model = build(name, switches, vocabulary).double().eval()
    images = toy_images.to(dtype=torch.float64)
    config = DecodingConfig(strategy=how, num_beams=3, max_length=7, num_return_sequences=2)  # type: ignore[arg-type]
    plain, padded = (
        decode(model, given, config, generator=torch.Generator().manual_seed(5)) for given in (images, images.pad(3))
    )
    assert torch.equal(plain.words, padded.words)
    same(plain.score, padded.score)
    same(plain.weights, padded.weights[:, :, : plain.weights.shape[2]])


@sweep
def test_saved_and_loaded_it_says_the_same(
    name: str,
    switches: dict[str, Any],
    vocabulary: Vocabulary,
    toy_images: RegionBatch,
    toy_texts: TextBatch,
    tmp_path: Path,
) -> None:
    model = build(name, switches, vocabulary).eval()
    model.save_pretrained(tmp_path / "model")
    for loaded in (load_model(tmp_path / "model", Captioner), type(model).from_pretrained(str(tmp_path / "model"))):
        assert type(loaded) is type(model)
        assert loaded.config == model.config
        assert loaded.vocabulary == vocabulary
        assert loaded.extractor == "world"
        equal(loaded(toy_images, toy_texts), model(toy_images, toy_texts))


@sweep
def test_a_seed_fixes_everything(
    name: str, switches: dict[str, Any], vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    """Weights, dropout and sampled looks in training; nothing is left to chance after it."""
    first, second = (build(name, switches, vocabulary).train() for _ in range(2))
    forced = []
    for model in (first, second):
        torch.manual_seed(3)
        forced.append(model(toy_images, toy_texts))
    equal(*forced)
    first.eval()
    equal(first(toy_images, toy_texts), first(toy_images, toy_texts))


def equal(one: TeacherForced, other: TeacherForced) -> None:
    assert torch.equal(one.log_probabilities, other.log_probabilities)
    assert torch.equal(one.weights, other.weights)
