"""ROUGE-L (Lin; 2004), as captions are scored with it: how much of a sentence is said in the same order.

    P = max over references of LCS / words of the candidate,  R = max of LCS / words of the reference
    ROUGE-L = (1 + β²) P R / (R + β² P),  β = 1.2

LCS is the longest common subsequence. The best P and the best R may come from different references, as officially.
"""

from __future__ import annotations

from collections.abc import Sequence

from saccade.metrics.caption_score import Candidates, CaptionScore, References, Tokens, check_captions

BETA = 1.2


def rouge_l(candidates: Candidates, references: References) -> CaptionScore:
    check_captions(candidates, references)
    return CaptionScore.mean([_rouge(own, given) for own, given in zip(candidates, references, strict=True)])


def _rouge(candidate: Tokens, references: Sequence[Tokens]) -> float:
    own = candidate or [""]  # the official code sees one empty word in an empty sentence
    precision = recall = 0.0
    for reference in references:
        given = reference or [""]
        common = common_subsequence(own, given)
        precision, recall = max(precision, common / len(own)), max(recall, common / len(given))
    if not precision or not recall:
        return 0.0
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


def common_subsequence(one: Tokens, other: Tokens) -> int:
    """The length of the longest common subsequence.

    A row of the usual table grows by one or stays from word to word of `one`: one bit each, so a whole row is one
    number, and a word of `other` moves it by an addition (Hyyrö 2004).
    """
    where: dict[str, int] = {}
    for place, word in enumerate(one):
        where[word] = where.get(word, 0) | (1 << place)
    whole = (1 << len(one)) - 1
    row = whole
    for word in other:
        match = row & where.get(word, 0)
        row = ((row + match) | (row - match)) & whole
    return len(one) - row.bit_count()
