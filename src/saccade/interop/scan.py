"""Official SCAN checkpoints: options to config, weights to weights.

A checkpoint is {epoch, model: [image state dict, text state dict], best_rsum, opt: Namespace, Eiters}.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from saccade.errors import SaccadeError
from saccade.interop.checkpoint import need, read_checkpoint, state_dict
from saccade.language import Vocabulary
from saccade.language.vocabulary import SPECIAL
from saccade.models import Scan, ScanConfig
from saccade.ops import Normaliser, Pool

NORMALISERS: dict[str, Normaliser] = {
    "clipped_l2norm": "clipped_l2",
    "l2norm": "l2",
    "clipped_l1norm": "clipped_l1",
    "l1norm": "l1",
    "softmax": "softmax",
    "clipped": "clipped",
    "no_norm": "none",
}
POOLS: dict[str, Pool] = {"LogSumExp": "logsumexp", "Mean": "mean", "Max": "max", "Sum": "sum"}
QUERIES = {"t2i": "words", "i2t": "regions"}
PARTS = {"img_enc": "regions", "txt_enc": "words"}  # the official names of our two encoders


def scan_config(options: Namespace | dict[str, Any], path: Path | str = "the checkpoint") -> ScanConfig:
    """The official options as a ScanConfig."""
    values = vars(options) if isinstance(options, Namespace) else options

    def option(name: str, table: dict[str, Any] | None = None) -> Any:
        if name not in values:
            raise SaccadeError(f'{path}: the options have no "{name}", so this is no SCAN checkpoint')
        if table is None:
            return values[name]
        if values[name] not in table:
            raise SaccadeError(f"{path}: {name} is {values[name]!r}, expected one of {', '.join(table)}")
        return table[values[name]]

    return ScanConfig(
        region_dim=int(option("img_dim")),
        word_dim=int(option("word_dim")),
        dim=int(option("embed_size")),
        layers=int(option("num_layers")),
        bidirectional=bool(option("bi_gru")),
        region_encoder="weight_norm" if values.get("precomp_enc_type", "basic") == "weight_norm" else "linear",
        unit_regions=not values.get("no_imgnorm", False),
        unit_words=not values.get("no_txtnorm", False),
        queries=option("cross_attn", QUERIES),
        normaliser=option("raw_feature_norm", NORMALISERS),
        sharpness=float(option("lambda_softmax")),
        pool=option("agg_func", POOLS),
        pool_sharpness=float(option("lambda_lse")),
    )


def import_scan(path: Path | str, vocabulary: Vocabulary | None = None) -> Scan:
    """The model in an official checkpoint. Without its vocabulary, words are named by their numbers."""
    checkpoint = read_checkpoint(path)
    parts = need(checkpoint, "model", (list, tuple), path)
    if len(parts) != 2:
        raise SaccadeError(f'{path}: "model" has {len(parts)} parts, a SCAN checkpoint has two (pictures, words)')
    config = scan_config(need(checkpoint, "opt", (Namespace, dict), path), path)
    regions, words = (state_dict(p, path, w) for p, w in zip(parts, ("the picture part", "the word part"), strict=True))
    if "embed.weight" not in words:
        raise SaccadeError(f"{path}: the word part has no embed.weight, so this is no SCAN checkpoint")
    size = len(words["embed.weight"])
    if vocabulary is None:
        vocabulary = Vocabulary((*SPECIAL, *(f"<word-{i}>" for i in range(len(SPECIAL), size))))
    if len(vocabulary) != size:
        raise SaccadeError(f"{path} knows {size} words, the vocabulary has {len(vocabulary)}")
    model = Scan(config, vocabulary)
    wanted = model.regions.state_dict()
    if "fc.weight_g" in regions:  # old and new PyTorch shape a scalar differently
        regions["fc.weight_g"] = regions["fc.weight_g"].reshape(())
    try:
        model.regions.load_state_dict(
            {k: v for k, v in regions.items() if k in wanted}
        )  # the official code drops others
        model.words.load_state_dict(words)
    except RuntimeError as error:
        raise SaccadeError(
            f"{path}: the weights do not fit the options: {str(error).splitlines()[-1].strip()}"
        ) from error
    return model.eval()


def our_parameter(official: str) -> str:
    """`img_enc.fc.weight` → `regions.fc.weight`."""
    group, _, rest = official.partition(".")
    return f"{PARTS[group]}.{rest}"
