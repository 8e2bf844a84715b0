"""What is hidden from a model in pre-training: pieces of texts, one by one or in segments, and regions with what
overlaps them. All of it is tensors, so that nothing waits for a GPU.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.batch import END, START, TextBatch
from saccade.language import Vocabulary
from saccade.vision.boxes import iou

Hidden = Literal["segments", "tokens", "span"]
MASKED_SHARE, RANDOM_SHARE = 0.8, 0.1  # of hidden pieces: become [MASK], become another; the rest stay, BERT's shares
SPAN_SHARE = 0.3  # a text of which this share is less than a piece is left alone


def content(texts: TextBatch) -> Bool[Tensor, "text word"]:
    """Where there are pieces to hide: not the start and the end."""
    return texts.mask & (texts.tokens != START) & (texts.tokens != END)


def segments(there: Bool[Tensor, "text word"], rate: float, length: float) -> Bool[Tensor, "text word"]:
    """Each piece is an anchor by the chance `rate`, from which on pieces are hidden, `length` of them on average.

    Lengths are geometric: after each hidden piece the segment ends by the chance 1 / length.
    """
    draws = torch.rand(2, *there.shape, device=there.device)
    place = torch.arange(there.shape[1], device=there.device)
    ends = draws[1].clamp(min=1e-6).log() / math.log(1 - 1 / length) if length > 1 else torch.zeros_like(draws[1])
    reach = torch.where(there & (draws[0] < rate), place + 1 + ends.floor().long(), 0)
    return there & (reach.cummax(dim=1).values > place)


def tokens(there: Bool[Tensor, "text word"], rate: float) -> Bool[Tensor, "text word"]:
    """Each piece by itself, BERT's."""
    return there & (torch.rand(there.shape, device=there.device) < rate)


def one_span(there: Bool[Tensor, "text word"]) -> Bool[Tensor, "text word"]:
    """The released code's: one span for each text, its start and its length each any number of the text's pieces."""
    count = there.sum(dim=1)
    draws = torch.rand(2, len(there), device=there.device)
    start = (draws[0] * (count + 1)).floor()
    length = 1 + (draws[1] * count).floor()
    place = (there.cumsum(dim=1) - 1).masked_fill(~there, -1)
    inside = (place >= start[:, None]) & (place < (start + length)[:, None])
    return there & inside & (count * SPAN_SHARE >= 1)[:, None]


def hide_words(
    texts: TextBatch, hidden: Bool[Tensor, "text word"], vocabulary: Vocabulary
) -> tuple[TextBatch, Int[Tensor, "text word"]]:
    """Texts without the `hidden` pieces, and what these were, −1 elsewhere. Of ten, eight become [MASK], one any."""
    draws = torch.rand(hidden.shape, device=hidden.device)
    other = torch.randint(vocabulary.mask_id + 1, len(vocabulary), hidden.shape, device=hidden.device)
    shown = torch.where(draws < MASKED_SHARE + RANDOM_SHARE, other, texts.tokens)
    shown = torch.where(draws < MASKED_SHARE, vocabulary.mask_id, shown)
    target = torch.where(hidden, texts.tokens, -1)
    return replace(texts, tokens=torch.where(hidden, shown, texts.tokens)), target


def with_overlapping(
    anchors: Bool[Tensor, "*image region"],
    boxes: Float[Tensor, "*image region 4"],
    overlap: float,
    inclusive: bool = False,
) -> Bool[Tensor, "*image region"]:
    """The anchors, and every region whose intersection over union with one is more than `overlap`, or as much where
    boxes are counted by their pixels, as the released code does both."""
    shared = iou(boxes, boxes, inclusive)
    near = shared >= overlap if inclusive else shared > overlap
    return anchors | (near & anchors[..., None, :]).any(dim=-1)
