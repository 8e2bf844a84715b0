"""What the official checkpoints of the matching papers share: a vocabulary, and encoders of regions and words.

All of them grew out of one code base: a `.pth.tar` holds epoch, model, best_rsum and opt, the options of its command
line.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.interop.checkpoint import load_official
from saccade.interop.options import Options
from saccade.interop.vocabulary import numbered_words
from saccade.language import Vocabulary
from saccade.models.fragments import FragmentMatcher


def fitting_vocabulary(vocabulary: Vocabulary | None, embedding: Tensor | None, path: Path | str) -> Vocabulary:
    """The vocabulary of these word vectors; without one, words are named by their numbers."""
    if embedding is None:
        raise SaccadeError(f"{path}: the word part has no embed.weight")
    if vocabulary is not None and len(vocabulary) != len(embedding):
        raise SaccadeError(f"{path} knows {len(embedding)} words, the vocabulary has {len(vocabulary)}")
    return vocabulary or numbered_words(len(embedding))


def fragment_settings(option: Options) -> dict[str, Any]:
    """What all of them call alike: the encoders of regions and words."""
    return {
        "region_dim": int(option("img_dim")),
        "word_dim": int(option("word_dim")),
        "dim": int(option("embed_size")),
        "layers": int(option("num_layers")),
        "bidirectional": bool(option("bi_gru")),
        "region_encoder": "weight_norm" if option.get("precomp_enc_type", "basic") == "weight_norm" else "linear",
        "unit_regions": not option.get("no_imgnorm", False),
        "unit_words": not option.get("no_txtnorm", False),
    }


def load_encoders(
    model: FragmentMatcher, regions: Mapping[str, Tensor], words: Mapping[str, Tensor], path: Path | str
) -> None:
    """The official image and text encoders into ours."""
    wanted = model.regions.state_dict()
    regions = {k: v for k, v in regions.items() if k in wanted}  # the official code drops others too
    if "fc.weight_g" in regions:  # old and new PyTorch shape a scalar differently
        regions["fc.weight_g"] = regions["fc.weight_g"].reshape(())
    load_official(model.regions, regions, path)
    load_official(model.words, words, path)
