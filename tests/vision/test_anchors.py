"""Anchors: where they lie and how large they are, and changes that undo each other."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.vision.boxes import area
from saccade.vision.detectors.rpn import anchor_boxes, anchor_sides, decode, encode


def test_every_cell_has_one_of_each_scale_and_ratio_around_its_middle() -> None:
    anchors = anchor_boxes(2, 3, anchor_sides((0.2, 0.4), (0.5, 1.0, 2.0))).view(2, 3, 2, 3, 4)
    middle = (anchors[..., :2] + anchors[..., 2:]) / 2
    torch.testing.assert_close(middle[1, 2], torch.tensor([5 / 6, 3 / 4]).expand(2, 3, 2))
    torch.testing.assert_close(area(anchors), torch.tensor([0.04, 0.16])[:, None].expand(2, 3, 2, 3))
    width, height = (anchors[..., 2:] - anchors[..., :2]).unbind(dim=-1)
    torch.testing.assert_close((width / height)[0, 0, 1], torch.tensor([0.5, 1.0, 2.0]))


corner = st.floats(0, 0.625, width=32)
side = st.floats(0.0078125, 0.375, width=32)
box = st.builds(lambda x, y, w, h: (x, y, x + w, y + h), corner, corner, side, side)


@settings(deadline=None)
@given(st.lists(st.tuples(box, box), min_size=1, max_size=5))
def test_decoding_undoes_encoding(pairs: list[tuple[tuple[float, ...], tuple[float, ...]]]) -> None:
    boxes, anchors = (torch.tensor(part) for part in zip(*pairs, strict=True))
    torch.testing.assert_close(decode(encode(boxes, anchors), anchors), boxes, atol=1e-5, rtol=1e-4)


def test_no_change_is_the_anchor_and_a_wild_one_stays_finite() -> None:
    anchors = torch.tensor([[0.1, 0.2, 0.5, 0.9]])
    torch.testing.assert_close(decode(torch.zeros(1, 4), anchors), anchors)
    assert decode(torch.full((1, 4), 1e4), anchors).isfinite().all()
    assert encode(torch.tensor([[0.3, 0.3, 0.3, 0.3]]), anchors).isfinite().all()
