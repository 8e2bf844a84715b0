"""Official SCAN checkpoints."""

from __future__ import annotations

from saccade.interop.importer import Importer, choice
from saccade.interop.importers.matching import ENCODER_WEIGHTS, ENCODERS, NORMALISER, REGION_ENCODER, reads_parts
from saccade.models import Scan

POOLS = {"LogSumExp": "logsumexp", "Mean": "mean", "Max": "max", "Sum": "sum"}
QUERIES = {"t2i": "words", "i2t": "regions"}

SCAN = Importer(
    system="scan",
    title="SCAN",
    model=Scan,
    reads=reads_parts({"img_enc": "pictures", "txt_enc": "words"}),
    config={
        **ENCODERS,
        **REGION_ENCODER,
        "queries": choice("cross_attn", QUERIES),
        "normaliser": NORMALISER,
        "sharpness": "lambda_softmax",
        "pool": choice("agg_func", POOLS),
        "pool_sharpness": "lambda_lse",
    },
    weights=ENCODER_WEIGHTS,
)
