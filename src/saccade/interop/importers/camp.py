"""Official CAMP checkpoints, of four variants."""

from __future__ import annotations

from typing import Any

from saccade.core.errors import SaccadeError
from saccade.interop.importer import Importer, Source
from saccade.interop.importers.matching import ENCODERS, reads_parts
from saccade.interop.mapping import Row, Table, ignored, to
from saccade.models import Camp, CampConfig

MAX_CAPTION_WORDS = 50  # every caption is padded to as many in the official code
VARIANTS: dict[str, dict[str, Any]] = {
    "gate_fusion_new": {},
    "cross_attention_new": {"fusion": False, "heads": 0, "text_length": MAX_CAPTION_WORDS},
    "gate_fusion": {"rounds": 1},
    "cross_attention": {"rounds": 1, "fusion": False},
}
SIDES = {"img": "regions", "txt": "words"}


def check(source: Source) -> None:
    if source.options.get("self_attention", False):
        raise SaccadeError(
            f"{source.path}: self_attention is on, which pools each side before they meet; it is unknown here"
        )


def of_variant(name: str) -> Any:
    default = getattr(CampConfig, name)
    return lambda source: source.options("measure", VARIANTS).get(name, default)


def heads(source: Source) -> int:
    """How many there are is in the weights alone."""
    given = int(source.options("measure", VARIANTS).get("heads", CampConfig.heads))
    found = [len(weight) for name, weight in source.weights.items() if name.endswith("linear.2.weight")]
    return found[0] if found and given else given


def weights(config: CampConfig) -> Table:
    table: dict[str, Row | tuple[Row, ...]] = {
        "img_enc.*": to("regions.*"),
        "txt_enc.*": to("words.*"),
        "sim.fc_out.0.*": to("judge.0.*"),
        "sim.fc_out.3.*": to("judge.2.*"),
    }
    pool = "final_reduce" if config.rounds == 2 else "reduce_layer"
    for number, (theirs, ours) in enumerate(SIDES.items(), start=1):
        layer = f"sim.{pool}_{number}.linear"
        queries = (  # in the old form keys are queries too
            {"query": "query", "key": "key"} if config.rounds == 2 else {"key": "query"}
        )
        table |= {f"sim.{theirs}_{name}_fc.weight": to(f"look.{ours}_{our}.weight") for name, our in queries.items()}
        table |= {
            **{f"sim.weighted_{theirs}_{n}_fc.weight": to(f"look.{ours}_{n}_again.weight") for n in ("query", "key")},
            f"sim.fc_{number}.0.*": to(f"fuse.{ours}.*"),
            f"{layer}.0.*": to(f"pool.{ours}.hidden.*"),
            f"{layer}.2.weight": to(f"pool.{ours}.heads.weight"),
            f"{layer}.2.bias": ignored("a softmax is blind to it"),
        }
    return table


CAMP = Importer(
    system="camp",
    title="CAMP",
    model=Camp,
    reads=reads_parts({"img_enc": "pictures", "txt_enc": "words", "sim": "similarity"}),
    check=check,
    config={
        **ENCODERS,
        **{name: of_variant(name) for name in ("rounds", "fusion", "text_length")},
        "heads": heads,
    },
    weights=weights,
)
