"""Official IMRAM checkpoints. They hold the memories of both directions whatever their mode is."""

from __future__ import annotations

from saccade.core.errors import SaccadeError
from saccade.interop.importer import Importer, Source, choice, unless
from saccade.interop.importers.matching import ENCODERS, NORMALISER, REGION_ENCODER, read_whole
from saccade.interop.mapping import to
from saccade.models import Imram

QUERIES = {"text_IMRAM": "words", "image_IMRAM": "regions", "full_IMRAM": "both"}


def check(source: Source) -> None:
    if not source.options("bi_gru"):
        raise SaccadeError(f"{source.path}: bi_gru is off, with which the official IMRAM cannot have been trained")


IMRAM = Importer(
    system="imram",
    title="IMRAM",
    model=Imram,
    reads=read_whole,
    check=check,
    config={  # agg_func, lambda_lse and cross_attn come from SCAN's command line and do nothing
        **ENCODERS,
        **REGION_ENCODER,
        "queries": choice("model_mode", QUERIES),
        "steps": "iteration_step",
        "unit_memory": unless("no_IMRAM_norm"),
        "normaliser": NORMALISER,
        "sharpness": "lambda_softmax",
    },
    weights={
        "img_enc.fc_local.*": to("regions.fc.*"),
        "txt_enc.*": to("words.*"),
        "gate_t2i.*": to("words_ask.memory.gate.*", optional=True),
        "linear_t2i.*": to("words_ask.memory.candidate.*", optional=True),
        "gate_i2t.*": to("regions_ask.memory.gate.*", optional=True),
        "linear_i2t.*": to("regions_ask.memory.candidate.*", optional=True),
    },
)
