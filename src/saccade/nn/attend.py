"""Attend: queries look at a context with a score and a normaliser; what they find is compared and pooled."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor, nn

from saccade.batch import Alignment, ImageCode, TextCode
from saccade.ops import DEFAULT_BUDGET, AttentionForm, attended_similarity, attention, never_waits


class Attend(nn.Module):
    """Words ask regions (`queries="words"`) or regions ask words; see `ops/pairwise.py` for the equations."""

    def __init__(self, queries: str, form: AttentionForm, budget: int = DEFAULT_BUDGET) -> None:
        super().__init__()
        self.words_ask = queries == "words"
        self.form = form
        self.budget = budget

    def similarity(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        """Every picture with every sentence, tiled to the memory budget."""
        regions, words = (images.regions, images.mask), (texts.words, texts.mask)
        if self.words_ask:
            return attended_similarity(*words, *regions, self.form, self.budget).T
        return attended_similarity(*regions, *words, self.form, self.budget)

    def never_waits(self, regions: Bool[Tensor, "image region"], words: Bool[Tensor, "text word"]) -> bool:
        """Whether `similarity` of codes with such masks, and its gradient, can be recorded."""
        return never_waits(*((words, regions) if self.words_ask else (regions, words)), self.form)

    def align(self, images: ImageCode, texts: TextCode) -> Alignment:
        """Picture p with sentence p, for every p: who looked at what."""
        regions, words = (images.regions, images.mask), (texts.words, texts.mask)
        if self.words_ask:
            weights, match, score = attention(*words, *regions, self.form)
            return Alignment(weights.transpose(1, 2), score, texts.mask, images.mask, word_score=match)
        weights, match, score = attention(*regions, *words, self.form)
        return Alignment(weights, score, texts.mask, images.mask, region_score=match)

    def extra_repr(self) -> str:
        return f"{'words ask regions' if self.words_ask else 'regions ask words'}, {self.form}"
