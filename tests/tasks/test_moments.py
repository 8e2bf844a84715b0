"""Finding moments: what is learned in which stage, and measured; a run that was killed ends as if it had not been."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.batch import FrameBatch, RegionBatch
from saccade.core.errors import SaccadeError
from saccade.data.records import CaptionedImages, Moments, PictureRegions, RegionSource
from saccade.explain.panels.film import FilmStrip, clock
from saccade.metrics.moments import moment_hits
from saccade.models import Drn, DrnConfig, Vse, VseConfig
from saccade.tasks.base import JointlyTrained, StagedTask
from saccade.tasks.moments.evaluate import (
    MomentRecall,
    Recalls,
    find_all,
    lengths,
    recalls_at_random,
    recalls_of,
    truth_of,
)
from saccade.tasks.moments.task import FirstStage, MomentsConfig, MomentsTask, ThirdStage
from saccade.tasks.moments.windows import contrast, frames_inside, sliding_windows, window_scores
from saccade.tasks.pairs import prepare_captioned
from saccade.tasks.prepare import build_model
from saccade.training.config import TrainerConfig
from saccade.training.cuda_graphs import tensors_of
from saccade.training.seeds import BatchSampler
from saccade.training.trainer import Trainer
from saccade.vision.augment import AugmentConfig

COLOURS = ("red", "green", "blue", "white")
SMALL = DrnConfig(
    word_dim=12,
    lstm_dim=8,
    dim=8,
    pyramid_dim=12,
    location_dim=3,
    segments=16,
    least_distance=(-1.0, 3.0, 6.0),
    most_distance=(3.5, 6.0),
)


class Films(RegionSource):
    """Videos of twenty frames, of which some that follow each other show a colour, and one after them another."""

    def __init__(self, count: int, seed: int) -> None:
        self.draw = np.random.default_rng(seed)
        self.colours = [self.draw.permutation(4)[:2] for _ in range(count)]
        self.starts = [int(self.draw.integers(0, 6)) for _ in range(count)]
        self.sizes = [self.draw.integers(4, 7, size=2).tolist() for _ in range(count)]
        self._ids = [str(n) for n in range(count)]

    @property
    def ids(self) -> list[str]:
        return self._ids

    @property
    def dim(self) -> int:
        return 4

    def spans(self, n: int) -> list[tuple[float, float]]:
        """In seconds: two frames a second."""
        first, (one, other) = self.starts[n], self.sizes[n]
        return [(first / 2, (first + one) / 2), ((first + one) / 2, (first + one + other) / 2)]

    def get(self, index: int) -> PictureRegions:
        features = np.zeros((20, 4), np.float32)
        for colour, (start, end) in zip(self.colours[index], self.spans(index), strict=True):
            features[int(2 * start) : int(2 * end), colour] = 1
        edges = np.linspace(0, 1, 21, dtype=np.float32)
        boxes = np.stack([edges[:-1], 0 * edges[1:], edges[1:], 0 * edges[1:] + 1], axis=1)
        return PictureRegions(self.ids[index], features, boxes, seconds=10.0)


def split(count: int, seed: int) -> Moments[CaptionedImages]:
    films = Films(count, seed)
    pairs = [(COLOURS[one], COLOURS[other]) for one, other in films.colours]
    texts = tuple(text for one, other in pairs for text in (f"it is {one}", f"it is {other} after {one}"))
    spans = tuple((span,) for n in range(count) for span in films.spans(n))
    owners = np.repeat(np.arange(count), 2)
    pictures = CaptionedImages("films", f"split{seed}", films, texts, owners, "toys")
    return Moments(pictures, spans, ("first", "second") * count)


def task_of(config: MomentsConfig, model_config: DrnConfig = SMALL, count: int = 60) -> tuple[Drn, MomentsTask]:
    train, dev = split(count, 1), split(20, 2)
    torch.manual_seed(0)
    model = build_model(Drn, model_config, prepare_captioned(train.pictures, config))
    return model, MomentsTask(model, train, dev, config, AugmentConfig())


def test_a_model_learns_to_find_them_and_beats_what_needs_none() -> None:
    model, task = task_of(MomentsConfig(stage_epochs=(5, 1), stage_rates=(1.0, 0.1, 0.01)))
    sampler = task.sampler(lambda count, size: BatchSampler(count, size or 16, 0, True))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    model.train()
    stages = []
    for step in range(7 * sampler.steps_per_epoch):
        optimiser.param_groups[0]["lr"] = 0.01 * task.rate(step)
        stages.append(task.stage(step))
        loss, figures = task.loss(model, task.batch(sampler.indices(step)), step)
        assert {*figures} == {1: {"match", "location"}, 2: {"iou"}, 3: {"match", "location", "iou"}}[stages[-1]]
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    assert stages == sorted(stages)
    assert {*stages} == {1, 2, 3}
    found = task.evaluate(model.eval())
    truth = truth_of(task.dev, lengths(task.dev))
    whole = recalls_of([np.array([[0.0, 1.0]])] * len(truth), truth).figures()
    chance = recalls_at_random(truth).figures()
    assert found["r1_iou0.5"] > 60 > max(whole["r1_iou0.5"], chance["r1_iou0.5"]) + 20
    assert found["r1_iou0.5_temporal"] == found["r1_iou0.5_second"]
    assert found["r1_iou0.5"] == pytest.approx((found["r1_iou0.5_first"] + found["r1_iou0.5_second"]) / 2)


def test_a_matcher_finds_moments_through_windows() -> None:
    """One that knows the colours, with no training for moments; the windows come near to the true spans."""
    data = split(20, 3)
    words = prepare_captioned(data.pictures, MomentsConfig())
    torch.manual_seed(0)
    matcher = build_model(Vse, VseConfig(dim=16, word_dim=8), words)
    optimiser = torch.optim.Adam(matcher.parameters(), lr=0.02)
    texts = matcher.read([f"it is {name}" for name in COLOURS])
    seen = RegionBatch.of([np.eye(4, dtype=np.float32)[[n]] for n in range(4)], [np.ones((1, 4))] * 4)
    for _ in range(60):
        table = matcher.similarity(matcher.encode_images(seen), matcher.encode_texts(texts))
        loss = (table / 0.1 - (table / 0.1).logsumexp(dim=1, keepdim=True)).diag().mean().neg()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    alike, apart = (
        MomentRecall().recalls(matcher, data, None, windows=by).figures() for by in ("similarity", "contrast")
    )
    assert alike["r1_iou0.3"] > 40
    assert apart["r1_iou0.5"] > 45  # a moment's own part fits as well as the moment; what lies around it does not
    assert len(find_all(matcher, data)) == 40


def test_a_window_scores_as_it_would_alone() -> None:
    """Neither its neighbours in a batch nor the padding of the video change it."""
    data = split(2, 3)
    torch.manual_seed(0)
    matcher = build_model(Vse, VseConfig(dim=16, word_dim=8), prepare_captioned(data.pictures, MomentsConfig())).eval()
    video, texts = data.pictures.regions.batch([0]), matcher.read(data.texts[:2])
    windows = sliding_windows()
    every = window_scores(matcher, video.pad(5), texts, windows)
    for n in (0, 7, 60, len(windows) - 1):
        np.testing.assert_allclose(window_scores(matcher, video, texts, windows[[n]])[:, 0], every[:, n], atol=1e-6)


def test_windows_cover_a_video_in_all_lengths() -> None:
    windows = sliding_windows()
    assert windows.min() == 0
    assert windows.max() == 1
    for start in np.linspace(0, 0.9, 10):
        for length in (0.06, 0.1, 0.3):
            true = np.array([[start, min(start + length, 1.0)]])
            assert moment_hits(windows, true, (len(windows),), (0.7,))[f"R@{len(windows)},IoU=0.7"]
    inside = frames_inside(torch.tensor([0.0, 0.5]), torch.tensor([0.5, 1.0]), torch.tensor([[0.4, 0.45], [0.0, 1.0]]))
    assert inside.tolist() == [[True, False], [True, True]]  # no middle lies in the first: the nearest frame


def test_frames_that_fit_unlike_the_rest_are_a_moment() -> None:
    """The mean alone would choose the one best frame."""
    scores = np.array([[0.0, 0, 0, 0.9, 1, 0.9, 0.9, 0, 0, 0]])
    edges = np.linspace(0, 1, 11)
    windows = np.array([[0.4, 0.5], [0.3, 0.7], [0.2, 0.9], [0.0, 1.0]])
    found = contrast(scores, edges[:-1], edges[1:], windows)[0]
    assert found.argmax() == 1
    assert found[3] == 0


def test_figures_are_those_of_the_metric_and_any_true_span_counts() -> None:
    truth = [np.array([[0.0, 0.2], [0.6, 0.8]]), np.array([[0.5, 1.0]])]
    found = [np.array([[0.62, 0.8], [0.0, 0.1]]), np.array([[0.0, 0.1], [0.5, 0.9]])]
    recalls = recalls_of(found, truth)
    figures = Recalls(recalls.each, ("a", "b")).figures()
    assert figures["r1_iou0.7"] == figures["r1_iou0.5_a"] / 2 == 50
    assert figures["r5_iou0.7"] == 100
    assert figures["miou"] == pytest.approx(45)
    assert figures["r1_iou0.5_b"] == 0


def test_a_video_of_unknown_length_is_refused() -> None:
    class Timeless(Films):
        def get(self, index: int) -> PictureRegions:
            return replace(super().get(index), seconds=None)

    data = split(3, 1)
    unknown = replace(data, pictures=replace(data.pictures, images=Timeless(3, 1)))
    with pytest.raises(SaccadeError, match="does not say how long its videos are"):
        lengths(unknown)


def test_captured_batches_hold_tensors_alone_and_give_the_same_loss() -> None:
    """And those of each stage are of another class, since another loss is captured for them."""
    model, task = task_of(MomentsConfig(stage_epochs=(1, 1)), count=12)
    task.sampler(lambda count, size: BatchSampler(count, 8, 0, True))
    model.eval()
    assert isinstance(task, StagedTask)
    assert isinstance(task, JointlyTrained)
    batch = task.batch([0, 1, 5, 9])
    assert isinstance(batch.videos, FrameBatch)
    for step, kind in ((0, FirstStage), (2 * task.steps_per_epoch, ThirdStage)):
        padded = task.graph_batch(model, batch, step)
        assert type(padded) is kind
        assert not any(tensor.is_floating_point() and tensor.isnan().any() for tensor in tensors_of(padded))
        torch.testing.assert_close(task.loss(model, padded, step)[0], task.loss(model, batch, step)[0])


def test_a_run_that_was_killed_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    """Through all three stages."""

    def run(folder: Path, steps: int, resume: bool = False) -> Drn:
        model, task = task_of(MomentsConfig(stage_epochs=(1, 1)), count=12)
        config = TrainerConfig(steps=steps, batch_size=8, checkpoint_every=2, evaluate_every=100, accelerator="cpu")
        Trainer(config, folder).fit(model, task, resume)
        return model

    whole = run(tmp_path / "whole", 9)
    run(tmp_path / "cut", 5)
    resumed = run(tmp_path / "cut", 9, resume=True)
    for (name, one), other in zip(whole.state_dict().items(), resumed.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, msg=name)
    assert float(whole.stage) == 3


@pytest.mark.parametrize(
    ("seconds", "said"), [(3.42, "3.4 s"), (63.0, "1:03.0"), (3723.4, "1:02:03.4"), (59.96, "60.0 s")]
)
def test_times_are_said_as_a_clock_does(seconds: float, said: str) -> None:
    assert clock(seconds) == said


@pytest.mark.parametrize("count", [1, 7, 40])
def test_a_film_strip_is_drawn_for_any_number_of_frames_and_moments(count: int, tmp_path: Path) -> None:
    frames = tuple(np.full((20 + count, 30, 3), 200, np.uint8) for _ in range(count))
    spans, scores = np.array([[0.0, 2.0], [2.9, 3.0]])[: min(count, 2)], np.array([0.9, 0.1])[: min(count, 2)]
    path = FilmStrip(frames, 3.0, spans, scores, np.linspace(0, 1, count), "a title").save(tmp_path / "film.png")
    assert path.stat().st_size > 1000
    with pytest.raises(SaccadeError, match="a film strip needs frames"):
        FilmStrip((), 3.0, spans, scores, np.ones(3))
