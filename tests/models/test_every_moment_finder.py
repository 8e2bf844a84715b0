"""One sweep takes every moment finder of the registry through what all moment finders must do."""

from __future__ import annotations

import copy
import pickle
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from saccade.batch import FrameBatch
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.metrics.moments import temporal_iou
from saccade.models import Drn, MomentFinder, entries, load_model
from saccade.models.drn import span_overlap

SMALL = {"region_dim": 12, "word_dim": 7, "lstm_dim": 5, "dim": 6, "pyramid_dim": 8, "location_dim": 3, "segments": 8}
TEXTS = ("a red cube", "the small blue ball is left of a cone", "green", "a cube on the large ball")
SPANS = torch.tensor([[0.1, 0.6], [0.0, 1.0], [0.55, 0.8], [0.3, 0.45]])
OFFICIAL = {
    "location": "first",
    "match_divisor": "positives_and_texts",
    "iou_least": 0.0,
    "detach_iou": False,
    "clamp": "first",
    "fallback": "whole",
}
SWITCHES: dict[str, list[dict[str, Any]]] = {
    "drn": [
        {},
        OFFICIAL,
        {"location": "none", "pool": "mean", "lstm_layers": 2},
        {"levels": 1, "positives": "boundary", "quality": "none"},
        {"levels": 2, "quality": "centerness", "tower_layers": 2, "score": "quality"},
    ]
}
CASES = [
    pytest.param(entry.name, switches, id=f"{entry.name}-{'-'.join(map(str, switches.values())) or 'paper'}")
    for entry in entries()
    if issubclass(entry.model, MomentFinder)
    for switches in SWITCHES.get(entry.name, [{}])
]
sweep = pytest.mark.parametrize(("name", "switches"), CASES)


def build(name: str, switches: dict[str, Any], vocabulary: Vocabulary) -> MomentFinder:
    torch.manual_seed(1)
    model = next(e.model for e in entries() if e.name == name)
    sizes = {k: v for k, v in SMALL.items() if k in {f.name for f in fields(model.Config)}}
    near = {"least_distance": (-1.0, 1.0, 2.0), "most_distance": (3.0, 4.0)} if name == "drn" else {}
    built = model(model.Config(**{**sizes, **near, **switches}), vocabulary, "world")
    assert isinstance(built, MomentFinder)
    return built


def drn(vocabulary: Vocabulary, **switches: Any) -> Drn:
    built = build("drn", switches, vocabulary).double().eval()
    assert isinstance(built, Drn)
    return built


@pytest.fixture
def videos() -> FrameBatch:
    """Of 9, 3, 20 and 1 frames, 10, 4, 25 and 3 seconds long; the third has a gap."""
    draw = np.random.default_rng(0)
    counts, seconds = (9, 3, 20, 1), (10.0, 4.0, 25.0, 3.0)
    edges = [np.linspace(0, length, count + 1) for count, length in zip(counts, seconds, strict=True)]
    times = [np.stack([own[:-1], own[1:]], axis=1) for own in edges]
    times[2][:10] *= 0.5
    return FrameBatch.of_times([draw.normal(size=(n, 12)) for n in counts], times, seconds)


def same(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@sweep
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_each_stage_moves_its_own_weights(
    name: str, switches: dict[str, Any], stage: Literal[1, 2, 3], vocabulary: Vocabulary, videos: FrameBatch
) -> None:
    """The first all but the head that rates, the second that head alone (all, if there is none), the third all."""
    model = build(name, switches, vocabulary).train()
    losses = model.losses(videos, model.read(TEXTS), SPANS, stage)
    total = torch.stack([*losses.values()]).sum()
    assert total.isfinite()
    total.backward()  # type: ignore[no-untyped-call]
    moved = {k for k, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    rating = {k for k, _ in model.named_parameters() if k.startswith(("heads.mix.", "heads.quality."))}
    every = {k for k, _ in model.named_parameters()}
    blind = {k for k in every if k == "weigh.bias"}  # a softmax is blind to it
    before = {k for k in every if k.startswith("heads.") and k.endswith("0.bias")}  # and batch normalisation to these
    level = {k for k in every if k.startswith("heads.scales.")}  # a level may have no positive cell
    wanted = {1: every - rating, 2: rating or every, 3: every}[stage]
    assert not wanted - moved - blind - before - level
    assert not moved - wanted


@sweep
def test_moments_lie_in_the_video_the_best_first(
    name: str, switches: dict[str, Any], vocabulary: Vocabulary, videos: FrameBatch
) -> None:
    model = build(name, switches, vocabulary).double().eval()
    videos = videos.to(dtype=torch.float64)
    found, shares = model(videos, model.read(TEXTS)), model.propose(videos, model.read(TEXTS))
    assert found.mask[:, 0].all()
    assert (found.scores[:, 1:] <= found.scores[:, :-1]).all()
    assert ((shares.spans >= 0) & (shares.spans <= 1) & (shares.spans[..., :1] <= shares.spans[..., 1:])).all()
    assert videos.seconds is not None
    same(found.spans, shares.spans * videos.seconds[:, None, None])


@sweep
def test_padding_changes_nothing(
    name: str, switches: dict[str, Any], vocabulary: Vocabulary, videos: FrameBatch
) -> None:
    """Neither padding frames or words, nor the other texts of a batch."""
    model = build(name, switches, vocabulary).double().eval()
    videos, texts = videos.to(dtype=torch.float64), model.read(TEXTS)
    plain = model(videos, texts)
    more = model(videos.resize(region=27), texts.pad(5))
    same(more.spans, plain.spans)
    same(more.scores, plain.scores)
    for i in range(4):
        same(model(videos.select([i]), texts.select([i]).trimmed()).spans[0], plain.spans[i])


@sweep
def test_it_is_saved_loaded_and_copied(
    name: str, switches: dict[str, Any], vocabulary: Vocabulary, videos: FrameBatch, tmp_path: Path
) -> None:
    model = build(name, switches, vocabulary).eval()
    model.losses(videos, model.read(TEXTS), SPANS, 1)  # in the first stage moments are scored otherwise
    model.save_pretrained(tmp_path / "model")
    wanted = model(videos, model.read(TEXTS))
    for other in (
        load_model(tmp_path / "model", MomentFinder),
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
    ):
        torch.testing.assert_close(other(videos, other.read(TEXTS)).scores, wanted.scores)


def test_segments_hold_the_frames_that_lie_in_them(vocabulary: Vocabulary) -> None:
    """Several by their maximum; a frame longer than a segment fills all that it covers; a gap takes the nearest."""
    times = [np.array([[0.0, 0.5], [0.5, 1.0], [1.0, 2.0], [6.0, 8.0]])]
    values = np.zeros((4, 12), np.float32)
    values[:, 0] = [1, 3, 2, 5]
    values[:, 1] = [4, -1, 0, -2]
    frames = FrameBatch.of_times([values], times, [8.0]).to(dtype=torch.float64)
    found, where = drn(vocabulary).segments(frames)
    assert found[0, :, 0].tolist() == [3, 2, 2, 2, 5, 5, 5, 5]
    assert found[0, :, 1].tolist() == [4, 0, 0, 0, -2, -2, -2, -2]
    assert where[0, 3].tolist() == [0.375, 0.5]
    assert drn(vocabulary, pool="mean").segments(frames)[0][0, 0, :2].tolist() == [2, 1.5]


def test_positive_cells_lie_inside_and_in_their_levels_range(vocabulary: Vocabulary, videos: FrameBatch) -> None:
    """A moment from 1 to 5 of 8 segments, cells of strides 1, 2 and 4."""
    model = drn(vocabulary)
    cells, _ = model.predict_cells(videos.to(dtype=torch.float64), model.read(TEXTS))
    assert cells.places.tolist() == [*(n + 0.5 for n in range(8)), 1, 3, 5, 7, 2, 6]
    span = torch.tensor([[1 / 8, 5 / 8]]).double()
    positive, distances = model.targets(span, cells)
    assert cells.places[positive[0] & (cells.level == 0)].tolist() == [2.5, 3.5]  # the larger distance is at most 3
    assert cells.places[positive[0] & (cells.level == 1)].tolist() == [3]
    assert cells.places[positive[0] & (cells.level == 2)].tolist() == [2]
    assert distances[0, 2].tolist() == [1.5, 2.5]
    wide = replace(model.config, least_distance=(-1.0,), most_distance=(), levels=1, positives="boundary")
    sparse = Drn(wide, vocabulary).double()
    positive, _ = sparse.targets(span, sparse.predict_cells(videos.to(dtype=torch.float64), model.read(TEXTS))[0])
    assert cells.places[:8][positive[0]].tolist() == [1.5, 4.5]


def test_a_cell_that_is_right_costs_nothing(vocabulary: Vocabulary, videos: FrameBatch) -> None:
    model = drn(vocabulary)
    cells, _ = model.predict_cells(videos.to(dtype=torch.float64), model.read(TEXTS))
    positive, wanted = model.targets(SPANS.double(), cells)
    right = cells._replace(
        distances=wanted.clamp(min=1e-3),
        match=torch.where(positive, 40.0, -40.0).double(),
    )
    assert float(model.location_loss(right, positive, wanted)) < 1e-6
    assert float(model.match_loss(right, positive)) < 1e-12
    overlap = span_overlap(model.moments(right).clamp(0, 1), SPANS.double()[:, None])
    rated = right._replace(quality=overlap.logit(eps=1e-9))
    assert float(model.quality_loss(rated, SPANS.double(), positive, wanted)) < 1e-12
    assert float(model.quality_loss(rated._replace(quality=-overlap), SPANS.double(), positive, wanted)) > 0.1


def test_overlap_is_that_of_the_metric() -> None:
    spans = torch.rand(40, 2, 2, generator=torch.Generator().manual_seed(2)).double().sort(dim=2).values
    found = span_overlap(spans[:, 0], spans[:, 1])
    torch.testing.assert_close(found.numpy(), temporal_iou(*spans.numpy().transpose(1, 0, 2)), rtol=0, atol=1e-4)


@torch.no_grad()
def test_in_the_first_stage_moments_are_scored_without_the_head_that_rates(
    vocabulary: Vocabulary, videos: FrameBatch
) -> None:
    model = drn(vocabulary, threshold=0.0)
    videos, texts = videos.to(dtype=torch.float64), model.read(TEXTS)
    both = model(videos, texts).scores.sum()
    model.losses(videos, texts, SPANS.double(), 1)
    assert float(model(videos, texts).scores.sum()) > float(both)


def test_only_so_many_cells_of_a_level_propose(vocabulary: Vocabulary, videos: FrameBatch) -> None:
    """And if none does: the best, or the whole video."""
    model = drn(vocabulary, threshold=0.0, per_level=2)
    videos, texts = videos.to(dtype=torch.float64), model.read(TEXTS)
    assert model(videos, texts).mask.sum(dim=1).tolist() == [6, 6, 6, 6]
    assert drn(vocabulary, threshold=1.0)(videos, texts).mask.sum(dim=1).tolist() == [1, 1, 1, 1]
    whole = drn(vocabulary, threshold=1.0, fallback="whole")(videos, texts)
    assert whole.spans[:, 0].tolist() == [[0, 10], [0, 4], [0, 25], [0, 3]]
    assert whole.scores[:, 0].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("switches", "said"),
    [
        ({"segments": 10}, "multiple of 4"),
        ({"levels": 4}, "fewer ranges"),
        ({"score": "quality", "quality": "none"}, r"model\.quality is none"),
        ({"levels": 0}, "levels must be at least 1"),
    ],
)
def test_settings_that_fit_nothing_are_refused(switches: dict[str, Any], said: str, vocabulary: Vocabulary) -> None:
    with pytest.raises(SaccadeError, match=said):
        build("drn", switches, vocabulary)
