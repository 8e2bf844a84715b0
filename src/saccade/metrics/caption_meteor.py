"""METEOR 1.5 (Denkowski, Lavie: "Meteor Universal", WMT 2014), for English, without Java.

A candidate and a reference are aligned word by word; a match of stage i (exact, stem, synonym, paraphrase) weighs w_i,
and a content word weighs δ against 1 - δ for a function word. With P and R the weighted share of the candidate's and
of the reference's words that are matched, m the number of matches and ch that of chunks:

    F = P·R / (α·P + (1 - α)·R)        frag = ch / m        score = F · (1 - γ·frag^β)

where a candidate equal to its reference has no fragments. Of several references the best counts. The corpus figure is
no mean: counts of the best alignments are added up, and the formula is applied to the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from saccade.metrics.caption_meteor_align import Aligner, Match, Paraphrases, phrases
from saccade.metrics.caption_meteor_tables import MeteorTables, read_paraphrases
from saccade.metrics.caption_meteor_words import MeteorSentence, read_sentence
from saccade.metrics.caption_score import Candidates, CaptionScore, References, Tokens, check_captions


@dataclass(frozen=True)
class MeteorConfig:
    """METEOR 1.5's values for English, tuned to rank translations as people do."""

    alpha: float = 0.85  # α: how much more recall weighs
    beta: float = 0.2  # β: how fast fragments cost
    gamma: float = 0.6  # γ: what they cost at most
    delta: float = 0.75  # δ: a content word's weight
    stages: tuple[float, float, float, float] = (1.0, 0.6, 0.8, 0.6)  # w: exact, stem, synonym, paraphrase


def meteor(
    candidates: Candidates,
    references: References,
    tables: MeteorTables | None = None,
    config: MeteorConfig | None = None,
) -> CaptionScore:
    """METEOR of tokenised captions. Without `tables` words match by themselves and by their stems."""
    check_captions(candidates, references)
    tables, config = tables or MeteorTables(), config or MeteorConfig()
    read: dict[tuple[str, ...], MeteorSentence] = {}

    def sentence(tokens: Tokens) -> MeteorSentence:
        key = tuple(tokens)
        if key not in read:
            read[key] = read_sentence(key, tables)
        return read[key]

    said = [sentence(tokens) for tokens in candidates]
    wanted = [[sentence(tokens) for tokens in each] for each in references]
    aligner = Aligner(tables.wordnet, _paraphrases(tables, list(read.values())))
    counts = np.stack([_best(one, each, aligner, config) for one, each in zip(said, wanted, strict=True)])
    whole = counts.sum(0)
    return CaptionScore(score(whole, config), np.array([score(row, config) for row in counts]))


def _paraphrases(tables: MeteorTables, sentences: Sequence[MeteorSentence]) -> Paraphrases:
    if tables.paraphrases is None:
        return {}
    return read_paraphrases(tables.paraphrases, {phrase for each in sentences for _, phrase in phrases(each.words)})


# Counts of an alignment, one row a caption: lengths and function words of both sides, matches of each stage (content,
# function) of both sides, chunks (0 where both sentences are the same).
LENGTHS, FUNCTION, CANDIDATE, REFERENCE, CHUNKS = slice(0, 2), slice(2, 4), slice(4, 12), slice(12, 20), 20


def _best(
    candidate: MeteorSentence, references: Sequence[MeteorSentence], aligner: Aligner, config: MeteorConfig
) -> Float[np.ndarray, " count"]:
    rows = [_counts(candidate, reference, *aligner.align(candidate, reference)) for reference in references]
    return rows[int(np.argmax([score(row, config) for row in rows]))]


def _counts(
    candidate: MeteorSentence, reference: MeteorSentence, matches: list[Match], chunks: int
) -> Float[np.ndarray, " count"]:
    row = np.zeros(21)
    row[LENGTHS] = len(candidate.words), len(reference.words)
    row[FUNCTION] = candidate.function_count, reference.function_count
    for match in matches:
        for word in range(match.start, match.start + match.start_length):
            row[4 + 2 * match.stage + candidate.function[word]] += 1
        for word in range(match.place, match.place + match.length):
            row[12 + 2 * match.stage + reference.function[word]] += 1
    whole = row[CANDIDATE].sum() == row[0] and row[REFERENCE].sum() == row[1] and chunks == 1
    row[CHUNKS] = 0 if whole else chunks
    return row


def score(counts: Float[np.ndarray, " count"], config: MeteorConfig) -> float:
    """The formula, on the counts of one alignment or on sums of them."""
    row = counts.tolist()  # plain numbers: twenty of them are quicker so
    weights = [stage * word for stage in config.stages for word in (config.delta, 1 - config.delta)]
    shares = []
    for side, matched in enumerate((row[CANDIDATE], row[REFERENCE])):
        length = config.delta * (row[side] - row[2 + side]) + (1 - config.delta) * row[2 + side]
        found = sum(weight * count for weight, count in zip(weights, matched, strict=True))
        if not found:
            return 0.0
        shares.append(found / length)
    precision, recall = shares
    mean = 1 / ((1 - config.alpha) / precision + config.alpha / recall)
    fragments = row[CHUNKS] / (sum(row[4:CHUNKS]) / 2)
    return float(max(mean * (1 - config.gamma * fragments**config.beta), 0.0))
