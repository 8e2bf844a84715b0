"""The loss of the world's detector: mirrored pictures keep their truth."""

from __future__ import annotations

from typing import Any

import torch

from saccade.vision.detectors.world import REGION_ATTRIBUTES, WorldNetwork, augment_scenes


def test_mirroring_moves_boxes_and_turns_what_faces(tiny_network: WorldNetwork, rectangles: Any) -> None:
    torch.manual_seed(0)
    truth = rectangles.labelled
    facing = REGION_ATTRIBUTES.index("facing")
    truth.things[..., facing] = truth.real.long() - 1 + truth.real * 0  # 0 (left) where real, −1 elsewhere
    pixels, batch = augment_scenes(tiny_network, truth, brightness=0.0)
    mirrored = (batch.boxes != truth.boxes).any(dim=2).any(dim=1)
    assert 0 < int(mirrored.sum()) < len(truth)
    assert (batch.things[..., facing][mirrored][batch.real[mirrored]] == 1).all()
    assert (batch.things[..., facing][~mirrored][batch.real[~mirrored]] == 0).all()
    assert (batch.things[..., facing][~batch.real] == -1).all()
    for i in range(0, len(batch), 9):  # the middle of every box still has its thing's colour
        for j in batch.real[i].nonzero()[:, 0].tolist():
            x, y = ((batch.boxes[i, j, :2] + batch.boxes[i, j, 2:]) * 32).long().tolist()
            before_x, before_y = ((truth.boxes[i, j, :2] + truth.boxes[i, j, 2:]) * 32).long().tolist()
            assert batch.pixels[i, y, x].tolist() == truth.pixels[i, before_y, before_x].tolist()
    assert pixels.shape == (len(truth), 3, 64, 64)
    truth.things[..., facing] = -1
