"""What the official checkpoints of the matching papers share: all grew out of one code base.

A `.pth.tar` is {epoch, model: state dicts, best_rsum, opt: the options of the command line, …}. Weights are named here
by part and name, `txt_enc.embed.weight`, as the goldens name gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.interop.checkpoint import Options, need, read_checkpoint, state_dict
from saccade.interop.importer import Source, Term, choice, fitting_vocabulary, unless
from saccade.interop.mapping import Table, ignored, to
from saccade.language import Vocabulary

Parts = Mapping[str, str]  # official name of each state dict in "model", in order → what it is for

ENCODERS: dict[str, Term] = {  # region and word encoders
    "region_dim": "img_dim",
    "word_dim": "word_dim",
    "dim": "embed_size",
    "layers": "num_layers",
    "bidirectional": "bi_gru",
    "unit_regions": unless("no_imgnorm"),
    "unit_words": unless("no_txtnorm"),
}
REGION_ENCODER: dict[str, Term] = {
    "region_encoder": lambda source: (
        "weight_norm" if source.options.get("precomp_enc_type", "basic") == "weight_norm" else "linear"
    )
}
ENCODER_WEIGHTS: Table = {
    "img_enc.fc.*": to("regions.fc.*"),
    "img_enc.*": ignored("the official code drops what else the picture part holds"),
    "txt_enc.*": to("words.*"),
}
NORMALISERS = {
    "clipped_l2norm": "clipped_l2",
    "l2norm": "l2",
    "clipped_l1norm": "clipped_l1",
    "l1norm": "l1",
    "softmax": "softmax",
    "clipped": "clipped",
    "no_norm": "none",
}
NORMALISER = choice("raw_feature_norm", NORMALISERS)


def reads_parts(parts: Parts) -> Callable[[Path, Vocabulary | None, str], Source]:
    """A file whose "model" is a list of state dicts."""

    def weights(found: Any, path: Path, title: str) -> dict[str, Tensor]:
        if len(found) != len(parts):
            raise SaccadeError(
                f'{path}: "model" has {len(found)} parts, a {title} checkpoint has {len(parts)} '
                f"({', '.join(parts.values())})"
            )
        states = zip(parts.items(), found, strict=True)
        named = {part: state_dict(state, path, f"the part for {what}") for (part, what), state in states}
        return {f"{part}.{name}": value for part, state in named.items() for name, value in state.items()}

    return lambda path, vocabulary, title: _source(path, vocabulary, title, (list, tuple), weights)


def read_whole(path: Path, vocabulary: Vocabulary | None, title: str) -> Source:
    """A file whose "model" is one state dict."""
    return _source(path, vocabulary, title, Mapping, lambda found, *_: state_dict(found, path, '"model"'))


def _source(
    path: Path, vocabulary: Vocabulary | None, title: str, kind: Any, weights: Callable[..., dict[str, Tensor]]
) -> Source:
    checkpoint = read_checkpoint(path)
    found = weights(need(checkpoint, "model", kind, path), path, title)
    if "txt_enc.embed.weight" not in found:
        raise SaccadeError(f"{path}: the word part has no embed.weight")
    words = fitting_vocabulary(vocabulary, len(found["txt_enc.embed.weight"]), path)
    return Source(path, title, Options.of(checkpoint, path, title), found, words)
