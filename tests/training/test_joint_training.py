"""Several tasks in one run: whose turn it is, what each step learns from, and that a killed run ends the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console

from saccade.core.errors import SaccadeError
from saccade.data import DataConfig
from saccade.models import Hierarchical
from saccade.tasks import find_task
from saccade.tasks.joint.task import JointConfig, JointPredictor, JointSplit, JointTask, build_joint, prepare_joint
from saccade.tasks.schedule import Schedule, curriculum_schedule, periodic_schedule
from saccade.training import Trainer, TrainerConfig
from saccade.training.cuda_graphs import tensors_of
from saccade.training.run import run_config
from saccade.training.seeds import BatchSampler
from saccade.vision.augment import AugmentConfig
from toy_scenes import SMALL, scenes


def settings(**given: object) -> JointConfig:
    config = JointConfig(cycle=2, **given)  # type: ignore[arg-type]
    return replace(
        config,
        matching=replace(config.matching, share=0.5, batch=4, rate=0.5),
        answering=replace(config.answering, share=1.5),
    )


def built(config: JointConfig, count: int = 24) -> tuple[Hierarchical, JointTask]:
    train, dev = scenes(count, 1), scenes(12, 2)
    torch.manual_seed(0)
    model = build_joint(Hierarchical, SMALL, prepare_joint(train, config))
    return model, JointTask(model, train, dev, config, AugmentConfig())


def trainer(folder: Path, **given: object) -> Trainer:
    plain = {"batch_size": 8, "accelerator": "cpu", "learning_rate": 0.01, "steps": 13, "evaluate_every": 5}
    config = TrainerConfig(**{**plain, "checkpoint_every": 4, "log_every": 1, "schedule": "cosine", **given})  # type: ignore[arg-type]
    return Trainer(config, folder, Console(file=StringIO()))


def test_a_schedule_says_whose_turn_it_is_and_how_many_they_had() -> None:
    tasks, counts = ("a", "b", "c"), (2, 1, 3)
    for first in ((), curriculum_schedule(tasks, counts, 2)):
        schedule = Schedule(first, periodic_schedule(tasks, counts, 1))
        spelled = (*first, *periodic_schedule(tasks, counts, 4))
        had: Counter[str] = Counter()
        for step, task in enumerate(spelled):
            assert schedule.at(step) == (task, had[task])
            had[task] += 1
    assert curriculum_schedule(tasks[:2], (1, 2), 2) == tuple("aaabbabb")


class Killed(Exception):
    pass


class Fragile(JointTask):
    """Ends the run at a step."""

    fatal = -1

    def loss(self, model: Hierarchical, batch: object, step: int):  # type: ignore[no-untyped-def,override]
        if step == self.fatal:
            raise Killed
        return super().loss(model, batch, step)


@pytest.mark.parametrize("order", ["periodic", "curriculum"])
def test_a_run_killed_within_a_cycle_ends_as_if_it_had_never_stopped(tmp_path: Path, order: str) -> None:
    config = settings(order=order, stage_cycles=1)
    model, task = built(config)
    whole = trainer(tmp_path / "whole").fit(model, task)
    for fatal in (6, 9):  # of cycles of six steps; the checkpoints are of steps 4 and 8, within cycles as well
        stopped, stopped_task = built(config)
        stopped_task.__class__ = Fragile
        stopped_task.fatal = fatal  # type: ignore[attr-defined]
        with pytest.raises(Killed):
            trainer(tmp_path / "killed").fit(stopped, stopped_task, resume=True)
    again, again_task = built(config)
    resumed = trainer(tmp_path / "killed").fit(again, again_task, resume=True)
    assert resumed.best == whole.best
    assert resumed.last == whole.last
    assert all(torch.equal(again.state_dict()[name], weight) for name, weight in model.state_dict().items())


def test_each_step_trains_one_part_on_its_own_items_at_its_own_rate(tmp_path: Path) -> None:
    model, task = built(settings())
    sampler = task.sampler(lambda count, size: BatchSampler(count, size or 8, 0))
    drawn = [sampler.indices(step) for step in range(12)]
    assert [part for part, _ in drawn[:6]] == ["matching", "grounding", "grounding"] + ["answering"] * 3
    assert [len(own) for _, own in drawn[:6]] == [4, 8, 8, 8, 8, 8]
    turns = [own for part, own in drawn if part == "answering"]
    assert sorted(turns[0] + turns[1] + turns[2]) == list(range(24))  # an epoch of it, whatever came between
    assert [task.rate(step) for step in range(3)] == [0.5, 1, 1]
    loss, figures = task.loss(model, task.batch(drawn[0]), 0)
    loss.backward()
    assert list(figures) == ["matching_loss"]
    assert model.retrieval_map.weight.grad is not None
    assert model.grounding_map.weight.grad is None
    result = trainer(tmp_path / "run", steps=6).fit(model, task)
    assert {"mean", "matching_rsum", "grounding_accuracy", "answering_accuracy"} <= set(result.last)
    three = (result.last["matching_rsum"] / 6, result.last["grounding_accuracy"], result.last["answering_accuracy"])
    assert result.last["mean"] == pytest.approx(sum(three) / 3)


def test_what_can_be_captured_is_padded_and_has_the_same_loss() -> None:
    """Of every part, the steps are of few shapes: that is what makes capturing them worth while."""
    model, task = built(settings())
    model.eval()
    sampler = task.sampler(lambda count, size: BatchSampler(count, size or 8, 0))
    shapes = set()
    for step in range(24):
        batch = task.before_loss(model, task.batch(sampler.indices(step)), step)
        still = task.graph_batch(model, batch, step)
        assert still is not None
        shapes.add((type(still), *(tensor.shape for tensor in tensors_of(still))))
        torch.testing.assert_close(task.loss(model, still, step)[0], task.loss(model, batch, step)[0])
    assert len(shapes) <= 6


def test_a_joint_run_learns_all_its_parts(tmp_path: Path) -> None:
    config = JointConfig(cycle=5)
    config = replace(config, matching=replace(config.matching, loss="contrastive", temperature=0.2))
    model, task = built(config, 80)
    before = task.evaluate(model.eval())
    found = trainer(tmp_path / "run", steps=240, evaluate_every=240, checkpoint_every=240, batch_size=16).fit(
        model.train(), task
    )
    assert found.last["grounding_accuracy"] > 90
    assert found.last["answering_accuracy"] > 90
    assert found.last["matching_rsum"] > before["matching_rsum"] + 60


def test_a_model_of_some_parts_has_no_other_branches_and_says_so() -> None:
    model, task = built(settings(parts=("matching",)))
    assert set(task.parts) == {"matching"}
    assert not hasattr(model, "answering")
    predictor = JointPredictor(model.eval())
    pictures = scenes(2, 1).images.batch([0, 1])
    assert predictor.score(pictures, "a red cube").shape == (2, 1)
    with pytest.raises(SaccadeError, match="trained without answering: its tasks are matching"):
        predictor.ask(pictures, "is a red cube here?")
    assert [found.text for found in predictor.ground(pictures.select([0]), "a red cube")] == [
        "a red cube"
    ]  # as a matcher
    with pytest.raises(SaccadeError, match="trained without matching"):
        JointPredictor(built(settings(parts=("grounding",)))[0].eval()).score(pictures, "a red cube")


def test_what_a_run_keeps_has_every_parts_figures_and_what_each_picture_adds() -> None:
    config = settings()
    model, _ = built(config)
    measures = find_task("joint").evaluator
    split = scenes(12, 2)
    found = measures.scores(measures.measure(model, split, config, Path(), False))
    assert found.figures == pytest.approx(
        {name: value for name, value in measures.evaluate(model, split, config).items() if name in found.figures}
    )
    for metric in ("matching_rsum", "grounding_accuracy", "answering_accuracy"):
        assert found.by_picture[metric].sum() == pytest.approx(found.figures[metric])
        assert metric in measures.shown(metric)
    assert found.counts["pictures"] == 12
    alone = measures.scores(measures.measure(*alone_on("grounding"), Path(), False))
    assert set(alone.figures) == {"mean", *(f"grounding_{name}" for name in find_task("grounding").evaluator.metrics)}


def alone_on(part: str) -> tuple[Hierarchical, JointSplit, JointConfig]:
    config = settings(parts=(part,))
    return built(config)[0], scenes(12, 2), config


def test_the_parts_of_a_split_leave_out_the_same_pictures() -> None:
    split = scenes(10, 3)
    some = split.select([0, 3, 9])
    kept = {part: tuple(some.part(part).images.ids) for part in ("matching", "grounding", "answering")}
    assert set(kept.values()) == {("3-0", "3-3", "3-9")}


def test_settings_that_cannot_be_are_refused() -> None:
    for words, said in (
        (["task.parts=[matching,vqa]"], 'no part "vqa"'),
        (["task.parts=[matching,matching]"], "each task that is trained once"),
        (["task.matching.share=0.01"], "task.matching.share is too small"),
        (["task.order=random"], "task.order must be one of"),
    ):
        with pytest.raises(SaccadeError, match=said):
            run_config("hierarchical", ["data=world", *words])
    with pytest.raises(SaccadeError, match="data=daquar has no captions, from which matching is learned"):
        find_task("joint").open(DataConfig("daquar"), "train").part("matching")
    assert run_config("hierarchical", ["data=world", "task.parts=answering"]).task.parts == ("answering",)
