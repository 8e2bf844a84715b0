"""Recall@K against the official evaluation (ranks, recalls, folds), and caption metrics against the official tools.

A set of captions is up to three files: `NAME_captions.json` (candidates and references by picture, as people wrote
them), `NAME_tokenized.json` (their official tokens) and `NAME_scores.json` (`corpus` and `per_image`, by metric).

METEOR is equal where its tables are installed (`find_meteor_tables`). They do not come with this project: the original
matches paraphrases by a table of five million pairs and synonyms by WordNet, and a sentence that is matched whole by a
paraphrase jumps from about 0.45 to over 0.9. Without them, pictures must come in nearly the same order (Kendall's τ_b
of at least 0.75; 0.94 and 0.95 on the two sets of the golden, above 0.79 in each of 200 draws of 50 pictures) and the
corpus figure must lie within 0.05 (found: 0.006).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from saccade.core.arrays import read_npz
from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.interop.harness import Case, Difference, Excuse, Golden, difference
from saccade.language.tokenise import ptb_tokenise
from saccade.metrics import ranks, recall, summary
from saccade.metrics.captions.bleu import bleu
from saccade.metrics.captions.cider import cider, cider_d
from saccade.metrics.captions.meteor import MeteorTables, find_meteor_tables, meteor, read_meteor_tables
from saccade.metrics.captions.rouge import rouge_l
from saccade.metrics.captions.score import CaptionScore
from saccade.metrics.statistics import kendall

FIGURES = ("r1", "r5", "r10", "medr", "meanr")  # of one direction


def owners(similarity: np.ndarray) -> np.ndarray:
    """The picture of each text, where all have equally many."""
    return np.asarray(np.arange(similarity.shape[1]) // (similarity.shape[1] // similarity.shape[0]))


def figures(similarity: np.ndarray, names: Sequence[str] = FIGURES) -> list[list[float]]:
    """The named figures, from pictures to texts and back."""
    found = ranks(similarity, owners(similarity))
    return [[summary(way)[name] for name in names] for way in (found.image_to_text, found.text_to_image)]


class RecallCase:
    def __init__(self, case: Case) -> None:
        self.case, similarity = case, case.take("sims")
        names = [str(n) for n in case.take("metric_names")] if "metric_names" in case.stored else FIGURES
        owner = owners(similarity)
        found, ways = ranks(similarity, owner), figures(similarity, names)
        self.found: dict[str, Any] = {
            "i2t_metrics": ways[0],
            "t2i_metrics": ways[1],
            "i2t_ranks": found.image_to_text,
            "t2i_ranks": found.text_to_image,
            "i2t_top1": found.top_text,
            "t2i_top1": found.top_image,
            "rsum": recall(similarity, owner)["rsum"],
        }
        if "fold5_results" not in case.stored:
            return
        parts = np.split(np.arange(len(similarity)), len(case.stored["fold5_results"]))
        rows = np.array([self.fold(similarity[np.ix_(part, np.isin(owner, part))], names) for part in parts])
        mean = rows.mean(axis=0)
        self.found |= {
            "fold5_results": rows,
            "fold5_mean": mean,
            "fold5_true_rsum": recall(similarity, owner, folds=len(parts))["rsum"],
            # the official summary prints these under the wrong labels; we reproduce what it printed
            "fold5_printed_rsum": mean[10] * 6,
            "fold5_printed_avg_i2t": mean[11],
            "fold5_printed_avg_t2i": mean[12],
        }

    @staticmethod
    def fold(similarity: np.ndarray, names: Sequence[str]) -> list[float]:
        """One fold's row: five figures each way, the two average recalls, their sum."""
        averages = [sum(way) / 3 for way in figures(similarity, FIGURES[:3])]
        return [*itertools.chain(*figures(similarity, names)), *averages, 3 * sum(averages)]


RECALL = Golden(
    "recall",
    lambda folder: (RecallCase(Case(path.stem, read_npz(path))) for path in sorted(folder.glob("*.npz"))),
    {"(.+)": (lambda c, key: c.found.get(key), 1e-9)},  # counts and means, in float64
)

PARTS = ("captions", "tokenized", "scores")
TOLERANCE = 1e-6  # of figures in float64 that were written with all their digits
METEOR_ORDER = 0.75  # the least rank correlation over pictures
METEOR_CORPUS = 0.05
MIN_PICTURES = 10  # the order of fewer says nothing
Sentences = dict[str, tuple[str, list[str]]]  # of each picture: the candidate and the references


class MetricsCase:
    def __init__(self, name: str, files: dict[str, Path]) -> None:
        self.case = Case(name, {})
        raw, tokens = (_read_sentences(files[part]) if files[part].exists() else {} for part in PARTS[:2])
        if not raw and not tokens:
            raise SaccadeError(f"{files['scores']} has no captions beside it: {files['captions'].name} was expected")
        ours = {image: (tokenised(text), [tokenised(t) for t in texts]) for image, (text, texts) in raw.items()}
        if raw and tokens:
            self._check_tokens(ours, tokens, files["tokenized"])
        self.sentences = tokens or ours
        if files["scores"].exists():
            self.case.stored |= _read_scores(files["scores"], list(self.sentences))

    def _check_tokens(self, ours: Sentences, official: Sentences, path: Path) -> None:
        """Every sentence must come out the same."""
        pairs: dict[str, list[tuple[str, str]]] = {"candidates": [], "references": []}
        for image, (candidate, references) in ours.items():
            if image not in official or len(official[image][1]) != len(references):
                raise SaccadeError(
                    f'{path}: picture "{image}" has not the captions that {self.case.name}_captions.json gives it'
                )
            pairs["candidates"].append((candidate, official[image][0]))
            pairs["references"] += zip(references, official[image][1], strict=True)
        for part, sentences in pairs.items():
            wrong = sum(found != expected for found, expected in sentences)
            self.case.check(f"tokens of {len(sentences):,} {part} (sentences that differ)", float(wrong), 0.0)

    def words(self, separator: str | None = None) -> tuple[list[list[str]], list[list[list[str]]]]:
        sentences = self.sentences.values()
        return (
            [candidate.split(separator) for candidate, _ in sentences],
            [[text.split(separator) for text in references] for _, references in sentences],
        )

    @cached_property
    def scores(self) -> dict[str, CaptionScore]:
        """By their official names."""
        words, known = self.words(), dict[str, CaptionScore]()
        known |= {f"Bleu_{n}": score for n, score in enumerate(bleu(*words), start=1)}
        known["ROUGE_L"] = rouge_l(*self.words(" "))  # the one metric that splits at blanks alone
        known |= dict.fromkeys(("CIDEr", "CIDErD", "CIDEr-D", "CIDErD_ruotianluo"), cider_d(*words))
        return known | dict.fromkeys(("CIDEr_original", "CIDEr_original_noClip"), cider(*words))

    @cached_property
    def meteor(self) -> tuple[CaptionScore, MeteorTables]:
        place = find_meteor_tables()
        tables = read_meteor_tables(place) if place is not None else MeteorTables()
        return meteor(*self.words(), tables), tables

    def compared_meteor(self, scope: str) -> dict[str, Difference] | Excuse:
        """By order over pictures, and within a margin, unless METEOR's tables are here: see the head of this file."""
        ours, tables = self.meteor
        key, stages = f"{scope} METEOR", ", ".join(tables.stages)
        apart = difference(of(ours, scope), self.case.stored[key])
        if "paraphrase" in tables.stages:
            return {f"{key} ({stages})": Difference(apart, TOLERANCE)}
        if scope == "corpus":
            return {f"{key} ({stages} alone)": Difference(apart, METEOR_CORPUS)}
        if len(ours.each) < MIN_PICTURES:
            return Excuse(f"the order of fewer than {MIN_PICTURES} pictures says nothing")
        order = kendall(ours.each, self.case.stored[key]).b
        return {f"{key} (1 - Kendall's τ over pictures)": Difference(1 - order, 1 - METEOR_ORDER)}


def tokenised(text: str) -> str:
    return " ".join(ptb_tokenise(text))


def of(score: CaptionScore, scope: str) -> Any:
    return score.corpus if scope == "corpus" else score.each


def opens_captions(folder: Path) -> Iterator[MetricsCase]:
    found = {path.name.removesuffix(f"_{part}.json") for part in PARTS for path in folder.glob(f"*_{part}.json")}
    for name in sorted(found):
        yield MetricsCase(name, {part: folder / f"{name}_{part}.json" for part in PARTS})


def _read_sentences(path: Path) -> Sentences:
    content = read_json(path)
    parts = [content.get(part) if isinstance(content, dict) else None for part in ("candidates", "references")]
    if not isinstance(parts[0], dict) or not isinstance(parts[1], dict) or not parts[0]:
        raise SaccadeError(f'{path}: "candidates" and "references", each keyed by picture, were expected')
    sentences: Sentences = {}
    for image, given in parts[0].items():
        candidate = given[0] if isinstance(given, list) and len(given) == 1 else given
        captions = parts[1].get(image)
        if not isinstance(candidate, str):
            raise SaccadeError(f'{path}: picture "{image}" has no candidate that is one sentence')
        if not isinstance(captions, list) or not captions or not all(isinstance(text, str) for text in captions):
            raise SaccadeError(f'{path}: picture "{image}" has no list of reference sentences')
        sentences[image] = candidate, captions
    return sentences


def _read_scores(path: Path, images: list[str]) -> dict[str, np.ndarray]:
    """The figures of all captions, and of each in the order of `images`; what else there is goes by its name."""
    content = read_json(path)
    corpus, rows = (content.get(key, {}) if isinstance(content, dict) else None for key in ("corpus", "per_image"))
    if not isinstance(corpus, dict) or not isinstance(rows, dict) or not (corpus or rows):
        raise SaccadeError(f'{path}: "corpus" and "per_image" were expected, a figure for each metric in them')
    if rows and rows.keys() != set(images):
        raise SaccadeError(f'{path}: "per_image" has not the same pictures as the captions')
    metrics = {metric: None for image in rows for metric in (rows[image] if isinstance(rows[image], dict) else ())}
    try:
        return {
            **{str(key): np.asarray(0.0) for key in content if key not in ("corpus", "per_image")},
            **{f"corpus {metric}": np.asarray(float(value)) for metric, value in corpus.items()},
            **{f"per_image {m}": np.array([float(rows[image][m]) for image in images]) for m in metrics},
        }
    except (TypeError, ValueError, KeyError) as error:
        raise SaccadeError(
            f"{path}: a number for each metric was expected, and each metric for each picture"
        ) from error


SCOPE = "(corpus|per_image)"
NO_SPICE = Excuse("SPICE rests on Stanford's parser; our scene_graph_f is another metric")
CAPTIONS = Golden(
    "caption_metrics",
    opens_captions,
    {
        f"{SCOPE} (Bleu_[1-4]|ROUGE_L|CIDEr(?:D|-D|D_ruotianluo|_original|_original_noClip)?)": (
            lambda c, scope, metric: of(c.scores[metric], scope),
            TOLERANCE,
        ),
        f"{SCOPE} METEOR": (MetricsCase.compared_meteor, TOLERANCE),
        f"{SCOPE} SPICE": (lambda c, scope: NO_SPICE, TOLERANCE),
    },
)
