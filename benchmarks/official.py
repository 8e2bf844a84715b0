"""The official evaluations of the matching family, written again from what is known of their code: the slow baselines.

SCAN, IMRAM and GSMN score one caption at a time with all pictures: its words are copied for every picture, and every
attended vector is computed. CAMP scores five pictures at a time with all captions, padded to fifty words; every
fragment of every pair goes through every map. Loops run where their inputs are, take what our own models take, and
give the same table [image, text]; they are meant to be timed, and to be compared with ours to rounding.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.batch import ImageCode, TextCode
from saccade.models import Camp, Gsmn, Imram
from saccade.models.gsmn import MatchedGraph, polar_coordinates
from saccade.models.imram import MemoryDistillation, RecurrentAttention
from saccade.ops import AttentionForm

CAMP_LENGTH = 50  # places for words, full or empty
CAMP_PICTURES = 5  # scored at once


def scan_loop(
    images: Tensor,
    texts: Tensor,
    lengths: list[int],
    direction: Literal["text→image", "image→text"],
    form: AttentionForm,
) -> Tensor:
    """SCAN with clipped_l2 and LogSumExp; pictures [image, region, dim] have no padding."""
    columns = []
    for caption, length in zip(texts, lengths, strict=True):
        words = _for_every_picture(caption[:length], images)
        queries, context = (words, images) if direction == "text→image" else (images, words)
        match = _cosine(queries, attended(queries, context, form.sharpness))
        columns.append((form.pool_sharpness * match).exp().sum(dim=1).log() / form.pool_sharpness)
    return torch.stack(columns, dim=1)


def imram_loop(model: Imram, images: Tensor, texts: Tensor, lengths: list[int]) -> Tensor:
    """K steps, each followed by an update of the queries; that after the last step too, which nobody reads."""
    sides = [side for side in (model.words_ask, model.regions_ask) if side is not None]
    return torch.stack([_steps(side, images, texts, lengths) for side in sides]).sum(dim=0)


def gsmn_loop(model: Gsmn, images: ImageCode, texts: TextCode) -> Tensor:
    """Both graphs. What is known of one caption's or picture's graph alone is not computed again for every pair, but
    the Gaussian kernels are: the convolution takes coordinates, not weights."""
    assert model.config.graphs == "both"
    assert model.config.structure
    assert images.boxes is not None
    regions, lengths = images.regions, texts.mask.sum(dim=1).tolist()
    coordinates, itself = polar_coordinates(images.boxes), not model.config.message_passing
    edges = model.textual_edges(texts)
    assert edges is not None
    columns = []
    for text, length in enumerate(lengths):
        words = _for_every_picture(texts.words[text, :length], regions)
        seen = _block_cosines(regions, words, model)
        score = _graph_score(model.visual, seen, _kernels(model, coordinates), itself)
        links = edges[text, :length, :length].expand(len(regions), -1, -1, model.config.kernels)
        columns.append(score + _graph_score(model.textual, _block_cosines(words, regions, model), links, itself))
    return torch.stack(columns, dim=1)


def camp_loop(model: Camp, images: ImageCode, texts: TextCode) -> Tensor:
    """The full model (two rounds, gate, fusion, pooling heads)."""
    assert model.config.fusion
    assert model.config.gate
    assert model.config.heads
    assert model.config.rounds == 2
    places = max(CAMP_LENGTH, texts.words.shape[1]) - texts.words.shape[1]
    words, there = F.pad(texts.words * texts.mask[..., None], (0, 0, 0, places)), F.pad(texts.mask, (0, places))
    blocks = torch.split(images.regions, CAMP_PICTURES)
    rows = [_camp_block(model, some, words, there) for some in blocks]
    return torch.cat(rows)


def attended(queries: Tensor, context: Tensor, sharpness: float) -> Tensor:
    """What each query finds, pair by pair, by products in the official order: [pair, query, dim], queries innermost."""
    scores = F.leaky_relu(torch.bmm(context, queries.transpose(1, 2)), 0.1)  # [pair, part, query]
    scores = scores / (scores.pow(2).sum(dim=2, keepdim=True).sqrt() + 1e-8)
    weights = torch.softmax(sharpness * scores.transpose(1, 2).contiguous(), dim=2)
    weights = weights.transpose(1, 2).contiguous()
    return torch.bmm(context.transpose(1, 2), weights).transpose(1, 2)


def _for_every_picture(words: Tensor, images: Tensor) -> Tensor:
    return words.repeat(len(images), 1, 1)  # a copy per picture


def _cosine(one: Tensor, other: Tensor) -> Tensor:
    size: Tensor = torch.norm(one, 2, -1) * torch.norm(other, 2, -1)
    return (one * other).sum(dim=-1) / size.clamp(min=1e-8)


def _steps(side: RecurrentAttention, images: Tensor, texts: Tensor, lengths: list[int]) -> Tensor:
    columns = []
    for caption, length in zip(texts, lengths, strict=True):
        words = _for_every_picture(caption[:length], images)
        first, context = (words, images) if side.words_attend else (images, words)
        query, total = first, images.new_zeros(len(images))
        for _ in range(side.steps):
            found = attended(query, context, side.form.sharpness)
            total = total + _cosine(first, found).mean(dim=1)
            query = _updated(query, found, side.memory)
        columns.append(total)
    return torch.stack(columns, dim=1)


def _updated(query: Tensor, found: Tensor, memory: MemoryDistillation) -> Tensor:
    assert memory.gate is not None
    assert memory.candidate is not None
    both = torch.cat([query, found], dim=2)
    candidate: Tensor = memory.candidate(both).tanh()
    gate: Tensor = memory.gate(both).sigmoid()
    return query * gate + candidate * (1 - gate)


def _block_cosines(queries: Tensor, context: Tensor, model: Gsmn) -> Tensor:
    found = attended(queries, context, model.config.sharpness)
    width = model.config.dim // model.config.blocks
    one, other = (torch.stack(torch.split(vectors, width, dim=2), dim=2) for vectors in (queries, found))
    return _cosine(one, other)  # [image, node, block]


def _kernels(model: Gsmn, coordinates: Tensor) -> Tensor:
    """Gaussians of distance and angle, normalised over the kernels: [image, region, region, kernel]."""
    places = model.places
    distance, angle = coordinates[..., :1], coordinates[..., 1:]
    near = torch.exp(-0.5 * (distance - places.distance) ** 2 / (1e-14 + places.distance_width**2))
    turn = (angle - places.angle).abs()
    turn = torch.min(turn, (2 * torch.pi - turn).abs())
    weights = near * torch.exp(-0.5 * turn**2 / (1e-14 + places.angle_width**2))
    weights = torch.where(weights.isnan(), 0.0, weights)
    return weights / weights.sum(dim=-1, keepdim=True)


def _graph_score(graph: MatchedGraph, nodes: Tensor, weights: Tensor, itself: bool) -> Tensor:
    """The convolution kernel by kernel, over a copy of the neighbours (`itself`: of the node) for every node."""
    assert graph.propagate is not None
    images, count, blocks = nodes.shape
    neighbours = nodes.unsqueeze(2 if itself else 1)
    neighbours = neighbours.repeat(1, *((1, count) if itself else (count, 1)), 1).view(images * count, count, blocks)
    heard = torch.bmm(weights.reshape(images * count, count, -1).transpose(1, 2), neighbours)
    hidden = torch.cat([kernel(heard[:, k]) for k, kernel in enumerate(graph.propagate.kernels)], dim=1)
    hidden = hidden.tanh() if graph.bend else hidden  # the paper's; the released code has none
    score: Tensor = graph.score(graph.hidden(hidden).tanh())
    return score.view(images, count).mean(dim=1)


def _camp_block(model: Camp, regions: Tensor, words: Tensor, there: Tensor) -> Tensor:
    """Some pictures with all captions: first a copy of each for every pair."""
    look, pictures, texts = model.look, len(regions), len(words)

    def by_picture(values: Tensor) -> Tensor:
        return values.unsqueeze(1).expand(-1, texts, -1, -1).reshape(pictures * texts, *values.shape[1:])

    def by_text(values: Tensor) -> Tensor:
        return values.unsqueeze(0).expand(pictures, *values.shape).reshape(pictures * texts, *values.shape[1:])

    query, key = by_picture(look["regions_query"](regions)), by_picture(look["regions_key"](regions))
    word_query, word_key = by_text(look["words_query"](words)), by_text(look["words_key"](words))
    regions, words, hidden = by_picture(regions), by_text(words), ~by_text(there[:, None])
    told = _look(query, word_key, words, hidden)  # V~
    heard = _look(word_query, key, regions)  # T~
    told = _look(look["words_query_again"](told), look["words_key_again"](told), told)  # V^
    heard = _look(look["regions_query_again"](heard), look["regions_key_again"](heard), heard, hidden)  # T^
    seen = _camp_pooled(model, "regions", regions, told)
    read = _camp_pooled(model, "words", words, heard, hidden.transpose(1, 2))
    logit: Tensor = model.judge(torch.cat([seen, read], dim=1))
    return logit.sigmoid().view(pictures, texts)


def _look(query: Tensor, key: Tensor, values: Tensor, hidden: Tensor | None = None) -> Tensor:
    scores = torch.bmm(query, key.transpose(1, 2)) / query.shape[-1] ** 0.5
    if hidden is not None:
        scores = scores.masked_fill(hidden, -1e9)
    return torch.bmm(scores.softmax(dim=-1), values)


def _camp_pooled(model: Camp, side: str, own: Tensor, message: Tensor, hidden: Tensor | None = None) -> Tensor:
    message = message / (message.pow(2).sum(dim=-1, keepdim=True).sqrt() + 1e-8)
    gate = (own * message).sum(dim=-1, keepdim=True).sigmoid()
    fused = model.fuse[side](torch.cat([own, message], dim=-1) * gate).relu() + own
    scores = model.pool[side].heads(model.pool[side].hidden(fused).relu())  # [pair, fragment, head]
    if hidden is not None:
        scores = scores.masked_fill(hidden, -1e9)
    pooled = torch.bmm(scores.softmax(dim=1).transpose(1, 2), fused).mean(dim=1)
    return pooled / (pooled.pow(2).sum(dim=-1, keepdim=True).sqrt() + 1e-8)
