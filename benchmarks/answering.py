"""Answerers beside plain forms of the published code's steps, with the same weights and the same answers.

Up-Down's reference reads fourteen words of every question, padding before shorter ones, with PyTorch's GRU, and gives
every region a copy of its question; DCN's co-attention is written head by head, both directions after each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.bench import Bench, Case
from benchmarks.rows import Row
from saccade.batch import RegionBatch, TextBatch
from saccade.language import Vocabulary
from saccade.models import Answerer, Dcn, DcnConfig, UpDownVqa, UpDownVqaConfig
from saccade.nn.coattention import CoAttention

QUESTIONS, REGIONS, REGION_DIM, WORDS, ANSWERS = 64, 36, 2048, 14, 3000


def cases(bench: Bench) -> Iterator[Case]:
    for name in ("updown_vqa", "dcn"):
        for training in (False, True):
            step = "training step" if training else "answers"
            yield Case(f"answering, {name}, {step}", partial(answer, bench, name, training))


def answer(bench: Bench, name: str, training: bool) -> Row:
    count, regions = bench.size(QUESTIONS, 3), bench.size(REGIONS, 4)
    torch.manual_seed(0)
    model, plain = answerer(name, bench.size(REGION_DIM, 16), bench.size(ANSWERS, 5), bench.size(512, 16))
    model, plain = model.to(bench.device), plain.to(bench.device)
    features = torch.randn(count, regions, model.config.region_dim)
    images = RegionBatch(features, torch.ones(count, regions, dtype=torch.bool), torch.rand(count, regions, 4))
    lengths = torch.randint(4, WORDS + 1, (count,))
    mask = torch.arange(WORDS) < lengths[:, None]
    questions = TextBatch(torch.randint(4, len(model.vocabulary), (count, WORDS)) * mask, mask)
    images, questions = images.to(bench.device), questions.to(bench.device)
    target = torch.rand(count, len(model.answers), device=bench.device)

    @torch.set_grad_enabled(training)
    def learn(logits: Callable[[], Tensor]) -> None:
        found = logits()
        if training:
            model.zero_grad()
            model.loss(found, target).backward()  # type: ignore[no-untyped-call]

    ours, theirs = (lambda: model.answer(images, questions).logits), (lambda: plain(images, questions))
    with torch.no_grad():
        difference = float((ours() - theirs()).abs().max())
    spent = bench.best_of({"ours": partial(learn, ours), "plain": partial(learn, theirs)}, runs=5)
    return Row(
        name="",
        shape=f"{count} questions of 4 to {WORDS} words, {regions} regions",
        seconds=spent["ours"],
        official_seconds=spent["plain"],
        figures={"difference_to_plain": difference},
        note="against the published code's steps, written plainly",
    )


def answerer(name: str, region_dim: int, answers: int, dim: int) -> tuple[Answerer, nn.Module]:
    """A model, and the plain form of it."""
    words = Vocabulary.build([f"word{n}" for n in range(500)], min_count=1)
    known = tuple(f"answer{n}" for n in range(answers))
    if name == "dcn":
        widths = {"dim": dim, "image_dim": dim, "lstm_dim": dim // 4}
        dcn = Dcn(DcnConfig(answers=known, region_dim=region_dim, dropout=0.0, word_dropout=0.0, **widths), words)
        return dcn, PlainDcn(dcn)
    config = UpDownVqaConfig(
        answers=known, region_dim=region_dim, dim=dim, form="reference", attention="product", places=WORDS
    )
    updown = UpDownVqa(config, words)
    return updown, PlainUpDown(updown)


class PlainUpDown(nn.Module):
    def __init__(self, model: UpDownVqa) -> None:
        super().__init__()
        self.model = model
        own = dict(model.gru.named_parameters())
        self.gru = nn.GRU(model.config.word_dim, model.config.dim, batch_first=True)
        for name, _ in list(self.gru.named_parameters()):
            setattr(self.gru, name, own[name])

    def forward(self, images: RegionBatch, questions: TextBatch) -> Tensor:
        model: Any = self.model
        rows = []
        for tokens, length in zip(questions.tokens, questions.lengths.tolist(), strict=True):
            before = model.words.weight.new_zeros(WORDS - length, model.config.word_dim)
            rows.append(torch.cat([before, model.words(tokens[:length])]))
        question = self.gru(torch.stack(rows))[0][:, -1]
        copies = question[:, None].repeat(1, images.features.shape[1], 1)
        scores = model.weigh(model.region_key(images.features) * model.question_key(copies))
        found = (scores.softmax(dim=1) * images.features).sum(dim=1)
        logits: Tensor = model.out(model.joint(model.question(question) * model.picture(found)))
        return logits


class PlainDcn(nn.Module):
    def __init__(self, model: Dcn) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: RegionBatch, questions: TextBatch) -> Tensor:
        model = self.model
        words, final = model.encode_questions(questions)
        regions = model.encode_regions(images, final)
        for layer in model.layers:
            assert isinstance(layer, CoAttention)
            regions, words = plain_coattention(layer, regions, words, images.mask, questions.mask)
        picture, question = model.region_summary(regions, images.mask), model.word_summary(words, questions.mask)
        return model.logits(picture[0], question[0])


def plain_coattention(
    layer: CoAttention, regions: Tensor, words: Tensor, region_mask: Tensor, word_mask: Tensor
) -> tuple[Tensor, Tensor]:
    """One layer, head by head."""

    def beside(nowhere: Tensor, given: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat([nowhere[None].repeat(len(given), 1, 1), given], dim=1)
        return both, torch.cat([mask.new_ones(len(mask), len(nowhere)), mask], dim=1)

    all_regions, region_mask = beside(layer.no_region, regions, region_mask)
    all_words, word_mask = beside(layer.no_word, words, word_mask)
    keys = layer.region_key(all_regions).chunk(layer.heads, dim=2)
    queries = layer.word_key(all_words).chunk(layer.heads, dim=2)
    to_words, to_regions = torch.zeros_like(all_words), torch.zeros_like(all_regions)
    for key, query in zip(keys, queries, strict=True):
        scores = query @ key.mT / key.shape[2] ** 0.5
        over_regions = scores.masked_fill(~region_mask[:, None], -65504.0).softmax(dim=2)
        to_words = to_words + over_regions @ all_regions / layer.heads
        over_words = (key @ query.mT / key.shape[2] ** 0.5).masked_fill(~word_mask[:, None], -65504.0).softmax(dim=2)
        to_regions = to_regions + over_words @ all_words / layer.heads
    assert layer.word_fusion is not None
    assert layer.region_fusion is not None
    found, said = to_words[:, layer.nowhere :], to_regions[:, layer.nowhere :]
    next_words = words + layer.word_fusion(torch.cat([words, found], dim=2)).relu()
    return regions + layer.region_fusion(torch.cat([regions, said], dim=2)).relu(), next_words
