"""One sweep takes every answerer of the registry through what all answerers must do."""

from __future__ import annotations

import copy
import pickle
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from saccade.batch import RegionBatch, TextBatch
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models import Answerer, Hierarchical, entries, load_model
from toy_runs import IMAGE_LAYERS, TINY

ANSWERS = ("yes", "no", "red", "a red cube")
SMALL = {"region_dim": 12, "word_dim": 7, "dim": 10, "image_dim": 8, "lstm_dim": 5, "heads": 2, "layers": 2}
BRANCHES = {"retrieval_layer": 1, "grounding_layer": 2, "answering_layer": 2}
SWITCHES: dict[str, list[dict[str, Any]]] = {
    "updown_vqa": [
        {},
        {"form": "reference", "attention": "product", "places": 4},
        {"form": "reference", "attention": "concat", "places": 14, "dropout": 0.5, "attention_dropout": 0.2},
        {"attention": "product", "standardise": True, "output": "softmax", "fusion": "sum"},
        {"form": "reference", "attention": "product", "maps": 2, "question": "words"},
    ],
    "dcn": [
        {},
        {"nowhere": 0, "initialiser": "pytorch"},
        {"layers": 1, "updates": "words"},
        {"updates": "regions", "standardise": True, "region_length": 3.0},
        {"levels": (3, 4, 5), "level_heads": 2},
        {"image_dim": 10, "predict": "sum"},
        {"image_dim": 10, "predict": "answer", "output": "softmax"},
    ],
    "interbert_answering": [
        {**TINY, "framework": framework, "cross_layers": cross}
        for framework, cross in (("interbert", 0), ("vilbert", 1))
    ],
    "pixelbert_answering": [{k: v for k, v in TINY.items() if k not in IMAGE_LAYERS}],
    "pixelbert_entailment": [{k: v for k, v in TINY.items() if k not in IMAGE_LAYERS}],
    "interbert_entailment": [TINY],
    "hierarchical": [
        BRANCHES,
        {**BRANCHES, "predict": "open"},
        {**BRANCHES, "answering_layer": 1, "nowhere": 0},
        {**BRANCHES, "summary": "apart", "summaries": 2, "predict": "product"},
    ],
}
CASES = [
    pytest.param(entry.name, switches, id=f"{entry.name}-{'-'.join(map(str, switches.values())) or 'paper'}")
    for entry in entries()
    if issubclass(entry.model, Answerer)
    for switches in SWITCHES.get(entry.name, [{}])
]
sweep = pytest.mark.parametrize(("name", "switches"), CASES)


def build(name: str, switches: dict[str, Any], vocabulary: Vocabulary) -> Answerer:
    torch.manual_seed(1)
    model = next(e.model for e in entries() if e.name == name)
    sizes = {k: v for k, v in SMALL.items() if k in {f.name for f in fields(model.Config)}}
    built = model(model.Config(**{"answers": ANSWERS, **sizes, **switches}), vocabulary, "world")
    assert isinstance(built, Answerer)
    return built


def questions_of(model: Answerer, texts: TextBatch) -> TextBatch:
    return model.read([" ".join(words[1:-1]) for words in texts.words])


def same(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@sweep
def test_gradients_reach_every_parameter(
    name: str, switches: dict[str, Any], vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    model = build(name, switches, vocabulary).train()
    questions = questions_of(model, toy_texts)
    target = torch.tensor([[1.0, 0.3, 0, 0], [0, 1, 0, 0], [0, 0, 0.6, 0.9], [0, 0, 0, 0]])
    losses = [model.loss(model(toy_images, questions).logits, target)]
    if isinstance(model, Hierarchical):  # its other two tasks
        phrases = questions.mask[:, None].float()
        losses += [
            model.match(model.encode_images(toy_images), model.encode_texts(questions))[1].sin().sum(),
            model.ground(toy_images, questions, phrases).sin().sum(),
        ]
    total = torch.stack(losses).sum()
    assert total.isfinite()
    total.backward()  # type: ignore[no-untyped-call]
    silent = [k for k, p in model.named_parameters() if p.numel() and (p.grad is None or not p.grad.abs().sum() > 0)]
    if switches.get("answering_layer") == 1 or name == "dcn":  # what only further layers would read
        silent = [k for k in silent if not k.startswith("layers.")]
    assert not set(silent) - {"weigh.bias"}  # a softmax is blind to it


@sweep
def test_what_counted_is_a_distribution(
    name: str, switches: dict[str, Any], vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    model = build(name, switches, vocabulary).double().eval()
    questions = questions_of(model, toy_texts)
    answered = model(toy_images.to(dtype=torch.float64), questions)
    assert answered.logits.shape == (4, len(ANSWERS))
    same(answered.weights.sum(dim=1), torch.ones(4).double())
    assert (answered.weights * ~toy_images.mask).abs().max() == 0
    if answered.word_weights is not None:
        same(answered.word_weights.sum(dim=1), torch.ones(4).double())
    if answered.alignment is not None:  # some of each word's attention may go nowhere
        assert (answered.alignment.sum(dim=2) <= 1 + 1e-9).all()
        assert (answered.alignment * ~(questions.mask[:, :, None] & toy_images.mask[:, None])).abs().max() == 0
    chance = model.probabilities(answered.logits)
    assert ((chance > 0) & (chance < 1)).all()


@sweep
def test_padding_changes_nothing(
    name: str, switches: dict[str, Any], vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    """Neither padding regions nor padding words, nor the other questions of a batch."""
    model = build(name, switches, vocabulary).double().eval()
    images, questions = toy_images.to(dtype=torch.float64), questions_of(model, toy_texts)
    plain = model(images, questions)
    padded = model(images.pad(7), questions.pad(5))
    same(padded.logits, plain.logits)
    same(padded.weights[:, : plain.weights.shape[1]], plain.weights)
    for i in range(4):
        same(model(images.select([i]), questions.select([i]).trimmed()).logits[0], plain.logits[i])


@sweep
def test_it_is_saved_loaded_and_copied(
    name: str,
    switches: dict[str, Any],
    vocabulary: Vocabulary,
    toy_images: RegionBatch,
    toy_texts: TextBatch,
    tmp_path: Path,
) -> None:
    model = build(name, switches, vocabulary).eval()
    model.save_pretrained(tmp_path / "model")
    questions = questions_of(model, toy_texts)
    wanted = model(toy_images, questions).logits
    for other in (load_model(tmp_path / "model", Answerer), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other.answers == ANSWERS
        torch.testing.assert_close(other(toy_images, questions).logits, wanted, rtol=0, atol=0)


def test_without_answers_there_is_no_answerer(vocabulary: Vocabulary) -> None:
    with pytest.raises(SaccadeError, match="answers"):
        build("updown_vqa", {"answers": ()}, vocabulary)


def test_questions_are_read_alike_with_their_mark_or_without(vocabulary: Vocabulary) -> None:
    """Of two data sets one may leave it out: it must not say whose a question is."""
    for words, expected in (
        ((*vocabulary.words, "?"), ["is", "it", "red", "?"]),
        (vocabulary.words, ["is", "it", "red"]),
    ):
        model = build("updown_vqa", {}, Vocabulary(words))
        read = model.read_questions(["is it red ?", "is it red?", "is it red"])
        assert [list(question) for question in read.words] == [expected] * 3


def test_one_answer_alone_is_learned_as_one(vocabulary: Vocabulary) -> None:
    """−log of the right answer's share; a question without a known answer adds nothing."""
    model = build("updown_vqa", {"output": "softmax"}, vocabulary)
    logits = torch.tensor([[1.0, 2.0, 3.0, 4.0], [9.0, 9.0, 9.0, 9.0]])
    target = torch.tensor([[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(model.loss(logits, target), -logits.log_softmax(dim=1)[0, 2] / 2)


def test_places_are_zeros_before_a_question_and_cut_a_longer_one(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    """As the reference lays them out: the last place is the last word that is read."""
    model = build("updown_vqa", {"places": 3}, vocabulary).double().eval()
    questions = questions_of(model, toy_texts)
    for row in range(4):
        words = questions.tokens[row, questions.mask[row]][:3]
        laid = torch.zeros(1, 3, 7).double()
        laid[0, 3 - len(words) :] = model.words(words)
        wanted = torch.nn.GRU.forward(model.gru, laid)[0][0, -1]
        same(model.encode_questions(questions)[row], wanted)
    assert replace(model.config, places=0).places == 0


def test_a_model_that_also_matches_scores_every_pair_by_itself(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    """In tables of any cut and padding, and under a gradient too."""
    model = build("hierarchical", BRANCHES, vocabulary).double().eval()
    assert isinstance(model, Hierarchical)
    images, sentences = toy_images.to(dtype=torch.float64), questions_of(model, toy_texts)
    codes = model.encode_images(images), model.encode_texts(sentences)
    table = model.similarity(*codes)
    with torch.no_grad():
        same(model.similarity(*codes), table)
        same(model.similarity(model.encode_images(images.pad(3)), model.encode_texts(sentences.pad(2))), table)
    for image in range(4):
        for text in range(4):
            found = model.align(codes[0].select([image]), codes[1].select([text]))
            same(found.score[0], table[image, text])
            assert (found.weights.sum(dim=2) <= 1 + 1e-9).all()
