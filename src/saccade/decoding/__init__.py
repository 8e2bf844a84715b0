"""Decoding: from a captioner's word-by-word probabilities to captions, written once for all captioners."""

from __future__ import annotations

from saccade.decoding.beam import beam_search, diverse_beam_search
from saccade.decoding.config import BAD_ENDINGS, DecodingConfig
from saccade.decoding.decode import decode
from saccade.decoding.output import DecodedCaptions
from saccade.decoding.sampling import greedy, narrow, sample

__all__ = [
    "BAD_ENDINGS",
    "Decoded",
    "DecodingConfig",
    "beam_search",
    "decode",
    "diverse_beam_search",
    "greedy",
    "narrow",
    "sample",
]
