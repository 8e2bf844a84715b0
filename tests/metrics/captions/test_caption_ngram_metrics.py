"""BLEU, ROUGE-L and CIDEr: equal to plain counting, and to what must hold of any caption metric."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.core.errors import SaccadeError
from saccade.metrics.captions.bleu import Bleu, bleu
from saccade.metrics.captions.cider import CiderD, DocumentFrequencies, cider, cider_d
from saccade.metrics.captions.ngrams import count_ngrams, sort_with_places
from saccade.metrics.captions.report import caption_report
from saccade.metrics.captions.rouge import common_subsequence, rouge_l

Words = Sequence[str]
sentences = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=9)
sets = st.lists(st.tuples(sentences, st.lists(sentences, min_size=1, max_size=4)), min_size=1, max_size=6)


def ngrams(words: Words) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + n]) for n in range(1, 5) for i in range(len(words) - n + 1))


def plain_cider(
    candidate: Words, references: Sequence[Words], frequencies: DocumentFrequencies, clipped: bool
) -> float:
    """CIDEr written down as it is defined."""

    def weights(words: Words, n: int) -> dict[tuple[str, ...], float]:
        rarity = {
            g: math.log(frequencies.pictures) - math.log(max(1, frequencies.counts.get(g, 0))) for g in ngrams(words)
        }
        return {g: times * rarity[g] for g, times in ngrams(words).items() if len(g) == n}

    total = 0.0
    for n, reference in product(range(1, 5), references):
        own, theirs = weights(candidate, n), weights(reference, n)
        size = math.hypot(*own.values()) * math.hypot(*theirs.values())
        shared = sum((min(own[g], theirs[g]) if clipped else own[g]) * theirs[g] for g in own.keys() & theirs.keys())
        apart = max(0, len(candidate) - 1) - max(0, len(reference) - 1)
        total += (shared / size if size else 0.0) * (math.exp(-(apart**2) / 72) if clipped else 1.0)
    return 10 * total / 4 / len(references)


@given(sets, st.booleans())
@settings(max_examples=60, deadline=None)
def test_cider_is_what_its_definition_says(captions: list[tuple[list[str], list[list[str]]]], larger: bool) -> None:
    candidates, references = [c for c, _ in captions], [r for _, r in captions]
    counted = DocumentFrequencies.of([*references, [["a", "b", "e"]], [["e"]]] if larger else references)
    given = counted if larger else None
    for metric, clipped in ((cider_d, True), (cider, False)):
        expected = [plain_cider(c, r, counted, clipped) for c, r in captions]
        found = metric(candidates, references, given)
        np.testing.assert_allclose(found.each, expected, atol=1e-9)
        assert found.corpus == pytest.approx(np.mean(expected), abs=1e-9)


@given(sets)
@settings(max_examples=60, deadline=None)
def test_bleu_is_what_its_definition_says(captions: list[tuple[list[str], list[list[str]]]]) -> None:
    scores = bleu([c for c, _ in captions], [r for _, r in captions])
    rows = []
    for candidate, references in captions:
        best = Counter[tuple[str, ...]]()
        for reference in references:
            best |= ngrams(reference)
        right = [sum((ngrams(candidate) & best)[g] for g in best if len(g) == n) for n in range(1, 5)]
        nearest = min((abs(len(r) - len(candidate)), len(r)) for r in references)[1]
        rows.append((right, [max(0, len(candidate) - n) for n in range(4)], len(candidate), nearest))

    def score(right: Sequence[int], said: Sequence[int], length: int, wanted: int, n: int) -> float:
        value = math.prod((right[k] + 1e-15) / (said[k] + 1e-9) for k in range(n)) ** (1 / n)
        ratio = (length + 1e-15) / (wanted + 1e-9)
        return value * (math.exp(1 - 1 / ratio) if ratio < 1 else 1.0)

    whole = [np.sum([row[part] for row in rows], axis=0) for part in range(4)]
    for n in range(1, 5):
        np.testing.assert_allclose(scores[n - 1].each, [score(*row, n) for row in rows], atol=1e-12)
        assert scores[n - 1].corpus == pytest.approx(score(*whole, n), abs=1e-12)


@given(sentences, sentences)
def test_the_common_subsequence_is_that_of_the_usual_table(one: list[str], other: list[str]) -> None:
    table = np.zeros((len(one) + 1, len(other) + 1), dtype=int)
    for i, j in product(range(len(one)), range(len(other))):
        table[i + 1, j + 1] = table[i, j] + 1 if one[i] == other[j] else max(table[i, j + 1], table[i + 1, j])
    assert common_subsequence(one, other) == table[-1, -1]


def test_rouge_takes_the_best_precision_and_the_best_recall_of_different_references() -> None:
    found = rouge_l([["a", "b"]], [[["a"], ["a", "b", "c", "d"]]])
    assert found.corpus == pytest.approx(
        (1 + 1.44) * 1 * 1 / (1 + 1.44)
    )  # recall 1 of the first, precision 1 of the second


CAPTIONS = [["a", "dog", "runs"], ["a", "cat", "sits", "down"], []]
REFERENCES = [
    [["a", "dog", "runs", "fast"], ["the", "dog"]],
    [["a", "cat", "sits", "down"]],
    [["two", "birds"], ["a", "bird"], ["birds"]],
]


def test_prepared_references_score_any_candidates_of_any_pictures() -> None:
    prepared = CiderD(REFERENCES)
    each = cider_d(CAPTIONS, REFERENCES).each
    owners = [2, 0, 1, 1, 0]
    np.testing.assert_array_equal(prepared.score([CAPTIONS[o] for o in owners], owners), each[owners])
    # one batch after another says the same, also after words that were never seen
    prepared.score([["zebra", "zebra"]], [0])
    np.testing.assert_array_equal(prepared.score(CAPTIONS), each)
    np.testing.assert_array_equal(Bleu(REFERENCES).score(CAPTIONS)[3], bleu(CAPTIONS, REFERENCES)[3].each)
    assert prepared.score([], []).shape == Bleu(REFERENCES).score([], []).shape[1:] == (0,)


def test_a_caption_scores_the_same_to_the_last_bit_whatever_was_scored_before_or_beside_it() -> None:
    """The order in which words that no reference has were first met must not be the order of a sum."""
    draw, known = random.Random(0), ["a", "dog", "runs", "cat"]
    references = [[draw.choices(known, k=6)] for _ in range(7)]
    spoken = [draw.choices([*known, "zebra", "lion", "gnu", "emu", "yak"], k=30) for _ in range(60)]
    owners = draw.choices(range(7), k=60)
    each, precisions = CiderD(references).score(spoken, owners), Bleu(references).score(spoken, owners)
    for _ in range(5):
        order = draw.sample(range(60), 60)
        cider, bleu = CiderD(references), Bleu(references)
        for batch in (order[:1], order[1:8], order[8:]):
            said, about = [spoken[n] for n in batch], [owners[n] for n in batch]
            np.testing.assert_array_equal(cider.score(said, about), each[batch])
            np.testing.assert_array_equal(bleu.score(said, about), precisions[:, batch])


def test_words_may_be_ids() -> None:
    ids = {word: number for number, word in enumerate({w for rows in REFERENCES for row in rows for w in row})}
    numbered = [[[ids[w] for w in row] for row in rows] for rows in REFERENCES]
    said = [[ids.get(w, 99) for w in row] for row in CAPTIONS]
    np.testing.assert_allclose(CiderD(numbered).score(said), CiderD(REFERENCES).score(CAPTIONS))


def test_an_exact_caption_is_best_and_a_repeated_word_does_not_win() -> None:
    prepared = CiderD(REFERENCES)
    right, repeated = prepared.score([REFERENCES[1][0], ["cat"] * 4], [1, 1])
    assert right == pytest.approx(10.0)
    assert repeated < right / 4
    unclipped = CiderD(REFERENCES, sigma=None, clipped=False).score([["cat"] * 4], [1])
    assert unclipped[0] > repeated


def test_codes_too_large_for_one_number_are_sorted_all_the_same() -> None:
    codes, places = np.array([5, 3, 5, 1]), np.array([0, 1, 2, 3])
    for scale in (1, 1 << 60):
        found, where = sort_with_places(codes * scale, places)
        assert found.tolist() == [1 * scale, 3 * scale, 5 * scale, 5 * scale]
        assert where.tolist() == [3, 1, 0, 2]
    counted = count_ngrams(np.array([0, 1, 0, 1, 1]), np.array([2, 3]))
    assert [len(codes) for codes in counted.ngrams] == [2, 2, 1, 0]


def test_a_report_has_every_metric_and_knows_a_perfect_captioner() -> None:
    references = [["A dog runs in the park.", "The dog is running."], ["A cat sits on a red sofa.", "A cat, sitting."]]
    report = caption_report([r[0] for r in references], references)
    assert {"bleu1", "bleu2", "bleu3", "bleu4", "meteor", "rouge_l", "cider_d", "cider", "scene_graph_f"} <= set(report)
    assert report["bleu4"] == pytest.approx(1.0, abs=1e-6)
    assert report["rouge_l"] == pytest.approx(1.0)
    worse = caption_report(["a man", "a man"], references)
    assert all(worse[name] < report[name] for name in ("bleu1", "bleu4", "meteor", "rouge_l", "cider_d", "cider"))


@pytest.mark.parametrize(
    ("candidates", "references", "said"),
    [
        ([], [], "no captions"),
        ([["a"]], [[["a"]], [["b"]]], "1 captions cannot be scored against the references of 2 pictures"),
        ([["a"]], [[]], "picture 0 has no list of reference captions"),
    ],
)
def test_captions_without_references_are_told(candidates: list[Any], references: list[Any], said: str) -> None:
    for metric in (bleu, rouge_l, cider, cider_d):
        with pytest.raises(SaccadeError, match=said):
            metric(candidates, references)


def test_owners_must_be_pictures() -> None:
    with pytest.raises(SaccadeError, match="pictures 0 to 2"):
        CiderD(REFERENCES).score([["a"]], [3])
    with pytest.raises(SaccadeError, match="2 captions were given for 1 owners"):
        CiderD(REFERENCES).score([["a"], ["b"]], [0])
