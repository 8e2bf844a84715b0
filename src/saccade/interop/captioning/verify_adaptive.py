"""Adaptive attention against what ImageCaptioning.pytorch computed; its attention has the sentinel's share first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from saccade.interop.captioning.adaptive import read_adaptive
from saccade.interop.captioning.cases import open_caption_cases, verify_captions
from saccade.interop.verification import Case, verifier


@verifier("adaptive")
def verify_adaptive(folder: Path) -> Iterator[Case]:
    for case, official in open_caption_cases(folder, read_adaptive):
        verify_captions(case, official, folder, "core.attention.ho_embed.bias")
        yield case
