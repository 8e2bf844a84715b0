"""Tiles change nothing: not the table, not a gradient, not the order; and they keep to the budget."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from saccade.batch import ImageCode, TextCode
from saccade.language import Vocabulary
from saccade.models import Matcher, entry
from saccade.ops.all_pairs import ALL_PAIRS, PairsProblem, all_pairs


class Bilinear(nn.Module):
    """A score whose every pair holds regions × words numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
        self.seen: list[tuple[int, int, int]] = []

    def forward(self, images: ImageCode, texts: TextCode) -> Tensor:
        self.seen.append((len(images), len(texts), texts.words.shape[1]))
        assert texts.links is not None
        turned = torch.einsum("ird,de,twe->itrw", images.regions, self.weight, texts.words).tanh()
        linked = torch.einsum("itrw,twv->itrv", turned, texts.links.to(turned))
        return (linked * texts.mask[None, :, None]).sum(dim=(2, 3))


def codes(images: int, texts: int) -> tuple[ImageCode, TextCode]:
    dice = torch.Generator().manual_seed(1)
    regions = torch.randn(images, 4, 5, generator=dice, dtype=torch.float64).requires_grad_()
    words = torch.randn(texts, 9, 5, generator=dice, dtype=torch.float64)
    lengths = torch.randint(1, 10, (texts,), generator=dice)
    mask = torch.arange(9) < lengths[:, None]
    links = mask[:, :, None] & mask[:, None, :]
    words = (words * mask[:, :, None]).requires_grad_()
    return ImageCode(regions, torch.ones(images, 4, dtype=torch.bool)), TextCode(words, mask, None, links)


@pytest.mark.parametrize("budget", [1, 2000, 10_000, 1 << 30])
def test_tiles_change_nothing(budget: int) -> None:
    images, texts = codes(6, 11)
    whole, tiled = Bilinear(), Bilinear()
    expected, found = (
        whole(images, texts),
        all_pairs(tiled, images, texts, budget),
    )
    torch.testing.assert_close(found, expected)
    pull = torch.randn(6, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    wanted = torch.autograd.grad(expected, [images.regions, texts.words, whole.weight], pull)
    given = torch.autograd.grad(found, [images.regions, texts.words, tiled.weight], pull)
    for one, other in zip(given, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_a_tile_holds_what_the_budget_allows() -> None:
    images, texts = codes(20, 30)
    score = Bilinear()
    with torch.no_grad():
        all_pairs(score, images, texts, 4000)
    assert len(score.seen) > 10
    assert all(i * t * 4 * w * 8 <= 4000 for i, t, w in score.seen)
    assert len({w for _, _, w in score.seen}) > 3  # short sentences are cut short


def test_sentences_stay_together_as_far_as_they_are_alike() -> None:
    images, texts = codes(20, 30)
    score = Bilinear()
    with torch.no_grad():
        expected = score(images, texts)
        score.seen.clear()
        found = ALL_PAIRS(PairsProblem(score, images, texts, 40_000, score, together=4))
    torch.testing.assert_close(found, expected)
    assert any(t >= 4 for _, t, _ in score.seen)
    assert all(t < 4 or t % 4 == 0 for _, t, _ in score.seen)
    assert all(i * t * 4 * w * 8 <= 40_000 for i, t, w in score.seen)


class Memory(TorchDispatchMode):
    """The bytes of all tensors that were made within the block and are still there; and the most there ever were."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.most, self.known = 0, 0, set[int]()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor) and tensor.untyped_storage()._cdata not in self.known:
                storage = tensor.untyped_storage()
                self.known.add(storage._cdata)
                self.now += storage.nbytes()
                weakref.finalize(storage, self._gone, storage._cdata, storage.nbytes())
        self.most = max(self.most, self.now)
        return made

    def _gone(self, which: int, size: int) -> None:
        self.known.discard(which)
        self.now -= size


def wide_codes(images: int, texts: int, dim: int = 64) -> tuple[ImageCode, TextCode]:
    dice = torch.Generator().manual_seed(1)
    regions = torch.randn(images, 12, dim, generator=dice).requires_grad_()
    words = torch.randn(texts, 10, dim, generator=dice).requires_grad_()
    boxes = torch.rand(images, 12, 4, generator=dice)
    mask = torch.arange(10) < torch.randint(4, 11, (texts, 1), generator=dice)
    return ImageCode(regions, torch.ones(images, 12, dtype=torch.bool), boxes=boxes), TextCode(words, mask)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("gsmn", {"text_graph": "dense", "blocks": 8}), ("imram", {"queries": "words"}), ("camp", {})],
)
def test_training_keeps_to_the_budget(name: str, settings: dict[str, Any], vocabulary: Vocabulary) -> None:
    """The tensors of a tile, and what every item has of its own: mapped vectors, graphs, gradients."""
    kind = entry(name).model
    model = kind(kind.Config(region_dim=8, word_dim=8, dim=64, budget_mb=1, **settings), vocabulary)
    assert isinstance(model, Matcher)
    codes = wide_codes(30, 30)
    with Memory() as memory:
        model.similarity(*codes).sum().backward()
    vectors = (12 + 10) * 64 * 4  # bytes, of a picture and a sentence
    assert memory.most < (2 << 20) + 30 * 24 * vectors  # the whole table would hold 30 MB
