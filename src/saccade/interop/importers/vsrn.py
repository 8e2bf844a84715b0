"""Official VSRN checkpoints. The caption generator is not in them: it was thrown away after training.

Where it was kept, its weights are given to the importer as `caption_model.*`.
"""

from __future__ import annotations

from typing import Any

from saccade.core.errors import SaccadeError
from saccade.interop.importer import Importer, Source, choice, optional, unless
from saccade.interop.importers.matching import ENCODERS, reads_parts
from saccade.interop.mapping import Table, ignored, to
from saccade.models import Vsrn, VsrnConfig

MEASURES = {"cosine": "cosine", "order": "order"}
PARTS = {"theta": "taking", "phi": "giving", "g": "message", "W.0": "mix", "W.1": "norm"}  # of a block


def check(source: Source) -> None:
    """The name of the data decides between the two official forms."""
    data = source.options("data_name")
    if not str(data).endswith("_precomp"):
        raise SaccadeError(f"{source.path}: data_name is {data!r}; models that saw whole photos cannot be imported")
    if writes(source):
        source.options("rnn_type", {"gru": "gru"})


def is_flickr(source: Source) -> bool:
    return bool(source.options("data_name") == "f30k_precomp")


def writes(source: Source) -> bool:
    return any(name.startswith("caption_model.") for name in source.weights)


def weights(config: VsrnConfig) -> Table:
    blocks: dict[str, Any] = {
        f"img_enc.Rs_GCN_{n + 1}.{theirs}.*": to(f"blocks.{n}.{ours}.*")
        for n in range(config.blocks)
        for theirs, ours in PARTS.items()
    }
    return {
        **blocks,
        "img_enc.fc.*": to("regions.fc.*"),
        "img_enc.img_rnn.*": to("memory.*"),
        "img_enc.bn.*": to("final_norm.*"),
        "img_enc.*": ignored("the official code drops what else the picture part holds"),
        "txt_enc.*": to("words.*"),
        "caption_model.encoder.vid2hid.*": to("caption.project.*"),
        "caption_model.encoder.rnn.*": to("caption.reader.*"),
        "caption_model.decoder.embedding.*": to("caption.embed.*"),
        "caption_model.decoder.attention.linear1.*": to("caption.attention.match.*"),
        "caption_model.decoder.attention.linear2.*": to("caption.attention.weigh.*"),
        "caption_model.decoder.rnn.*_l0": to("caption.writer.*"),
        "caption_model.decoder.out.*": to("caption.out.*"),
    }


VSRN = Importer(
    system="vsrn",
    title="VSRN",
    model=Vsrn,
    reads=reads_parts({"img_enc": "pictures", "txt_enc": "words"}),
    check=check,
    config={
        **{name: ENCODERS[name] for name in ("region_dim", "word_dim", "dim", "layers")},
        "norm_before": lambda source: "none" if is_flickr(source) else "channels",
        "final_norm": is_flickr,
        "measure": choice("measure", MEASURES),
        "unit_images": unless("no_imgnorm"),
        "use_abs": optional("use_abs", False),
        "caption_weight": lambda source: float(writes(source)),
        "caption_dim": optional("dim_hidden", 512),
        "caption_word_dim": optional("dim_word", 300),
        "caption_length": optional("max_len", 60),
        "caption_bidirectional": optional("bidirectional", False),
        "caption_dropout": optional("input_dropout_p", 0.2),
    },
    weights=weights,
)
