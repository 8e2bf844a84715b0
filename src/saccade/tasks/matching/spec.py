"""Matching, as the rest of the house knows it."""

from __future__ import annotations

from saccade.data import CaptionedImages
from saccade.models import Matcher
from saccade.tasks.base import ClaimDefaults, TaskSpec
from saccade.tasks.matching.evaluate import Recalls
from saccade.tasks.matching.options import EvalOptions
from saccade.tasks.matching.predict import PictureMatcher
from saccade.tasks.matching.task import MatchingConfig, MatchingTask
from saccade.tasks.pairs import open_captioned, prepare_captioned

FLICKR8K = ClaimDefaults(
    (
        *("word_dim=200", "dim=256", "dropout=0.2", "items=pictures", "hard_negative_ramp_steps=150"),
        *("word_dropout=0.1", "min_count=3", "epochs=6", "batch_size=64", "optimiser=adamw", "learning_rate=0.002"),
        *("weight_decay=0.0001", "schedule=cosine", "warmup_steps=60", "average=0.99"),
    )
)

SPEC: TaskSpec[Matcher, CaptionedImages] = TaskSpec(
    name="matching",
    noun="matcher",
    does="matches pictures with sentences",
    protocol=Matcher,
    config=MatchingConfig,
    open=open_captioned,
    prepare=prepare_captioned,
    task=lambda model, train, dev, settings, vary: MatchingTask(train, dev, model.read, settings, vary),
    evaluator=Recalls(),
    predictor=PictureMatcher,
    verbs=("score", "explain"),
    options=EvalOptions,
    claims={"flickr8k": FLICKR8K},
)
