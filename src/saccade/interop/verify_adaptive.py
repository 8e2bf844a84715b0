"""Adaptive attention against what ImageCaptioning.pytorch computed; its attention has the sentinel's share first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from saccade.interop.adaptive import read_adaptive
from saccade.interop.verification import Case, verifier
from saccade.interop.verify_captioning import open_caption_cases, verify_captions


@verifier("adaptive")
def verify_adaptive(folder: Path) -> Iterator[Case]:
    for case, official in open_caption_cases(folder, read_adaptive):
        verify_captions(case, official, folder, "core.attention.ho_embed.bias")
        yield case
