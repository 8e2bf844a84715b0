"""Official SCAN checkpoints: options to config, weights to weights.

A checkpoint is {epoch, model: [image state dict, text state dict], best_rsum, opt: Namespace, Eiters}.
"""

from __future__ import annotations

from pathlib import Path

from saccade.interop.checkpoint import read_checkpoint, state_dicts
from saccade.interop.matching.encoders import fitting_vocabulary, fragment_settings, load_encoders
from saccade.interop.options import Options
from saccade.language import Vocabulary
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


def scan_config(option: Options) -> ScanConfig:
    """The official options as a ScanConfig."""
    return ScanConfig(
        **fragment_settings(option),
        queries=option("cross_attn", QUERIES),
        normaliser=option("raw_feature_norm", NORMALISERS),
        sharpness=float(option("lambda_softmax")),
        pool=option("agg_func", POOLS),
        pool_sharpness=float(option("lambda_lse")),
    )


def import_scan(path: Path | str, vocabulary: Vocabulary | None = None) -> Scan:
    """The model in an official checkpoint. Without its vocabulary, words are named by their numbers."""
    checkpoint = read_checkpoint(path)
    regions, words = state_dicts(checkpoint, path, "SCAN", ("pictures", "words"))
    config = scan_config(Options.of(checkpoint, path, "SCAN"))
    model = Scan(config, fitting_vocabulary(vocabulary, words.get("embed.weight"), path))
    load_encoders(model, regions, words, path)
    return model.eval()


def our_parameter(official: str) -> str:
    """`img_enc.fc.weight` → `regions.fc.weight`."""
    group, _, rest = official.partition(".")
    return f"{PARTS[group]}.{rest}"
