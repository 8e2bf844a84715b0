"""METEOR's alignment of two sentences: which words of one stand for which of the other.

Every pair of words that is equal, has one stem or one meaning, and every pair of phrases in the table, is a possible
match; a word may be in one match only. Matches that compete with no other are taken. Of the rest a beam search from
left to right over the reference takes those that make the most matches, then the fewest chunks (runs of matches that
are neighbours in both sentences), then the shortest way between them. In the search an exact match counts for each
of its words, another one for every second (so a lone word counts nothing): this is how METEOR 1.5 rounds its one half.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from saccade.language.wordnet import WordNet
from saccade.metrics.captions.meteor_tables import MAX_PHRASE_WORDS
from saccade.metrics.captions.meteor_words import MeteorSentence

EXACT, STEM, SYNONYM, PARAPHRASE = range(4)
BEAM = 40


class Match(NamedTuple):
    """Words of the candidate from `start` and words of the reference from `place` that mean the same."""

    stage: int
    place: int
    length: int  # words of the reference
    start: int
    start_length: int  # words of the candidate


class _Link(NamedTuple):
    """The matches of a path, the last first: paths share their beginnings."""

    match: Match
    earlier: _Link | None


# An alignment up to some word of the reference, as a plain tuple for speed:
# cost: what paths are sorted by, see `_cost`;
# end: the word of the candidate after the last match, -1 after a gap;
# after: the first word of the reference after the last match;
# used, taken: words of the candidate and of the reference, as bits;
# matches: the last of them.
_Path: TypeAlias = tuple[int, int, int, int, int, "_Link | None"]
Paraphrases: TypeAlias = Mapping[str, list[str]]


class Aligner:
    """Aligns sentences; remembers which words are synonyms."""

    def __init__(self, wordnet: WordNet, paraphrases: Paraphrases) -> None:
        self.wordnet, self.paraphrases = wordnet, paraphrases
        self._sets: dict[str, frozenset[int]] = {}
        self._same: dict[tuple[str, str], bool] = {}

    def align(self, candidate: MeteorSentence, reference: MeteorSentence) -> tuple[list[Match], int]:
        """The best alignment, from left to right in the reference, and how many chunks it has."""
        possible = self._possible(candidate, reference)
        best = search(possible)
        return best, count_chunks(best)

    def _possible(self, candidate: MeteorSentence, reference: MeteorSentence) -> list[list[Match]]:
        """For each word of the reference the matches that begin there."""
        found: list[list[Match]] = [[] for _ in reference.words]
        different = candidate.words != reference.words
        said = list(enumerate(zip(candidate.words, candidate.stems, strict=True)))
        for place, (word, its_stem) in enumerate(zip(reference.words, reference.stems, strict=True)):
            here = found[place]
            here += [Match(EXACT, place, 1, start, 1) for start, (other, _) in said if other == word]
            if not different:
                continue
            here += [
                Match(STEM, place, 1, start, 1)
                for start, (other, other_stem) in said
                if other_stem == its_stem and other != word
            ]
            if self.wordnet:
                here += [
                    Match(SYNONYM, place, 1, start, 1) for start, (other, _) in said if self._synonyms(other, word)
                ]
        if different and self.paraphrases:
            for place, count, start, start_count in self._phrases(reference.words, candidate.words):
                found[place].append(Match(PARAPHRASE, place, count, start, start_count))
            for start, start_count, place, count in self._phrases(candidate.words, reference.words):
                found[place].append(Match(PARAPHRASE, place, count, start, start_count))
        return found

    def _synonyms(self, one: str, other: str) -> bool:
        pair = (one, other)
        if pair not in self._same:
            for word in pair:
                if word not in self._sets:
                    self._sets[word] = self.wordnet.of(word)
            self._same[pair] = one != other and not self._sets[one].isdisjoint(self._sets[other])
        return self._same[pair]

    def _phrases(self, words: tuple[str, ...], others: tuple[str, ...]) -> Iterable[tuple[int, int, int, int]]:
        """Where a phrase of `words` stands whose paraphrase stands in `others`: place, length, place, length."""
        places: dict[str, list[int]] = {}
        for place, phrase in phrases(others):
            places.setdefault(phrase, []).append(place)
        for place, phrase in phrases(words):
            for paraphrase in self.paraphrases.get(phrase, ()):
                for other in places.get(paraphrase, ()):
                    yield place, phrase.count(" ") + 1, other, paraphrase.count(" ") + 1


def phrases(words: tuple[str, ...]) -> Iterable[tuple[int, str]]:
    """Every run of up to seven words, with the place where it begins."""
    for place in range(len(words)):
        for end in range(place + 1, min(place + MAX_PHRASE_WORDS, len(words)) + 1):
            yield place, " ".join(words[place:end])


def search(possible: list[list[Match]]) -> list[Match]:
    """The best choice of matches that share no word."""
    fixed, used, taken = _certain(possible)
    if len(fixed) == sum(map(len, possible)):
        return [fixed[place] for place in sorted(fixed)]
    paths: list[_Path] = [(0, -1, 0, used, taken, None)]
    for place, choices in enumerate(possible):
        if len(paths) > 1:
            paths.sort(key=_first)
        paths = _advance(paths[:BEAM], place, fixed.get(place), choices)
    paths.sort(key=_first)
    best = min(paths[:BEAM], key=lambda path: path[0] + (CHUNK if path[1] >= 0 else 0))  # the last chunk is closed
    found = []
    link = best[5]
    while link is not None:
        match, link = link
        found.append(match)
    return found[::-1]


# The cost of a path in one number: matches count most, then chunks, then the way between matched words.
MATCHED, CHUNK = -(1 << 40), 1 << 20
_first = itemgetter(0)


def _advance(paths: list[_Path], place: int, fixed: Match | None, choices: list[Match]) -> list[_Path]:
    """Every path with each of its choices at a word of the reference; the last choice is to pass it over."""
    following: list[_Path] = []
    options = [(match, _bits(match.start, match.start_length), _bits(place, match.length)) for match in choices]
    for path in paths:
        cost, end, after, used, taken, link = path
        if place < after:  # within a match
            following.append(path)
            continue
        if fixed is not None:
            following.append(_take(path, fixed, cost + abs(fixed.start - place), used, taken))
            continue
        for match, starts, places in options:
            if not used & starts and not taken & places:
                following.append(_take(path, match, cost, used | starts, taken | places))
                cost += abs(match.start - place)  # METEOR adds it to the paths made after: kept, as it decides ties
        following.append((cost + CHUNK if end >= 0 else cost, -1, after + 1, used, taken, link))
    return following


def _take(path: _Path, match: Match, cost: int, used: int, taken: int) -> _Path:
    _, place, length, start, start_length = match
    end = path[1]
    cost += MATCHED * (2 if match[0] == EXACT else length // 2 + start_length // 2)
    if end >= 0 and end != start:
        cost += CHUNK
    return cost, start + start_length, place + length, used, taken, _Link(match, path[5])


def _certain(possible: list[list[Match]]) -> tuple[dict[int, Match], int, int]:
    """Matches whose words no other match wants, by their place; and the words they use, as bits."""
    wanted: dict[tuple[int, int], int] = {}
    for match in (match for choices in possible for match in choices):
        for side, first, count in ((0, match.start, match.start_length), (1, match.place, match.length)):
            for word in range(first, first + count):
                wanted[side, word] = wanted.get((side, word), 0) + 1
    fixed: dict[int, Match] = {}
    used = taken = 0
    for place, choices in enumerate(possible):
        if len(choices) != 1:
            continue
        match = choices[0]
        spans = ((0, match.start, match.start_length), (1, place, match.length))
        if all(wanted[side, first + n] == 1 for side, first, count in spans for n in range(count)):
            fixed[place] = match
            used |= _bits(match.start, match.start_length)
            taken |= _bits(place, match.length)
    return fixed, used, taken


def _bits(first: int, count: int) -> int:
    return ((1 << count) - 1) << first


def count_chunks(matches: list[Match]) -> int:
    """Runs of matches that are neighbours in both sentences."""
    chunks, end, after = 0, -1, -1
    for match in matches:
        chunks += match.start != end or match.place != after
        end, after = match.start + match.start_length, match.place + match.length
    return chunks
