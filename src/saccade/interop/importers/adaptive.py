"""Adaptive attention in ImageCaptioning.pytorch (adaatt, adaattmo)."""

from __future__ import annotations

from typing import Any

from saccade.interop.importer import Importer, choice
from saccade.interop.importers import image_captioning as family
from saccade.interop.mapping import Row, Step, Table, add_to, blocks, ignored, to
from saccade.models import Adaptive, AdaptiveConfig

KINDS = {"adaatt": False, "adaattmo": True}  # whether the LSTM's candidate is a maximum


def weights(config: AdaptiveConfig) -> Table:
    """Word and picture are one input here, and h's bias in the scores is in every key's."""
    attention, lstm, top = "core.attention", "core.lstm", config.layers - 1
    table: dict[str, Row | tuple[Row, ...]] = {
        f"{attention}.ho_embed.bias": (add_to("look.region.bias"), add_to("sentinel.key.bias")),
        f"{attention}.ho_embed.weight": to("look.state.weight"),
        f"{attention}.ho_linear.0.*": to("hidden.*"),
        f"{attention}.fr_linear.0.*": to("sentinel.transform.*"),
        f"{attention}.fr_embed.weight": to("sentinel.key.weight"),
        f"{attention}.fr_embed.bias": add_to("sentinel.key.bias"),
        f"{attention}.alpha_net.weight": to("look.weigh.weight"),
        f"{attention}.alpha_net.bias": ignored(family.BLIND),
        f"{attention}.att2h.*": to("join.*"),
        "ctx2att.weight": to("look.region.weight"),
        "ctx2att.bias": add_to("look.region.bias"),
        **family.weights(config),
    }
    # Theirs has gates in, forget and out, then the candidate, as our max-out; PyTorch's has the candidate before out.
    turned: tuple[Step, ...] = () if config.maxout else (blocks(0, 1, 3, 2),)
    names = ("input.*", "state.*") if config.maxout else ("*_ih", "*_hh")

    def joined(inputs: list[tuple[str, int]], ours: str, *steps: Step) -> None:
        """Linear maps whose results are added, as one map of their inputs side by side; each with its width."""
        start = 0
        for name, width in inputs:
            part: Any = (start, start + width) if len(inputs) > 1 else (None, None)
            table[f"{lstm}.{name}.weight"] = to(ours.replace("*", "weight"), *steps, columns=part)
            table[f"{lstm}.{name}.bias"] = add_to(ours.replace("*", "bias"), *steps)
            start += width

    word, dim = config.word_dim, config.dim
    for layer in range(config.layers):
        below = [("w2h", word), ("v2h", dim)] if layer == 0 else [(f"i2h.{layer - 1}", dim)]
        joined(below, f"lstms.{layer}.{names[0]}", *turned)
        joined([(f"h2h.{layer}", dim)], f"lstms.{layer}.{names[1]}", *turned)
    joined([*([("r_w2h", word), ("r_v2h", dim)] if top == 0 else [("r_i2h", dim)]), ("r_h2h", dim)], "sentinel.gate.*")
    return table | dict(family.OTHERS)


ADAPTIVE = Importer(
    system="adaptive",
    title="adaptive",
    model=Adaptive,
    reads=family.reads(*KINDS),
    check=family.check,
    brings_words=True,
    config={**family.CONFIG, "layers": "num_layers", "maxout": choice("caption_model", KINDS)},
    weights=weights,
)
