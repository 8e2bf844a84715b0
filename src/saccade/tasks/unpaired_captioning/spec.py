"""Captioning without pairs, as the rest of the house knows it: measured and asked as any captioner is."""

from __future__ import annotations

from saccade.data import CaptionedImages
from saccade.models import Unsupervised
from saccade.tasks.base import ClaimDefaults, TaskSpec
from saccade.tasks.captioning.spec import SPEC as CAPTIONING
from saccade.tasks.pairs import open_captioned, prepare_captioned
from saccade.tasks.unpaired_captioning.task import UnpairedCaptioningConfig, UnpairedCaptioningTask

CLAIMS = ClaimDefaults(
    ("steps=4000", "sentence_gan_steps=0", "decoding.beam=3"),
    "pictures of one half of the training split, sentences of the other, and a few steps of each player; captions are "
    "found by a beam of 3; METEOR matches words and stems",
)

SPEC: TaskSpec[Unsupervised, CaptionedImages] = TaskSpec(
    name="unpaired_captioning",
    noun=CAPTIONING.noun,
    does=CAPTIONING.does,
    protocol=Unsupervised,
    config=UnpairedCaptioningConfig,
    open=open_captioned,
    prepare=prepare_captioned,
    task=lambda model, train, dev, settings, vary: UnpairedCaptioningTask(train, dev, model.read, settings, vary),
    evaluator=CAPTIONING.evaluator,
    predictor=CAPTIONING.predictor,
    verbs=CAPTIONING.verbs,
    next_steps=CAPTIONING.next_steps,
    options=CAPTIONING.options,
    claims={"world": CLAIMS, "flickr8k": CLAIMS},
)
