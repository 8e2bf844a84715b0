"""Pictures and captions made of random numbers: of the sizes of the papers, and with something to find in them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from saccade.batch import ImageCode, TextCode
from saccade.ops import AttentionForm, Context, Queries, attended_similarity

FORMS = {  # SCAN's settings for Flickr30k
    "text→image": AttentionForm("clipped_l2", 9.0, pool="logsumexp", pool_sharpness=6.0),
    "image→text": AttentionForm("clipped_l2", 4.0, pool="logsumexp", pool_sharpness=5.0),
}
SHORTEST, LONGEST = 8, 18  # words of a caption
SIGNAL = 3.2  # of a word, from a region of its own picture, over √dim: found among a thousand pictures, not always


@dataclass(frozen=True)
class Problem:
    """Unit vectors. Words of caption t were drawn near regions of picture `owner[t]`."""

    images: ImageCode
    texts: TextCode
    lengths: list[int]
    owner: Int[Tensor, " text"]

    @property
    def shape(self) -> str:
        images, regions, dim = self.images.regions.shape
        return f"{images:,} × {len(self.lengths):,}, {regions} regions, {dim:,}-d"

    def to(self, dtype: torch.dtype) -> Problem:
        return replace(self, images=self.images.to(dtype=dtype), texts=self.texts.to(dtype=dtype))

    def some(self, images: int, texts: int) -> Problem:
        """A part of it, spread over the whole: so many pictures and captions."""
        rows, columns = spread(len(self.images), images), spread(len(self.lengths), texts)
        lengths = [self.lengths[column] for column in columns]
        return Problem(self.images.select(rows), self.texts.select(columns), lengths, self.owner[columns])

    def packed(self) -> tuple[Float[Tensor, "region dim"], Float[Tensor, "word dim"]]:
        """All regions and all words, no padding: the matrix product that none can avoid."""
        return self.images.regions[self.images.mask], self.texts.words[self.texts.mask]


def problem(device: str, images: int, texts: int, regions: int = 36, dim: int = 1024) -> Problem:
    """Regions of a picture have something in common, and so have the words of a caption."""
    draw = torch.Generator(device).manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, device=device)

    lengths = SHORTEST + 7 * torch.arange(texts) % (LONGEST + 1 - SHORTEST)  # any few have about the same mean
    mask: Bool[Tensor, "text word"] = torch.arange(LONGEST) < lengths[:, None]
    pictures = F.normalize(noise(images, regions, dim).add_(noise(images, 1, dim), alpha=0.8), dim=-1)
    owner = torch.arange(texts, device=device) * images // texts
    near = torch.randint(regions, (texts, LONGEST), generator=draw, device=device)
    sentences = F.normalize(noise(texts, LONGEST, dim).add_(noise(texts, 1, dim), alpha=0.8), dim=-1)
    for start in range(0, texts, 1000):  # a piece at a time: the regions looked up are as large as the words
        some = slice(start, start + 1000)
        sentences[some] += SIGNAL / dim**0.5 * pictures[owner[some, None], near[some]]
    words = F.normalize(sentences, dim=-1).mul_(mask[..., None].to(device))
    boxes = torch.rand(images, regions, 4, generator=draw, device=device).mul_(0.5)
    boxes[..., 2:] += boxes[..., :2]
    seen = ImageCode(pictures, torch.ones(images, regions, dtype=torch.bool, device=device), boxes=boxes)
    return Problem(seen, TextCode(words, mask.to(device)), lengths.tolist(), owner)


def part_of(table: Float[Tensor, "image text"], part: Problem) -> Float[Tensor, "some few"]:
    """The scores in a whole table of what `Problem.some` took."""
    rows, columns = spread(len(table), len(part.images)), spread(table.shape[1], len(part.lengths))
    return table[rows][:, columns]


def largest_difference(found: Tensor, known: Tensor) -> float:
    return float((found.double() - known.double()).abs().max())


def scan(given: Problem, direction: str, budget: int) -> Float[Tensor, "image text"]:
    """Ours: every picture with every caption."""
    table = attended_similarity(*roles(given, direction), FORMS[direction], budget)
    return table.T if direction == "text→image" else table


def roles(given: Problem, direction: str) -> tuple[Queries, Context]:
    """Words attend to regions (text→image), or regions to words."""
    regions, words = (given.images.regions, given.images.mask), (given.texts.words, given.texts.mask)
    return (Queries(*words), Context(*regions)) if direction == "text→image" else (Queries(*regions), Context(*words))


def spread(count: int, wanted: int) -> list[int]:
    """Places all over a list: what `Problem.some` takes."""
    wanted = min(count, wanted)
    return [place * count // wanted for place in range(wanted)]
