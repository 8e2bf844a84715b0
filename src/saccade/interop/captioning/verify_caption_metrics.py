"""Caption metrics against the official tools: tokens, and the scores of all captions and of each.

A set is up to three files: `NAME_captions.json` (sentences as people wrote them), `NAME_tokenized.json` (the official
tokens of both) and `NAME_scores.json` (`corpus` and `per_image`, metric by metric). Candidates and references are keyed
by picture.

METEOR is equal where its tables are installed (`find_meteor_tables`). They do not come with this project: the original
matches paraphrases by a table of five million pairs and synonyms by WordNet, and a sentence that is matched whole by a
paraphrase jumps from about 0.45 to over 0.9. Without them, pictures must come in nearly the same order (Kendall's τ_b
of at least 0.75; 0.94 and 0.95 on the two sets of the golden, above 0.79 in each of 200 draws of 50 pictures) and the
corpus figure must lie within 0.05 (found: 0.006).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.interop.verification import Case, verifier
from saccade.language.ptb import ptb_tokenise
from saccade.metrics.captions.bleu import bleu
from saccade.metrics.captions.cider import cider, cider_d
from saccade.metrics.captions.meteor import meteor
from saccade.metrics.captions.meteor_tables import MeteorTables, find_meteor_tables, read_meteor_tables
from saccade.metrics.captions.rouge import rouge_l
from saccade.metrics.captions.score import CaptionScore
from saccade.metrics.statistics import kendall

PARTS = ("captions", "tokenized", "scores")
TOLERANCE = 1e-6
METEOR_ORDER = 0.75  # the least rank correlation over pictures
METEOR_CORPUS = 0.05
FEW = 10  # pictures; the order of fewer says nothing
Sentences = tuple[dict[str, str], dict[str, list[str]]]


@verifier("caption_metrics")
def verify_caption_metrics(folder: Path) -> Iterator[Case]:
    found = {path.name.removesuffix(f"_{part}.json") for part in PARTS for path in folder.glob(f"*_{part}.json")}
    for name in sorted(found):
        yield _verify_set(name, {part: folder / f"{name}_{part}.json" for part in PARTS})


def _verify_set(name: str, files: dict[str, Path]) -> Case:
    raw, official = (_read_sentences(files[part]) if files[part].exists() else None for part in PARTS[:2])
    case = Case(name, {})
    if raw is None and official is None:
        raise SaccadeError(f"{files['scores']} has no captions beside it: {files['captions'].name} was expected")
    if raw is not None and official is not None:
        _compare_tokens(case, raw, official, files["tokenized"])
    if official is None:
        assert raw is not None
        official = (
            {image: " ".join(ptb_tokenise(text)) for image, text in raw[0].items()},
            {image: [" ".join(ptb_tokenise(text)) for text in texts] for image, texts in raw[1].items()},
        )
    if files["scores"].exists():
        _compare_scores(case, official, files["scores"])
    return case


def _compare_tokens(case: Case, raw: Sentences, official: Sentences, path: Path) -> None:
    """Every sentence must come out the same."""
    pairs: dict[str, list[tuple[str, str]]] = {"candidates": [], "references": []}
    for image, text in raw[0].items():
        if image not in official[0] or len(official[1][image]) != len(raw[1][image]):
            raise SaccadeError(
                f'{path}: picture "{image}" has not the captions that {case.name}_captions.json gives it'
            )
        pairs["candidates"].append((text, official[0][image]))
        pairs["references"] += zip(raw[1][image], official[1][image], strict=True)
    for part, sentences in pairs.items():
        wrong = sum(" ".join(ptb_tokenise(text)) != tokens for text, tokens in sentences)
        case.check(f"tokens of {len(sentences):,} {part} (sentences that differ)", float(wrong), 0.0)


def _compare_scores(case: Case, official: Sentences, path: Path) -> None:
    content = read_json(path)
    images = list(official[0])
    corpus, each = _read_scores(content, images, path)
    case.stored |= {f"{key}": np.asarray(0.0) for key in content if key not in ("corpus", "per_image")}
    case.stored |= {f"corpus {metric}": np.asarray(value) for metric, value in corpus.items()}
    case.stored |= {f"per_image {metric}": values for metric, values in each.items()}
    said = [official[0][image].split() for image in images]
    wanted = [[text.split() for text in official[1][image]] for image in images]
    known: dict[str, CaptionScore] = {f"Bleu_{n}": score for n, score in enumerate(bleu(said, wanted), start=1)}
    known["ROUGE_L"] = rouge_l(  # the one metric that splits at blanks alone
        [official[0][image].split(" ") for image in images],
        [[text.split(" ") for text in official[1][image]] for image in images],
    )
    known["CIDEr"] = known["CIDErD"] = known["CIDEr-D"] = known["CIDErD_ruotianluo"] = cider_d(said, wanted)
    known["CIDEr_original_noClip"] = known["CIDEr_original"] = cider(said, wanted)
    for metric in sorted(corpus.keys() | each.keys()):
        if metric in known:
            for key, value in (("corpus", known[metric].corpus), ("per_image", known[metric].each)):
                if f"{key} {metric}" in case.stored:
                    case.compare(f"{key} {metric}", value, TOLERANCE)
        elif metric == "METEOR":
            place = find_meteor_tables()
            tables = read_meteor_tables(place) if place is not None else MeteorTables()
            _compare_meteor(case, meteor(said, wanted, tables), tables)
        elif metric == "SPICE":
            for key in [key for key in case.stored if key.endswith(" SPICE")]:
                case.excuse(key, "SPICE rests on Stanford's parser; our scene_graph_f is another metric")


def _compare_meteor(case: Case, ours: CaptionScore, tables: MeteorTables) -> None:
    """By order over pictures, and within a margin, unless METEOR's tables are here: see the head of this file."""
    if "paraphrase" in tables.stages:
        for key, value in (("corpus METEOR", ours.corpus), ("per_image METEOR", ours.each)):
            if key in case.stored:
                case.compare(key, value, TOLERANCE, f"{key} ({', '.join(tables.stages)})")
        return
    if "corpus METEOR" in case.stored:
        case.compare("corpus METEOR", ours.corpus, METEOR_CORPUS, f"corpus METEOR ({', '.join(tables.stages)} alone)")
    if "per_image METEOR" not in case.stored:
        return
    if len(ours.each) < FEW:
        case.excuse("per_image METEOR", f"the order of fewer than {FEW} pictures says nothing")
        return
    order = kendall(ours.each, case.take("per_image METEOR")).b
    case.check("per_image METEOR (1 - Kendall's τ over pictures)", 1 - order, 1 - METEOR_ORDER)


def _read_sentences(path: Path) -> Sentences:
    """One candidate and the references of each picture."""
    content = read_json(path)
    parts = [content.get(part) if isinstance(content, dict) else None for part in ("candidates", "references")]
    if not isinstance(parts[0], dict) or not isinstance(parts[1], dict) or not parts[0]:
        raise SaccadeError(f'{path}: "candidates" and "references", each keyed by picture, were expected')
    candidates: dict[str, str] = {}
    references: dict[str, list[str]] = {}
    for image, given in parts[0].items():
        candidate = given[0] if isinstance(given, list) and len(given) == 1 else given
        captions = parts[1].get(image)
        if not isinstance(candidate, str):
            raise SaccadeError(f'{path}: picture "{image}" has no candidate that is one sentence')
        if not isinstance(captions, list) or not captions or not all(isinstance(text, str) for text in captions):
            raise SaccadeError(f'{path}: picture "{image}" has no list of reference sentences')
        candidates[image], references[image] = candidate, captions
    return candidates, references


def _read_scores(content: Any, images: list[str], path: Path) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """The figures of all captions, and of each in the order of `images`."""
    corpus, rows = (content.get(key, {}) if isinstance(content, dict) else None for key in ("corpus", "per_image"))
    if not isinstance(corpus, dict) or not isinstance(rows, dict) or not (corpus or rows):
        raise SaccadeError(f'{path}: "corpus" and "per_image" were expected, a figure for each metric in them')
    if rows and rows.keys() != set(images):
        raise SaccadeError(f'{path}: "per_image" has not the same pictures as the captions')
    metrics = {metric: None for image in rows for metric in (rows[image] if isinstance(rows[image], dict) else ())}
    try:
        figures = {metric: float(value) for metric, value in corpus.items()}
        return figures, {metric: np.array([float(rows[image][metric]) for image in images]) for metric in metrics}
    except (TypeError, ValueError, KeyError) as error:
        raise SaccadeError(
            f"{path}: a number for each metric was expected, and each metric for each picture"
        ) from error
