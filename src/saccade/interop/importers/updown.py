"""Up-Down checkpoints of ImageCaptioning.pytorch: embedded regions, picture and words, biases in the attention."""

from __future__ import annotations

from saccade.interop.importer import Importer, const
from saccade.interop.importers import image_captioning as family
from saccade.interop.mapping import Table, add_to, ignored, to
from saccade.models import UpDown, UpDownConfig


def weights(config: UpDownConfig) -> Table:
    return {
        **family.weights(config),
        **family.top_down_weights("core", "lstms"),
        "ctx2att.weight": to("look.region.weight"),
        "ctx2att.bias": add_to("look.region.bias"),
        "core.attention.h2att.weight": to("look.state.weight"),
        "core.attention.h2att.bias": add_to("look.region.bias"),
        "core.attention.alpha_net.weight": to("look.weigh.weight"),
        "core.attention.alpha_net.bias": ignored(family.BLIND),
        **family.OTHERS,
    }


UPDOWN = Importer(
    system="updown",
    title="updown",
    model=UpDown,
    reads=family.reads("updown", "topdown"),
    check=family.check,
    brings_words=True,
    config={
        **family.CONFIG,
        "embed_regions": const(True),
        "word_relu": const(True),
        "attention_bias": const(True),
        "forget_bias": const(0.0),
    },
    weights=weights,
)
