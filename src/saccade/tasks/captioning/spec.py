"""Captioning, as the rest of the house knows it."""

from __future__ import annotations

from saccade.data import CaptionedImages
from saccade.models import Captioner
from saccade.tasks.base import ClaimDefaults, TaskSpec
from saccade.tasks.captioning.evaluate import CaptionScores
from saccade.tasks.captioning.options import EvalOptions
from saccade.tasks.captioning.predict import PictureCaptioner
from saccade.tasks.captioning.task import CaptioningConfig, CaptioningTask
from saccade.tasks.pairs import open_captioned, prepare_captioned

NOTE = "captions are found by a beam of 3; METEOR matches words and stems"
WORLD = ClaimDefaults(("patience=0", "decoding.how=beam", "decoding.beam=3", "decoding.longest=31"), NOTE)
FLICKR8K = ClaimDefaults(
    (
        *("items=pictures", "task.longest=20", "min_count=3", "epochs=14", "batch_size=64", "optimiser=adamw"),
        *("learning_rate=0.001", "weight_decay=0.0001", "schedule=cosine", "warmup_steps=60", "average=0.99"),
        *("patience=0", "decoding.how=beam", "decoding.beam=3", "decoding.longest=21"),
    ),
    NOTE,
)

SPEC: TaskSpec[Captioner, CaptionedImages] = TaskSpec(
    name="captioning",
    noun="captioner",
    does="captions pictures",
    protocol=Captioner,
    config=CaptioningConfig,
    open=open_captioned,
    prepare=prepare_captioned,
    task=lambda model, train, dev, settings, vary: CaptioningTask(train, dev, model.read, settings, vary),
    evaluator=CaptionScores(),
    predictor=PictureCaptioner,
    verbs=("caption",),
    next_steps=("saccade eval {run} --beam 5", "saccade caption PHOTO --model {run} --attention why.png"),
    options=EvalOptions,
    claims={"world": WORLD, "flickr8k": FLICKR8K},
)
