"""Words look for regions and regions for words; what is found is compared block by block, for a vector of cosines."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from saccade.batch import ImageCode, TextCode
from saccade.ops import AttentionForm, attention_weights

EPSILON = 1e-8


@dataclass(frozen=True)
class BlockMatch:
    """Both ways of a comparison; `pair` is (image, text), or one axis where picture p meets sentence p."""

    weights: Float[Tensor, "*pair region word"]  # each word's, over the regions
    words: Float[Tensor, "*pair word block"]  # cosines of each word with what it found
    regions: Float[Tensor, "*pair region block"]


def block_match(
    images: ImageCode, texts: TextCode, blocks: int, form: AttentionForm, every_pair: bool = True
) -> BlockMatch:
    """Cosines of b = 1 … `blocks` contiguous parts of the vectors: every picture with every sentence, or p with p.

    Like the whole cosine (`ops/pairwise.py`), that of a block needs no attended vector a = Σ_i α_i c_i: with
    s_b = c_b · q_b and the context's Gram matrix G_b of that block, q_b · a_b = αᵀ s_b and |a_b|² = αᵀ G_b α.
    """
    i, t, p = ("i", "t", "it") if every_pair else ("p", "p", "p")
    regions, words = _blocks(images.regions, images.mask, blocks), _blocks(texts.words, texts.mask, blocks)
    region_mask = images.mask[:, None] if every_pair else images.mask
    scores = torch.einsum(f"{i}brd,{t}bwd->{p}brw", regions, words)
    whole = scores.sum(dim=-3)  # [*pair, region, word]
    weights = attention_weights(whole, texts.mask, region_mask, form)
    of_words = _cosines(scores, weights, f"{i}brs,{p}sw->{p}brw", regions, _lengths(words))
    back = attention_weights(whole.mT, region_mask, texts.mask, form)  # [*pair, word, region]
    lengths = _lengths(regions)[:, None] if every_pair else _lengths(regions)
    of_regions = _cosines(scores.mT, back, f"{t}bwv,{p}vr->{p}bwr", words, lengths)
    return BlockMatch(weights, of_words, of_regions)


def _blocks(
    vectors: Float[Tensor, "item part dim"], mask: Bool[Tensor, "item part"], blocks: int
) -> Float[Tensor, "item block part few"]:
    return (vectors * mask[:, :, None]).view(*mask.shape, blocks, -1).transpose(1, 2)


def _lengths(vectors: Float[Tensor, "item block part few"]) -> Float[Tensor, "item block part"]:
    return vectors.square().sum(dim=-1).clamp(min=EPSILON**2).sqrt()  # the clamp gives √0 a gradient of 0


def _cosines(
    scores: Float[Tensor, "*pair block part query"],
    weights: Float[Tensor, "*pair part query"],
    turn: str,
    context: Float[Tensor, "item block part few"],
    query_lengths: Float[Tensor, "*#pair block query"],
) -> Float[Tensor, "*pair query block"]:
    gram = torch.matmul(context, context.mT)
    spread = weights.unsqueeze(-3)
    found = (spread * scores).sum(dim=-2)  # q · a; padded context has score 0
    squared = (spread * torch.einsum(turn, gram, weights)).sum(dim=-2)  # |a|² = αᵀGα
    lengths = query_lengths * squared.clamp(min=EPSILON**2).sqrt()
    return (found / lengths.clamp(min=EPSILON)).mT
