"""Checkpoints of Analogy: {epoch, model, loss, precision, recall}, without any option.

What the model was built from lies beside it in `config.json`: `classes`, `predicates`, `triplets` (name → how often it
was seen), and the options of the released configuration by short names. Branches are numbered in the order of a
dictionary of Python 2; `gram_id` says which is which.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.interop.checkpoint import Options, need, read_checkpoint, state_dict
from saccade.interop.importer import Importer, Source, Table, choice, const, ignored, optional, to
from saccade.interop.importers.answering import width_of
from saccade.interop.words import OfficialWords
from saccade.language import Vocabulary
from saccade.language.vocabulary import SPECIAL
from saccade.models import Analogy, AnalogyConfig
from saccade.models.analogy import BRANCHES

OPTIONS = "config.json"
GRAM_ID = {"sro": 0, "o": 1, "s": 2, "r": 3}  # of Python 2
TRANSFORMS = {"regdeep": "deep", "regadditive": "additive", "regdeepcond": "conditioned"}
SIMILARITIES = {"emb_jointspace": "joint", "emb_word2vec": "words"}
WORDS = "language_nets.{}.0.emb.weight"


def texts(options: Options, name: str) -> tuple[str, ...]:
    found = options(name)
    if not isinstance(found, list) or not all(isinstance(word, str) and word for word in found) or len(found) < 2:
        raise SaccadeError(f"{options.path}: {name} is no list of at least two names")
    return tuple(found)


def predicate_names(options: Options) -> tuple[str, ...]:
    """A verb that is a noun too has another vector: it gets another name."""
    classes = texts(options, "classes")
    return tuple(f"{name}_verb" if name in classes else name for name in texts(options, "predicates"))


def branch_numbers(options: Options) -> dict[str, int]:
    found = options.get("gram_id", GRAM_ID)
    if not isinstance(found, Mapping) or {*found} != {*BRANCHES} or sorted(found.values()) != [0, 1, 2, 3]:
        raise SaccadeError(f"{options.path}: gram_id numbers the branches s, r, o and sro from 0 to 3")
    return dict(found)


def counted_triplets(options: Options) -> dict[tuple[int, int, int], float]:
    """Places of subject, predicate and object → how often it was seen."""
    classes, predicates, found = texts(options, "classes"), texts(options, "predicates"), options("triplets")
    counts: dict[tuple[int, int, int], float] = {}
    for name, count in found.items() if isinstance(found, dict) else ():
        parts = str(name).split("-")
        known = len(parts) == 3 and parts[0] in classes and parts[1] in predicates and parts[2] in classes
        if not known or type(count) not in (int, float):
            raise SaccadeError(f"{options.path}: triplets has {name!r}: SUBJECT-PREDICATE-OBJECT and a count expected")
        counts[classes.index(parts[0]), predicates.index(parts[1]), classes.index(parts[2])] = float(count)
    return counts


def threshold(source: Source) -> tuple[int | None, float | None]:
    """`top_5` keeps so many sources, `value_0.5` those at least so similar; without a word all."""
    given = source.options.get("thresh", None)
    kind, _, number = str(given or "").partition("_")
    try:
        if not given or kind == "top":
            return (int(number) if given else None), None
        if kind == "value":
            return None, float(number)
    except ValueError:
        pass
    raise SaccadeError(f"{source.options.path}: thresh is {given!r}, expected top_NUMBER or value_NUMBER")


def read_analogy(path: Path, vocabulary: Vocabulary | None, title: str) -> Source:
    beside = path.with_name(OPTIONS)
    if not beside.is_file():
        raise SaccadeError(f"{beside} does not exist: {title} checkpoints hold no names and no options, that file does")
    values = read_json(beside)
    if not isinstance(values, dict):
        raise SaccadeError(f"{beside} is no mapping of options")
    options = Options(values, beside, title)
    found = state_dict(need(read_checkpoint(path), "model", dict, path), path, "the model")
    weights = by_branch(found, branch_numbers(options))
    names = (*texts(options, "classes"), *predicate_names(options))
    if len(set(names)) != len(names):
        raise SaccadeError(f"{beside}: a class or predicate is named twice")
    words = OfficialWords(
        Vocabulary((*SPECIAL, *names)),
        torch.arange(len(names)) + len(SPECIAL),
        torch.arange(len(names)) + len(SPECIAL),
    )
    return Source(path, title, options, weights, words.vocabulary, words)


def check(source: Source) -> None:
    if source.options.get("criterion", "logloss") != "logloss":
        raise SaccadeError(f"{source.options.path}: the criterion is {source.options('criterion')!r}, not logloss")
    tables = [source.weights[WORDS.format(b)] for b in BRANCHES if WORDS.format(b) in source.weights]
    if len(tables) < 4 or any(not torch.equal(tables[0], other) for other in tables):
        raise SaccadeError(f"{source.path}: the four branches were expected to share one table of frozen word vectors")


def by_branch(weights: Mapping[str, Tensor], numbers: Mapping[str, int]) -> dict[str, Tensor]:
    """The weights under the names of their branches: visual_nets.sro… for visual_nets.0…"""
    names = {str(n): branch for branch, n in numbers.items()}
    return {re.sub(r"(?<=_nets\.)\d+", lambda found: names.get(found[0], found[0]), k): w for k, w in weights.items()}


def analogy_weights(config: AnalogyConfig) -> Table:
    found: dict[str, Any] = {}
    for branch in BRANCHES:
        ours = f"visual.{branch}" if branch in ("s", "o") else f"visual.{branch}.projection"
        theirs = f"visual_nets.{branch}"
        found |= {f"{theirs}.proj.proj.0.*": to(f"{ours}.hidden.*")} if config.layers == 2 else {}
        found |= {
            f"{theirs}.{'proj.proj.3' if config.layers == 2 else 'proj.proj'}.*": to(f"{ours}.out.*"),
            f"{theirs}.spatial_module.net.0.*": to(f"visual.{branch}.spatial_hidden.*"),
            f"{theirs}.spatial_module.net.2.*": to(f"visual.{branch}.spatial.*"),
            f"{theirs}.appearance_module.*": to(f"visual.{branch}.appearance.*"),
            f"language_nets.{branch}.1.proj.proj.0.*": to(f"language.{branch}.hidden.*"),
            f"language_nets.{branch}.1.proj.proj.2.*": to(f"language.{branch}.out.*"),
            WORDS.format(branch): ignored("the same table as the phrase's branch has"),
        }
    found[WORDS.format("sro")] = to("words.weight", words="input")
    return found | {
        "reg_network.A.0.weight": to("gamma.hidden.weight"),
        "reg_network.A.2.weight": to("gamma.out.weight"),
        "reg_network.proj.weight": to("gamma.differences.weight"),
    }


def transform_width(source: Source) -> int:
    found = source.weights.get("reg_network.A.0.weight")
    return AnalogyConfig.transform_dim if found is None else len(found)


ANALOGY: Importer[Analogy] = Importer(
    system="analogy",
    title="Analogy",
    model=Analogy,
    reads=read_analogy,
    check=check,
    config={
        "classes": lambda s: texts(s.options, "classes"),
        "predicates": lambda s: predicate_names(s.options),
        "triplets": lambda s: tuple(counted_triplets(s.options)),
        "occurrences": lambda s: tuple(counted_triplets(s.options).values()),
        "region_dim": width_of("visual_nets.sro.appearance_module.weight", 1),
        "word_dim": width_of("language_nets.sro.0.emb.weight", 1),
        "hidden_dim": optional("d_hidden", AnalogyConfig.hidden_dim),
        "dim": width_of("language_nets.sro.1.proj.proj.2.weight", 0),
        "layers": optional("num_layers", 2),
        "spatial_hidden_dim": width_of("visual_nets.sro.spatial_module.net.0.weight", 0),
        "spatial_dim": width_of("visual_nets.sro.spatial_module.net.2.weight", 0),
        "appearance_dim": width_of("visual_nets.sro.appearance_module.weight", 0),
        "pixel": const(1.0),
        "normalise_words": const(False),
        "normalise_visual": optional("normalize_vis", False),
        "normalise_language": optional("normalize_lang", True),
        "scale": optional("scale", 1.0),
        "scale_transferred": const(False),
        "gamma": choice("analogy_type", {"hybrid": "hybrid", "vp": "vp"}),
        "transform": choice("gamma", TRANSFORMS),
        "transform_dim": transform_width,
        "deform": optional("apply_deformation", True),
        "similarity": choice("sim_method", SIMILARITIES),
        "alpha_r": optional("alpha_r", 0.5),
        "alpha_s": optional("alpha_s", 0.0),
        "min_occurrences": optional("min_mass", 0.0),
        "shared_words": optional("ncommon", 0),
        "top": lambda s: threshold(s)[0],
        "least_similarity": lambda s: threshold(s)[1],
        "use_target": optional("use_target", False),
        "normalise_sources": optional("normalize_source", True),
    },
    weights=analogy_weights,
)
