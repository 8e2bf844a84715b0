"""Cross-encoders: a picture and a text are read together, so that every pair is a forward pass of its own.

`pair_scores` scores picture p with text p. All pairs are scored in blocks, which small sets allow; of large ones a
first stage chooses the pairs. Learning to rank takes a few pairs of each item rather than the whole table.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from saccade.batch import Alignment, ImageCode, TextBatch, TextCode
from saccade.models.base.matcher import Matcher
from saccade.nn.negatives import hard_texts, other_items
from saccade.ops.all_pairs import all_pairs, peak_bytes

MEASURED, BLOCKS = 8, 16  # pairs whose memory is measured, and blocks until it is again: later texts are shorter
Pairs = tuple[Int[Tensor, " pair"], Int[Tensor, " pair"]]  # places of pictures and of texts

C = TypeVar("C", ImageCode, TextCode)


def at_each(codes: C, index: Int[Tensor, " pair"]) -> C:
    """Codes by their places, without asking a GPU."""
    return codes.map(lambda value: value[index])


class CrossEncoder(Matcher):
    """A matcher whose scores come from both sides at once."""

    @abstractmethod
    def pair_scores(self, images: ImageCode, texts: TextCode) -> Float[Tensor, " pair"]:
        """Picture p with text p."""

    @abstractmethod
    def pair_attention(
        self, images: ImageCode, texts: TextCode
    ) -> tuple[Float[Tensor, "pair word region"], Float[Tensor, " pair"]]:
        """Where each word of text p looks in picture p, and the pair's score."""

    def pair(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        """Some pictures with some texts."""
        image, text = (torch.arange(len(side), device=images.mask.device) for side in (images, texts))
        found = self._read(images, texts, image.repeat_interleave(len(text)), text.repeat(len(image)))
        return found.view(len(image), len(text))

    @torch.no_grad()
    def score_pairs(
        self, images: ImageCode, texts: TextCode, image: Int[Tensor, " pair"], text: Int[Tensor, " pair"]
    ) -> Float[Tensor, " pair"]:
        """Chosen pairs, in blocks of texts of like length that fit the budget of memory."""
        lengths = texts.reach[text]
        order = lengths.argsort(descending=True)
        scores, start, longest = list[Tensor](), 0, lengths[order].tolist()
        while start < len(order):
            cut, some = texts.trimmed(longest[start]), order[start : start + MEASURED]
            held = peak_bytes(partial(self._read, images, cut, image[some], text[some]))
            block = max(1, self.budget * len(some) // max(held, 1))
            part = order[start : start + block * BLOCKS]
            blocks = (part[first : first + block] for first in range(0, len(part), block))
            scores += [self._read(images, cut, image[own], text[own]) for own in blocks]
            start += len(part)
        found = torch.cat(scores) if scores else images.regions.new_zeros(0)
        return torch.empty_like(found).index_copy(0, order, found)

    def _read(self, images: ImageCode, texts: TextCode, image: Tensor, text: Tensor) -> Tensor:
        return self.pair_scores(at_each(images, image), at_each(texts, text))

    def similarity(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        if torch.is_grad_enabled():  # whole: a tile that is computed again would have another dropout
            return self.pair(images, texts)
        return all_pairs(self.pair, images, texts, self.budget)

    def align(self, images: ImageCode, texts: TextCode) -> Alignment:
        weights, score = self.pair_attention(images, texts)
        return Alignment(weights * texts.mask[..., None], score, texts.mask, images.mask)

    def choice_loss(
        self,
        images: ImageCode,
        codes: TextCode,
        texts: TextBatch,
        owner: Int[Tensor, " text"],
        same: Bool[Tensor, "image text"],
        harder: Sequence[Pairs] = (),
    ) -> Float[Tensor, ""]:
        """Cross-entropy of choosing the true pair among a few (`choices`) and `harder` ones, averaged over texts.

        `same` is True where a picture and a text belong together, which are then no negatives.
        """
        chosen = [*self.choices(texts, owner, same), *harder]
        image, sentence = (torch.cat(parts) for parts in zip(*chosen, strict=True))
        logits = self._read(images, codes, image, sentence).view(len(chosen), -1)
        wrong = same[image, sentence].view(len(chosen), -1)
        wrong = torch.cat([torch.zeros_like(wrong[:1]), wrong[1:]])  # where there was nothing else to choose
        logits = logits.masked_fill(wrong, -torch.inf)
        return functional.cross_entropy(logits.T, torch.zeros_like(owner))

    def choices(self, texts: TextBatch, owner: Int[Tensor, " text"], same: Bool[Tensor, "image text"]) -> list[Pairs]:
        """Among which pairs each text chooses: the true one, the picture with a text at random, the text with a picture
        at random, and the picture with the text most like its own."""
        text = torch.arange(len(texts), device=owner.device)
        others = ~same[owner]  # [text text]: texts that do not describe this text's picture
        return [
            (owner, text),
            (owner, other_items(others)),
            (other_items(~same.T), text),
            (owner, hard_texts(texts, others, len(self.vocabulary))),
        ]

    def locate(self, images: ImageCode, texts: TextCode) -> Alignment:
        """As `align`, of every word all weights together one."""
        found = self.align(images, texts)
        return replace(found, weights=found.weights / found.weights.sum(dim=2, keepdim=True).clamp(min=1e-12))
