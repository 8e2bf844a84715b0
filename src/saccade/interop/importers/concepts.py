"""Official checkpoints of VCML and NS-CL: weights alone; their words lie beside them in a .json file.

VCML: `checkpoint.tar` with `config.json` (concepts, sample_size, max_value, penalty); without it concepts are numbered.
NS-CL: `NAME_reasoning.pth`, the reasoning module without its features, with `NAME_config.json` (attrs, rels, known).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.interop.checkpoint import Options, read_checkpoint, state_dict
from saccade.interop.importer import Importer, Source, const, ignored, optional, to
from saccade.language import Vocabulary
from saccade.models import Nscl, Vcml

VECTORS = "embedding.concept_embedding.weight"


def described(path: Path) -> dict[str, Any]:
    """A .json file of settings, or nothing."""
    found = read_json(path) if path.exists() else {}
    if not isinstance(found, dict):
        raise SaccadeError(f"{path} holds a {type(found).__name__}, settings by name were expected")
    return found


def weights_of(path: Path) -> dict[str, Tensor]:
    checkpoint: Any = read_checkpoint(path)
    for key in ("model", "state_dict"):
        checkpoint = checkpoint[key] if isinstance(checkpoint.get(key), Mapping) else checkpoint
    return state_dict(checkpoint, path, "the checkpoint")


def read_vcml(path: Path, vocabulary: Vocabulary | None, title: str) -> Source:
    weights = weights_of(path)
    if VECTORS not in weights or weights[VECTORS].dim() != 2:
        raise SaccadeError(f"{path} is no {title} checkpoint: it has no table {VECTORS}")
    weights = {"reasoning.exist_offset": torch.zeros(()), "reasoning.exist_scale": torch.ones(()), **weights}
    count, settings = len(weights[VECTORS]), described(path.parent / "config.json")
    concepts = settings.setdefault("concepts", [f"concept{n}" for n in range(count)])
    if not isinstance(concepts, list) or len(set(map(str, concepts))) != count:
        raise SaccadeError(f"{path} has vectors of {count} concepts, config.json does not name as many")
    words = vocabulary or Vocabulary.build(map(str, concepts), min_count=1)
    return Source(path, title, Options(settings, path, title), weights, words)


def layer_size(name: str, axis: int) -> Any:
    """The width of a network, which may be one linear map or two: that of its first or of its last weight."""

    def size(source: Source) -> int:
        found = [source.weights[key] for key in (f"{name}.0.weight", f"{name}.weight") if key in source.weights]
        if not found or found[0].dim() != 2:
            raise SaccadeError(f"{source.path} is no {source.title} checkpoint: it has no {name}")
        if axis == 0 and f"{name}.weight" in source.weights:
            return 0  # no hidden units
        return found[0].shape[axis]

    return size


VCML = Importer(
    system="vcml",
    title="VCML",
    model=Vcml,
    reads=read_vcml,
    config={
        "concepts": lambda source: tuple(map(str, source.options("concepts"))),
        "region_dim": layer_size("feature_mlp", 1),
        "hidden": layer_size("feature_mlp", 0),
        "dim": lambda source: source.weights[VECTORS].shape[1],
        "metaconcept_hidden": layer_size("embedding.metaconcept_subnet", 0),
        "metaconcept_net": const("shared"),
        "third_input": const("logit"),
        "input_order": const("release"),
        "volume": const("grid"),
        "grid_points": optional("sample_size", 100000),
        "grid_end": optional("max_value", 400.0),
        "metaconcept_penalty": optional("penalty", 0.0),
    },
    weights={
        VECTORS: to("concept_vectors.weight"),
        "feature_mlp.*": to("object_net.*"),
        "embedding.metaconcept_subnet.*": to("metaconcept_net.*"),
        "reasoning.exist_*": to("exist_*"),
        "resnet_model.*": ignored("regions come from an extractor"),
    },
    brings_words=True,
)

RELATION, ATTRIBUTE = "embedding_relation", "embedding_attribute"


def read_nscl(path: Path, vocabulary: Vocabulary | None, title: str) -> Source:
    """Concepts in the order of the file, attributes in that of their names, each one's weights as a row of a table."""
    config = path.with_name(path.name.replace("reasoning", "config")).with_suffix(".json")
    settings, weights = described(config), weights_of(path)
    for key, kind in (("attrs", dict), ("rels", dict)):
        if not isinstance(settings.setdefault(key, None), kind):
            raise SaccadeError(f'{config} has no "{key}": the concepts of each attribute by its name were expected')
    packed: dict[str, Tensor] = {}
    for ours, theirs, key in (("regions", ATTRIBUTE, "attrs"), ("pairs", RELATION, "rels")):
        start, end = f"{theirs}.concept_embeddings.concept_", ".belong"
        words = [name[len(start) : -len(end)] for name in weights if name.startswith(start) and name.endswith(end)]
        if sorted(words) != sorted(word for group in settings[key].values() for word in group):
            raise SaccadeError(f"{path} and {config.name} do not name the same concepts under {key}")
        settings[f"{ours}_words"] = words
        if not words:
            continue
        for number, attribute in enumerate(sorted(settings[key])):
            for part in ("weight", "bias"):
                name = f"{theirs}.attribute_operators.attribute_{attribute}.map.0.{part}"
                if name not in weights:
                    raise SaccadeError(f"{path} is no {title} checkpoint: it has no {name}")
                packed[f"{ours}.operators.{number}.{part}"] = weights[name]
        for part, stored in (("vectors", "embedding"), ("belong", "belong")):
            try:
                packed[f"{ours}.{part}"] = torch.stack([weights[f"{start}{word}.{stored}"] for word in words])
            except (KeyError, RuntimeError) as error:
                raise SaccadeError(f"{path}: the concepts under {key} are not all of one shape") from error
    words_read = vocabulary or Vocabulary.build(settings["regions_words"] + settings["pairs_words"], min_count=1)
    return Source(path, title, Options(settings, path, title), packed, words_read)


def operator_size(name: str, axis: int) -> Any:
    return lambda source: (
        source.weights[f"{name}.operators.0.weight"].shape[axis] if f"{name}.belong" in source.weights else 1
    )


NSCL = Importer(
    system="nscl",
    title="NS-CL",
    model=Nscl,
    reads=read_nscl,
    config={
        "concepts": lambda source: tuple(source.options("regions_words")),
        "attributes": lambda source: tuple((name, *words) for name, words in sorted(source.options("attrs").items())),
        "relations": lambda source: tuple(source.options("pairs_words")),
        "region_dim": operator_size("regions", 1),
        "dim": operator_size("regions", 0),
        "pair_dim": operator_size("pairs", 1),
        "relation_dim": operator_size("pairs", 0),
        "relation_kinds": lambda source: max(1, len(source.options("rels"))),
        "belonging": lambda source: "known" if source.options.get("known", True) else "learned",
    },
    weights={"regions.*": to("regions.*"), "pairs.*": to("pairs.*")},
    brings_words=True,
)
