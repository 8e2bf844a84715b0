"""Which wrong partners a model is shown in training: any, or those most like the right one. Nothing waits for a GPU."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.batch import END, START, TextBatch


def other_items(allowed: Bool[Tensor, "item other"]) -> Int[Tensor, " item"]:
    """One of the `allowed` others for each item, at random; any at all where none is."""
    return (torch.rand(allowed.shape, device=allowed.device) + allowed).argmax(dim=1)


def likely_items(scores: Float[Tensor, "item other"], allowed: Bool[Tensor, "item other"]) -> Int[Tensor, " item"]:
    """One of the `allowed` others for each item, drawn by the softmax of its scores; any at all where none is."""
    noise = -torch.empty_like(scores).exponential_().log()  # Gumbel's: the largest sum is a draw from the softmax
    return (scores + noise).masked_fill(~allowed, -torch.inf).argmax(dim=1)


def text_likeness(texts: TextBatch, words: int) -> Float[Tensor, "text text"]:
    """The cosine of texts as bags of words, weighed by how few texts of the batch a word is in (TF–IDF)."""
    bags = torch.zeros(len(texts), words, device=texts.tokens.device)
    told = texts.mask & (texts.tokens != START) & (texts.tokens != END)
    bags.scatter_add_(1, texts.tokens, told.to(bags))
    rarity = (len(texts) / bags.gt(0).sum(dim=0).clamp(min=1)).log()
    bags = torch.nn.functional.normalize(bags * rarity, dim=1)
    return bags @ bags.T


def hard_texts(texts: TextBatch, allowed: Bool[Tensor, "text other"], words: int) -> Int[Tensor, " text"]:
    """The `allowed` text most like each."""
    return text_likeness(texts, words).masked_fill(~allowed, -torch.inf).argmax(dim=1)
