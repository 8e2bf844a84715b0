"""Pictures and sentences that do not belong together: how a split is taken apart, and what is done to sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.batch import Batch, PictureBatch, RegionBatch, TextBatch
from saccade.core.errors import SaccadeError
from saccade.data.records import CaptionedImages
from saccade.data.text.concepts import concepts_by_extractor, read_concepts
from saccade.language.vocabulary import END, UNKNOWN
from saccade.tasks.pairs import Read


@dataclass(frozen=True)
class UnpairedBatch(Batch):
    """Some pictures with what a detector sees in them, and some sentences of other pictures."""

    images: RegionBatch | PictureBatch
    texts: TextBatch
    concepts: Int[Tensor, "image concept"]  # surest first, padded with <pad>
    scores: Float[Tensor, "image concept"]  # zero at padding


def take_apart(data: CaptionedImages, share: float) -> tuple[list[int], list[int]]:
    """Pictures of the first `share` of a split, without their sentences; sentences of the rest, without pictures."""
    first = round(share * len(data.images))
    texts = [text for text, image in enumerate(data.image_of_text.tolist()) if image >= first]
    if not first or not texts:
        raise SaccadeError(
            f"share={share} of the {len(data.images)} pictures of {data.name}/{data.split} leaves "
            f"{'no pictures' if not first else 'no sentences'}"
        )
    return list(range(first)), texts


@dataclass(frozen=True)
class ConceptTable(Batch):
    """The concepts of each picture that the model has a word for."""

    words: Int[Tensor, "image concept"]
    scores: Float[Tensor, "image concept"]


def concept_table(
    data: CaptionedImages,
    pictures: Sequence[int],
    read: Read,
    source: str = "extractor",
    attributes: Sequence[str] = ("kind",),
    confidence: float = 0.3,
    most: int = 10,
) -> ConceptTable:
    """What the extractor names in the pictures, or a file, or `none`; names that are no single word are left out."""
    if source == "none":
        return ConceptTable(torch.zeros(len(pictures), 1, dtype=torch.long), torch.zeros(len(pictures), 1))
    if source == "extractor":
        found = concepts_by_extractor(data, pictures, attributes, confidence)
    else:
        found = read_concepts(Path(source), [data.images.ids[i] for i in pictures])
    names = sorted({name for named in found for name in named})
    ids = {}
    for name in names:
        tokens = read([name]).tokens[0, 1:-1].tolist() if name.strip() else []
        if len(tokens) == 1 and tokens[0] != UNKNOWN:
            ids[name] = tokens[0]
    if not ids:
        raise SaccadeError(
            f"none of the {len(names)} concepts found in {data.name}/{data.split} is a word of the sentences: "
            f"lower concept_confidence ({confidence}), or give concepts=none"
        )
    words = torch.zeros(len(pictures), most, dtype=torch.long)
    scores = torch.zeros(len(pictures), most)
    for row, named in enumerate(found):
        known = [(ids[name], sure) for name, sure in named.items() if name in ids][:most]
        for column, (word, sure) in enumerate(known):
            words[row, column], scores[row, column] = word, sure
    return ConceptTable(words, scores)


def corrupt(
    texts: TextBatch, shuffle: float, drop: float
) -> tuple[Int[Tensor, "text word"], Bool[Tensor, "text word"]]:
    """Sentences without <start>: words change places with near ones, some are lost; <end> stays behind them.

    The new order is that of place + U(0, `shuffle` + 1), so that no word goes further than `shuffle` places.
    """
    place = torch.arange(texts.tokens.shape[1], device=texts.tokens.device, dtype=torch.float)
    keys = place + torch.rand(texts.tokens.shape, device=place.device) * (shuffle + 1)
    lost = torch.rand(texts.tokens.shape, device=place.device) < drop
    end = texts.tokens == END
    keys = keys.masked_fill(lost & ~end, torch.inf).masked_fill(end, 2 * len(place) + shuffle)
    keys = keys.masked_fill(~texts.mask, torch.inf)
    keys[:, 0] = torch.inf
    return in_order(texts.tokens, keys)


def keywords(
    texts: TextBatch, known: Bool[Tensor, " word"]
) -> tuple[Int[Tensor, "text word"], Bool[Tensor, "text word"]]:
    """The words of each sentence that are concepts, in any order."""
    keys = torch.rand(texts.tokens.shape, device=texts.tokens.device)
    return in_order(texts.tokens, keys.masked_fill(~(known[texts.tokens] & texts.mask), torch.inf))


def in_order(
    words: Int[Tensor, "text word"], keys: Float[Tensor, "text word"]
) -> tuple[Int[Tensor, "text kept"], Bool[Tensor, "text kept"]]:
    """The words by their keys, without those whose key is infinite; at least one column is left."""
    kept = keys.isfinite()
    longest = max(int(kept.sum(dim=1).max()), 1) if len(words) else 1
    order = keys.argsort(dim=1, stable=True)[:, :longest]
    mask = kept.gather(1, order)
    return words.gather(1, order).masked_fill(~mask, 0), mask
