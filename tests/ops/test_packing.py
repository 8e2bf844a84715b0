"""Packing: every real vector has exactly one place, items stay whole, and little of a bin is empty."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.ops.packing import NOBODY, gather, gram, pack


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=40), st.sampled_from([16, 32]), st.sampled_from([1, 8]))
def test_every_real_vector_has_one_place_and_items_stay_whole(lengths: list[int], size: int, align: int) -> None:
    mask = torch.arange(12) < torch.tensor(lengths)[:, None]
    mask = mask[:, torch.randperm(12, generator=torch.Generator().manual_seed(len(lengths)))]  # holes
    bins = pack(mask, size, align=align)
    taken = bins.segment != NOBODY
    assert bins.source[taken].sort().values.tolist() == mask.flatten().nonzero().flatten().tolist()
    owner = bins.item.gather(1, bins.segment.clamp(min=0).long())
    assert (bins.source // 12 == owner)[taken].all()
    assert sorted(bins.item[bins.item != NOBODY].tolist()) == [i for i, n in enumerate(lengths) if n]
    assert bins.empty == [i for i, n in enumerate(lengths) if not n]
    assert bins.fill.tolist() == taken.sum(dim=1).tolist()
    for bin_, (start, fill) in enumerate(zip(bins.starts, bins.fill.tolist(), strict=False)):
        assert start % align == 0
        assert bins.row_source[start : start + fill].tolist() == bins.source[bin_, :fill].tolist()


def test_where_items_go_may_depend_on_shapes_alone() -> None:
    """Then every item keeps the places of its padding, which are nobody's, and masks of one shape share a plan."""
    masks = [torch.rand(9, 7, generator=torch.Generator().manual_seed(seed)) < 0.6 for seed in (0, 1)]
    masks[1][4] = False
    one, other = (pack(mask, 16, align=8, static=True) for mask in masks)
    assert one.starts == other.starts
    assert torch.equal(one.item, other.item)
    assert one.empty is None
    for mask, bins in zip(masks, (one, other), strict=True):
        taken = bins.segment != NOBODY
        assert bins.source[taken].sort().values.tolist() == mask.flatten().nonzero().flatten().tolist()
        assert mask.flatten()[bins.row_source].all()  # nobody's places, too, hold somebody's vectors
        assert (bins.source // 7 == bins.item.gather(1, bins.segment.clamp(min=0).long()))[taken].all()
        assert bins.lengths.tolist() == mask.sum(dim=1).tolist()


def test_bins_of_captions_are_nearly_full() -> None:
    lengths = torch.randint(8, 19, (3000,), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(18) < lengths[:, None]
    for size in (64, 128):
        bins = pack(mask, size)
        assert lengths.sum() / (len(bins) * size) > 0.97
        assert bins.rows == lengths.sum()


def test_packed_vectors_and_products_are_those_of_the_items() -> None:
    vectors = torch.randn(5, 6, 4, dtype=torch.float64)
    mask = torch.arange(6) < torch.tensor([6, 1, 3, 5, 2])[:, None]
    bins = pack(mask, 16, align=8)
    rows = gather(vectors.masked_fill(~mask[:, :, None], torch.nan), bins, torch.float64)
    assert rows.isfinite().all()
    assert len(rows) == bins.rows + 16
    products = gram(vectors, bins, torch.float64)
    own = vectors.flatten(0, 1)[bins.source]
    same = (bins.segment[:, :, None] == bins.segment[:, None]) & (bins.segment[:, None] >= 0)
    torch.testing.assert_close(products, own @ own.transpose(1, 2) * same)


def test_an_item_larger_than_a_bin_is_refused() -> None:
    with pytest.raises(ValueError, match="17 vectors"):
        pack(torch.ones(2, 17, dtype=torch.bool), 16)
