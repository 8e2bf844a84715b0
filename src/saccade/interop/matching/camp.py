"""Official CAMP checkpoints: options to config, weights to weights.

A checkpoint is {epoch, model: [image, text and similarity state dicts], best_rsum, opt: EasyDict, Eiters}.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.interop.checkpoint import load_official, read_checkpoint, state_dicts
from saccade.interop.matching.encoders import fitting_vocabulary
from saccade.interop.options import Options
from saccade.language import Vocabulary
from saccade.models import Camp, CampConfig

PLACES = 50  # for the words of a caption, in the official code
VARIANTS: dict[str, dict[str, Any]] = {
    "gate_fusion_new": {},
    "cross_attention_new": {"fusion": False, "heads": 0, "text_length": PLACES},
    "gate_fusion": {"rounds": 1},
    "cross_attention": {"rounds": 1, "fusion": False},
}
SIDES = {"img": "regions", "txt": "words", "1": "regions", "2": "words"}
PARTS = ("pictures", "words", "similarity")


def camp_config(option: Options, similarity: dict[str, Tensor]) -> CampConfig:
    """The official options as a CampConfig; the number of heads is written in the weights only."""
    if option.get("self_attention", False):
        raise SaccadeError(
            f"{option.path}: self_attention is on, which pools each side before they meet; it is unknown here"
        )
    variant = option("measure", VARIANTS)
    heads = [len(weight) for name, weight in similarity.items() if name.endswith("linear.2.weight")]
    return CampConfig(
        region_dim=int(option("img_dim")),
        word_dim=int(option("word_dim")),
        dim=int(option("embed_size")),
        layers=int(option("num_layers")),
        bidirectional=bool(option("bi_gru")),
        unit_regions=not option.get("no_imgnorm", False),
        unit_words=not option.get("no_txtnorm", False),
        **{**variant, **({"heads": heads[0]} if heads and variant.get("heads", 1) else {})},
    )


def import_camp(path: Path | str, vocabulary: Vocabulary | None = None) -> Camp:
    """The model in an official checkpoint. Without its vocabulary, words are named by their numbers."""
    checkpoint = read_checkpoint(path)
    regions, words, similarity = state_dicts(checkpoint, path, "CAMP", PARTS)
    config = camp_config(Options.of(checkpoint, path, "CAMP"), similarity)
    model = Camp(config, fitting_vocabulary(vocabulary, words.get("embed.weight"), path))
    named = {f"regions.{name}": weight for name, weight in regions.items()}
    named |= {f"words.{name}": weight for name, weight in words.items()}
    for name, weight in similarity.items():
        if (ours := similarity_parameter(name, config.rounds)) is not None:
            named[ours] = weight
    load_official(model, named, path)
    return model.eval()


def similarity_parameter(official: str, rounds: int = 2) -> str | None:
    """`weighted_img_key_fc.weight` → `look.regions_key_again.weight`; None for a bias that a softmax does not see."""
    if found := re.fullmatch(r"(weighted_)?(img|txt)_(query|key)_fc\.weight", official):
        name = f"{found[3]}_again" if found[1] else found[3] if rounds == 2 else "query"  # of old, keys are queries too
        return f"look.{SIDES[found[2]]}_{name}.weight"
    if found := re.fullmatch(r"fc_([12])\.0\.(weight|bias)", official):
        return f"fuse.{SIDES[found[1]]}.{found[2]}"
    if found := re.fullmatch(r"fc_out\.([03])\.(weight|bias)", official):
        return f"judge.{min(int(found[1]), 2)}.{found[2]}"
    if found := re.fullmatch(r"(?:final_reduce|reduce_layer)_([12])\.linear\.([02])\.(weight|bias)", official):
        if found[2] == "2" and found[3] == "bias":
            return None
        return f"pool.{SIDES[found[1]]}.{'hidden' if found[2] == '0' else 'heads'}.{found[3]}"
    return official  # load_official will say that it has no place


def our_parameter(official: str, rounds: int = 2) -> str | None:
    """`img_enc.module.fc.weight` → `regions.fc.weight`, and so on for the words and the similarity."""
    group, _, name = official.partition(".")
    name = name.removeprefix("module.")
    if group == "sim":
        return similarity_parameter(name, rounds)
    encoder = {"img_enc": "regions", "txt_enc": "words"}.get(group)
    return f"{encoder}.{name}" if encoder else None
