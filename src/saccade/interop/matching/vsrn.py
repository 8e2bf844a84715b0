"""Official VSRN checkpoints: options to config, weights to weights.

A checkpoint is {epoch, model: [image state dict, text state dict], best_rsum, opt: Namespace, Eiters}. The caption
generator is not in it: it was thrown away after training.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.interop.checkpoint import load_official, read_checkpoint, state_dict, state_dicts
from saccade.interop.matching.encoders import fitting_vocabulary
from saccade.interop.options import Options
from saccade.language import Vocabulary
from saccade.models import Vsrn, VsrnConfig
from saccade.nn import Measure

MEASURES: dict[str, Measure] = {"cosine": "cosine", "order": "order"}
NAMES = [  # the official names of our parts, as patterns
    (r"img_enc\.fc\.", "regions.fc."),
    (r"img_enc\.img_rnn\.", "memory."),
    (r"img_enc\.bn\.", "final_norm."),
    (r"img_enc\.(Rs_GCN_\d+)\.theta\.", r"\1.taking."),
    (r"img_enc\.(Rs_GCN_\d+)\.phi\.", r"\1.giving."),
    (r"img_enc\.(Rs_GCN_\d+)\.g\.", r"\1.message."),
    (r"img_enc\.(Rs_GCN_\d+)\.W\.0\.", r"\1.mix."),
    (r"img_enc\.(Rs_GCN_\d+)\.W\.1\.", r"\1.norm."),
    (r"txt_enc\.", "words."),
    (r"caption_model\.encoder\.vid2hid\.", "caption.project."),
    (r"caption_model\.encoder\.rnn\.", "caption.reader."),
    (r"caption_model\.decoder\.embedding\.", "caption.embed."),
    (r"caption_model\.decoder\.attention\.linear1\.", "caption.attention.match."),
    (r"caption_model\.decoder\.attention\.linear2\.", "caption.attention.weigh."),
    (r"caption_model\.decoder\.rnn\.(\w+)_l0", r"caption.writer.\1"),
    (r"caption_model\.decoder\.out\.", "caption.out."),
]


def our_parameter(official: str) -> str:
    """`img_enc.Rs_GCN_1.theta.weight` → `blocks.0.taking.weight`."""
    for pattern, ours in NAMES:
        if re.match(pattern, official):
            official = re.sub(f"^{pattern}", ours, official)
            break
    return re.sub(r"^Rs_GCN_(\d+)", lambda block: f"blocks.{int(block[1]) - 1}", official)


def vsrn_config(option: Options, captions: bool = False) -> VsrnConfig:
    """The official options as a VsrnConfig; the name of the data decides between the two official forms."""
    if not str(option("data_name")).endswith("_precomp"):
        raise SaccadeError(
            f"{option.path}: data_name is {option('data_name')!r}; models that saw whole photos cannot be imported"
        )
    flickr = option("data_name") == "f30k_precomp"
    if captions:
        option("rnn_type", {"gru": "gru"})
    return VsrnConfig(
        region_dim=int(option("img_dim")),
        word_dim=int(option("word_dim")),
        dim=int(option("embed_size")),
        layers=int(option("num_layers")),
        norm_before="none" if flickr else "channels",
        final_norm=flickr,
        measure=option("measure", MEASURES),
        unit_images=not option.get("no_imgnorm", False),
        use_abs=bool(option.get("use_abs", False)),
        caption_weight=1.0 if captions else 0.0,
        caption_dim=int(option.get("dim_hidden", 512)),
        caption_word_dim=int(option.get("dim_word", 300)),
        caption_length=int(option.get("max_len", 60)),
        caption_bidirectional=bool(option.get("bidirectional", 0)),
        caption_dropout=float(option.get("input_dropout_p", 0.2)),
    )


def import_vsrn(
    path: Path | str, vocabulary: Vocabulary | None = None, captions: Mapping[str, Tensor] | None = None
) -> Vsrn:
    """The model in an official checkpoint; `captions` is the state of its caption generator, where that was kept.

    Without the vocabulary, words are named by their numbers.
    """
    checkpoint = read_checkpoint(path)
    images, texts = state_dicts(checkpoint, path, "VSRN", ("pictures", "words"))
    config = vsrn_config(Options.of(checkpoint, path, "VSRN"), captions is not None)
    model = Vsrn(config, fitting_vocabulary(vocabulary, texts.get("embed.weight"), path))
    wanted = model.state_dict()
    state = {key: value for key, value in wanted.items() if key.endswith("num_batches_tracked")}  # old files have none
    for group, part in (("img_enc", images), ("txt_enc", texts), ("caption_model", captions or {})):
        for key, value in part.items():
            ours = our_parameter(f"{group}.{key}")
            if ours in wanted or group != "img_enc":  # the official code drops what else the picture part holds
                state[ours] = value[..., 0] if value.dim() == 3 else value  # a convolution of width one is a linear map
    load_official(model, state, path)
    return model.eval()


def read_captions(path: Path) -> dict[str, Tensor]:
    """The state of a caption generator, saved by itself."""
    return state_dict(read_checkpoint(path), path, "the caption generator")
