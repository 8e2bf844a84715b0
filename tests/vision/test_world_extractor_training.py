"""Teaching an extractor: mirrored pictures keep their truth, and a few dozen steps find and name most rectangles."""

from __future__ import annotations

from typing import Any

import torch
from saccade.vision.detectors.world_training import augment, extractor_loss, extractor_metrics, jitter

from saccade.vision.backbones.world import REGION_ATTRIBUTES
from saccade.vision.detectors.world import WorldNetwork


def test_mirroring_moves_boxes_and_turns_what_faces(rectangles: Any) -> None:
    torch.manual_seed(0)
    truth = rectangles.labelled
    facing = REGION_ATTRIBUTES.index("facing")
    truth.things[..., facing] = truth.real.long() - 1 + truth.real * 0  # 0 (left) where real, −1 elsewhere
    pixels, batch = augment(truth, brightness=0.0)
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


def test_jittered_boxes_still_overlap_theirs() -> None:
    torch.manual_seed(0)
    boxes = torch.tensor([[0.2, 0.3, 0.5, 0.6]]).repeat(200, 1)
    moved = jitter(boxes, 0.12)
    assert ((moved - boxes).abs() <= 0.12 * 0.3 + 1e-6).all()
    assert (moved != boxes).all()


def test_a_few_steps_find_and_name_most_rectangles(
    tiny_network: WorldNetwork, rectangles: Any, more_rectangles: Any
) -> None:
    torch.manual_seed(0)
    optimiser = torch.optim.AdamW(tiny_network.parameters(), lr=1e-2)
    losses = []
    for step in range(60):
        batch = rectangles.labelled.select(torch.arange(32) + 32 * (step % 3))
        loss = torch.stack(list(extractor_loss(tiny_network, batch).values())).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert sum(losses[-6:]) < 0.5 * sum(losses[:6])
    figures = extractor_metrics(tiny_network, more_rectangles.labelled)
    assert figures["recall"] > 0.7
    assert figures["colour"] > 0.8
    assert figures["kind"] > 0.8
    assert figures["background"] > 0.9
    assert figures["overlap"] > 0.6
