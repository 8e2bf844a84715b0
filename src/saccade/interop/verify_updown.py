"""Up-Down against what ImageCaptioning.pytorch computed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from saccade.interop.updown import read_updown
from saccade.interop.verification import Case, verifier
from saccade.interop.verify_captioning import open_caption_cases, verify_captions


@verifier("updown")
def verify_updown(folder: Path) -> Iterator[Case]:
    for case, official in open_caption_cases(folder, read_updown):
        verify_captions(case, official, folder, "core.attention.h2att.bias")
        yield case
