"""DenseCap: where gradients go, which boxes teach, what the losses are, and that its parts fit together."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from saccade.batch import PictureBatch, RegionBatch
from saccade.decoding import DecodingConfig, decode
from saccade.language import Vocabulary
from saccade.models import DenseCap, DenseCapConfig, load_model
from saccade.models.densecap import LocalisationLayer, Pooling, learnable
from saccade.vision.detectors.rpn import RPNOutput, anchor_boxes, anchor_sides

TINY = DenseCapConfig(
    backbone="world", size=32, stride=4, frozen=0, map_dim=8, scales=(0.2, 0.4), ratios=(0.7, 1.4), rpn_dim=8,
    roi_size=3, dim=16, word_dim=8, hidden_dim=12, dropout=0.0, drawn=16, candidates=40, proposals=12,
)  # fmt: skip


@pytest.fixture
def pictures() -> PictureBatch:
    pixels = torch.randint(0, 256, (2, 32, 32, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return PictureBatch(pixels, ("one", "two"))


TRUTH = torch.tensor([[[0.1, 0.1, 0.5, 0.4], [0.5, 0.5, 0.9, 0.95]], [[0.3, 0.2, 0.7, 0.8], [0.0, 0.0, 0.0, 0.0]]])
REAL = torch.tensor([[True, True], [True, False]])
PHRASES = torch.tensor([[[1, 4, 5, 8, 2], [1, 4, 9, 2, 0]], [[1, 6, 10, 2, 0], [0, 0, 0, 0, 0]]])


def densecap(vocabulary: Vocabulary, **changes: Any) -> DenseCap:
    torch.manual_seed(0)
    return DenseCap(replace(TINY, **changes), vocabulary)


def losses(model: DenseCap, pictures: PictureBatch) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    return model.losses(pictures, TRUTH, REAL, PHRASES)


@pytest.mark.parametrize("roi", ["bilinear", "max"])
def test_only_bilinear_sampling_gives_boxes_a_gradient(roi: Pooling) -> None:
    """… and it is the right one: what a small change of each coordinate does, in double precision."""
    draw = torch.Generator().manual_seed(2)
    maps = torch.randn(2, 3, 7, 9, dtype=torch.float64, generator=draw, requires_grad=True)
    corners = [[0.13, 0.22, 0.71, 0.64], [0.31, 0.17, 0.93, 0.88]]
    boxes = torch.tensor(corners, dtype=torch.float64, requires_grad=True)
    layer, image = LocalisationLayer(3, 4, (0.3,), (1.0,), roi, roi_size=4), torch.tensor([1, 0])
    weight = torch.randn(2, 3, 4, 4, dtype=torch.float64, generator=draw)

    def value(at: torch.Tensor) -> torch.Tensor:
        return (layer.inside(maps, at, image) * weight).sum()

    given = torch.autograd.grad(value(boxes), (maps, boxes), allow_unused=True)
    assert (given[0] != 0).any()
    if roi == "max":
        assert given[1] is None
        return
    step = torch.eye(8, dtype=torch.float64).view(8, 2, 4) * 1e-6
    moved = [(value(boxes + small) - value(boxes - small)) / 2e-6 for small in step]
    torch.testing.assert_close(given[1], torch.stack(moved).view(2, 4), rtol=1e-6, atol=1e-7)
    assert (given[1] != 0).all()


@pytest.mark.parametrize(
    ("changes", "reaches"), [({}, True), ({"roi": "max"}, False), ({"box_gradient": False}, False)]
)
def test_a_phrase_teaches_the_proposals_where_to_look(
    vocabulary: Vocabulary, pictures: PictureBatch, changes: dict[str, Any], reaches: bool
) -> None:
    """The captioning loss alone reaches the layer that changes anchors, through the boxes; no other way leads there."""
    model = densecap(vocabulary, **changes)
    loss = losses(model, pictures)["captioning"]
    weights = (model.recognise.first.weight, model.localise.proposals.changes.weight)
    code, change = torch.autograd.grad(loss, weights, allow_unused=True)
    assert (change is not None and bool((change != 0).any())) == reaches
    assert bool((code != 0).any())


def anchors_alone(boxes_wide: float = 0.25) -> RPNOutput:
    anchors = anchor_boxes(8, 8, anchor_sides((boxes_wide,), (1.0,)))
    return RPNOutput(torch.zeros(1, 64), torch.zeros(1, 64, 4), anchors)


def test_which_boxes_are_drawn() -> None:
    """Positive: above 0.7, and the best of a true box whatever it is; negative: below 0.3; all inside the picture."""
    layer = LocalisationLayer(3, 4, (0.25,), (1.0,))
    truth = torch.tensor([[[0.1875, 0.1875, 0.4375, 0.4375], [0.97, 0.97, 1.0, 1.0]]])
    sampled = layer.sample(anchors_alone(), truth, torch.ones(1, 2, dtype=torch.bool), count=40, high=0.7, low=0.3)
    positive = sampled.boxes[sampled.positive]
    assert sampled.owner[sampled.positive].tolist().count(0) == 1
    torch.testing.assert_close(positive[sampled.owner[sampled.positive] == 0][0], truth[0, 0])
    assert (sampled.owner[sampled.positive] == 1).any()  # far below 0.7 and half outside, but nothing is nearer
    negative = sampled.boxes[~sampled.positive]
    assert len(negative) > 10
    assert ((negative > -0.01) & (negative < 1.01)).all()
    assert len(sampled.boxes) <= 40


def test_at_most_half_of_the_boxes_are_positive_and_none_where_nothing_is() -> None:
    layer = LocalisationLayer(3, 4, (0.25,), (1.0,))
    anchors = anchors_alone().anchors
    everywhere = anchors[(anchors > 0).all(dim=1) & (anchors < 1).all(dim=1)][None]
    there = torch.ones(everywhere.shape[:2], dtype=torch.bool)
    sampled = layer.sample(anchors_alone(), everywhere, there, 10, 0.7, 0.3)
    assert sampled.positive.sum() == 5
    sampled = layer.sample(anchors_alone(), TRUTH[1:], torch.zeros(1, 2, dtype=torch.bool), 10, 0.7, 0.3)
    assert len(sampled.boxes) == 10
    assert not sampled.positive.any()


def test_absurd_changes_are_not_learned() -> None:
    boxes = torch.tensor([[0.1, 0.1, 0.11, 0.11], [0.1, 0.1, 0.5, 0.5]])
    wanted = learnable(boxes, torch.tensor([[0.8, 0.8, 0.9, 0.9], [0.2, 0.2, 0.6, 0.6]]))
    assert wanted[0].tolist() == [0, 0, 0, 0]
    torch.testing.assert_close(wanted[1], torch.tensor([0.25, 0.25, 0.0, 0.0]))


def test_the_five_losses_have_the_papers_weights(vocabulary: Vocabulary, pictures: PictureBatch) -> None:
    once, twice = (
        losses(densecap(vocabulary, captioning=1.0 * n, mid_boxes=0.1 * n, end_boxes=0.1 * n), pictures) for n in (1, 2)
    )
    assert list(once) == ["mid_objectness", "mid_boxes", "box_decay", "end_objectness", "end_boxes", "captioning"]
    for name, value in once.items():
        factor = 2 if name in ("captioning", "mid_boxes", "end_boxes") else 1
        torch.testing.assert_close(twice[name], factor * value)
    config = DenseCapConfig()
    assert (config.mid_objectness, config.mid_boxes, config.end_objectness, config.end_boxes) == (0.1,) * 4
    assert config.captioning == 1.0
    assert once["mid_objectness"].item() == pytest.approx(0.1 * 2 * 0.6931, abs=0.01)  # nothing known yet: ln 2, twice
    assert once["box_decay"] == 0  # every box is still its anchor


def test_pictures_without_a_box_teach_what_nothing_looks_like(vocabulary: Vocabulary, pictures: PictureBatch) -> None:
    model = densecap(vocabulary)
    found = model.losses(pictures, TRUTH, REAL & False, PHRASES)
    weights = [p for p in model.parameters() if p.requires_grad]
    given = torch.autograd.grad(torch.stack(list(found.values())).sum(), weights, allow_unused=True)
    assert found["captioning"] == 0
    assert found["end_boxes"] == 0
    assert all(gradient is None or gradient.isfinite().all() for gradient in given)


def test_it_learns_two_pictures_by_heart(vocabulary: Vocabulary, pictures: PictureBatch) -> None:
    model = densecap(vocabulary, frozen=6)
    optimiser = torch.optim.Adam(model.parameters(), 2e-2)
    totals = []
    for _ in range(40):
        total = torch.stack(list(model.losses(pictures, TRUTH, REAL, PHRASES).values())).sum()
        optimiser.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        totals.append(total.item())
    assert totals[-1] < 0.3 * totals[0]
    model.eval()
    found = model.find(pictures)
    words = decode(model.writer, model.regions(found), DecodingConfig(strategy="greedy", max_length=8)).words
    assert {tuple(w for w in row if w) for row in words.tolist()} & {(4, 5, 8, 2), (4, 9, 2), (6, 10, 2)}


def test_found_regions_are_ranked_apart_and_inside(vocabulary: Vocabulary, pictures: PictureBatch) -> None:
    from saccade.vision.boxes import iou

    model = densecap(vocabulary).eval()
    found = model.find(pictures)
    assert isinstance(found, RegionBatch)
    assert found.scores is not None
    for picture in range(2):
        boxes, scores = found.boxes[picture][found.mask[picture]], found.scores[picture][found.mask[picture]]
        assert (scores.diff() <= 0).all()
        assert ((boxes >= 0) & (boxes <= 1)).all()
        assert (iou(boxes, boxes).fill_diagonal_(0) <= model.config.final_overlap).all()
    fewer = model.find(pictures, most=2)
    torch.testing.assert_close(fewer.boxes, found.boxes[:, :2])
    alone = model.find(pictures.select([1]))
    count = int(alone.mask.sum())
    torch.testing.assert_close(alone.boxes[0, :count], found.boxes[1, :count], atol=1e-5, rtol=0)


def test_the_writer_is_a_captioner_of_single_regions(vocabulary: Vocabulary, pictures: PictureBatch) -> None:
    """Greedy and a beam of one agree; what is said of a region does not depend on the others."""
    model = densecap(vocabulary).eval()
    regions = model.regions(model.find(pictures))
    greedy = decode(model.writer, regions, DecodingConfig(strategy="greedy", max_length=6))
    torch.testing.assert_close(
        greedy.words, decode(model.writer, regions, DecodingConfig(num_beams=1, max_length=6)).words
    )
    alone = decode(model.writer, regions.select([1]), DecodingConfig(strategy="greedy", max_length=6))
    assert alone.words[0].tolist() == greedy.words[1, : alone.words.shape[1]].tolist()
    with pytest.raises(ValueError, match="on its own"):
        model.writer.start(model.find(pictures))


def test_a_fresh_run_begins_with_the_trained_backbone_and_folders_keep_all(
    vocabulary: Vocabulary, pictures: PictureBatch, tmp_path: Path
) -> None:
    model = densecap(vocabulary, frozen=2)
    before = model.convolutions.state_dict()["stem.conv.weight"].clone()
    model.begin()
    assert not torch.equal(model.convolutions.state_dict()["stem.conv.weight"], before)
    learns = [p.requires_grad for p in model.convolutions.parameters()]
    assert not learns[0]
    assert learns[-1]
    model.eval().save_pretrained(tmp_path)
    again = (load_model(tmp_path, DenseCap), pickle.loads(pickle.dumps(model)), copy.deepcopy(model))
    for other in again:
        torch.testing.assert_close(other.find(pictures).boxes, model.find(pictures).boxes)
