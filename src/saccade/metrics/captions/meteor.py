"""METEOR 1.5 (Denkowski, Lavie: "Meteor Universal", WMT 2014), for English, without Java.

A candidate and a reference are aligned word by word; a match of stage i (exact, stem, synonym, paraphrase) weighs w_i,
and a content word weighs δ against 1 - δ for a function word. With P and R the weighted share of the candidate's and
of the reference's words that are matched, m the number of matches and ch that of chunks:

    F = P·R / (α·P + (1 - α)·R)        frag = ch / m        score = F · (1 - γ·frag^β)

where a candidate equal to its reference has no fragments. Of several references the best counts. The corpus figure is
no mean: counts of the best alignments are added up, and the formula is applied to the sums.

The alignment. Every pair of words that is equal, has one stem or one meaning, and every pair of phrases in the table,
is a possible match; a word may be in one match only. Matches that compete with no other are taken. Of the rest a beam
search from left to right over the reference takes those that make the most matches, then the fewest chunks (runs of
matches that are neighbours in both sentences), then the shortest way between them. In the search an exact match counts
for each of its words, another one for every second (so a lone word counts nothing): this is how METEOR 1.5 rounds its
one half.

What METEOR knows of English beside its formula. Of our own there are only the function words. Synonyms come from
WordNet, paraphrases from METEOR's table; both are read from where the user has them, and without them their stages are
left out:

- the PyPI package `pycocoevalcap` carries `meteor-1.5.jar`, an archive with WordNet's sets and METEOR's own word lists,
  and the table of paraphrases: with it the figures are METEOR's. Nothing of it is run, and no Java is needed;
- a folder of WordNet's data base gives the synonyms alone.
"""

from __future__ import annotations

import gzip
import os
import re
import zipfile
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float

from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.language.caption_words import WORDS, word_table
from saccade.language.stem import stem
from saccade.language.wordnet import WordNet, find_wordnet, is_wordnet, package_folders, read_wordnet
from saccade.metrics.captions.score import Candidates, CaptionScore, References, Tokens, check_captions

JAR = "meteor-1.5.jar"
PARAPHRASES = "data/paraphrase-en.gz"
MAX_PHRASE_WORDS = 7  # in METEOR's table
FUNCTION_WORDS = word_table(WORDS["function_words"])


@dataclass(frozen=True)
class MeteorTables:
    """The knowledge that METEOR uses. As it stands, what needs no file."""

    function_words: frozenset[str] = FUNCTION_WORDS
    abbreviations: frozenset[str] = frozenset(("v", "vs"))  # keep their dot, whatever follows
    wordnet: WordNet = field(default_factory=WordNet)
    paraphrases: Path | None = None
    place: Path | None = None

    @property
    def stages(self) -> tuple[str, ...]:
        """What counts as a match."""
        there = {"synonym": bool(self.wordnet), "paraphrase": self.paraphrases is not None}
        return "exact", "stem", *(stage for stage, known in there.items() if known)

    def describe(self) -> str:
        """Which stages and tables METEOR uses, for people."""
        used = f"meteor matches by: {', '.join(self.stages)}"
        if "paraphrase" in self.stages:
            return f"{used} ({self.place})"
        return f"{used}; for the figures of METEOR 1.5 itself `pip install --no-deps pycocoevalcap` (read, not run)"


def load_meteor_tables(place: str = "auto") -> MeteorTables:
    """What a folder holds; `auto`: what is installed; `none`: nothing.

    Raises: SaccadeError if there is no such folder.
    """
    found = find_meteor_tables() if place == "auto" else None if place == "none" else Path(place)
    if place not in ("auto", "none") and not Path(place).is_dir():
        raise SaccadeError(f"--meteor {place}: there is no such folder (auto and none are the other answers)")
    return MeteorTables() if found is None else read_meteor_tables(found)


def find_meteor_tables() -> Path | None:
    """A folder that `read_meteor_tables` can read, if one is installed: $SACCADE_METEOR, pycocoevalcap, WordNet."""
    given = os.environ.get("SACCADE_METEOR")
    if given:
        return Path(given)
    places = [folder / "meteor" for folder in package_folders("pycocoevalcap")]
    return next((place for place in places if (place / JAR).is_file()), None) or find_wordnet()


def read_meteor_tables(place: Path) -> MeteorTables:
    """From a folder with meteor-1.5.jar (and data/paraphrase-en.gz), or from one of WordNet's data base."""
    if is_wordnet(place):
        return MeteorTables(wordnet=read_wordnet(place), place=place)
    jar = place / JAR
    if not jar.is_file():
        raise SaccadeError(
            f"{place} holds neither {JAR} (as the PyPI package pycocoevalcap has it, in its folder meteor/) "
            "nor WordNet's index.noun, index.verb, index.adj and index.adv"
        )
    sets = _pairs(jar, "synonym/english.synsets")
    bases: dict[str, list[str]] = {}
    for base, forms in _pairs(jar, "synonym/english.exceptions"):
        for form in forms.split():
            bases.setdefault(form, []).append(base)
    try:
        numbered = {word: frozenset(map(int, found.split())) for word, found in sets}
    except ValueError as error:
        raise SaccadeError(f"{jar}, synonym/english.synsets: numbers of synonym sets were expected") from error
    paraphrases = place / PARAPHRASES
    prefixes = [line.split() for line in _lines(jar, "nonbreaking/english.prefixes") if not line.startswith("#")]
    return MeteorTables(
        frozenset(_lines(jar, "function/english.words")),
        frozenset(words[0] for words in prefixes if len(words) == 1),
        WordNet(numbered, {form: tuple(found) for form, found in bases.items()}),
        paraphrases if paraphrases.is_file() else None,
        place,
    )


def read_paraphrases(path: Path, phrases: Collection[str]) -> dict[str, list[str]]:
    """Those entries of the table both sides of which are among `phrases`: phrase → its paraphrases.

    The table has five million entries, three lines each (probability, phrase, paraphrase), and a set of captions needs
    few of them.
    """
    wanted = {phrase.encode() for phrase in phrases}
    found: dict[str, list[str]] = {}
    with explain_os_errors(path, "read"):
        try:
            with gzip.open(path) as file:
                left: list[bytes] = [b""]
                while block := file.read(1 << 24):
                    lines = (left[-1] + block).split(b"\n")
                    lines = left[:-1] + lines
                    whole = (len(lines) - 1) // 3 * 3
                    for one, other in zip(lines[1:whole:3], lines[2:whole:3], strict=True):
                        if one in wanted and other in wanted:
                            found.setdefault(one.decode(), []).append(other.decode())
                    left = lines[whole:]
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise SaccadeError(f"{path} is not a whole gzip file: copy it again") from error
    if left != [b""]:
        raise SaccadeError(f"{path} is no table of paraphrases: three lines an entry were expected")
    return found


def _lines(jar: Path, name: str) -> list[str]:
    with explain_os_errors(jar, "read"):
        try:
            with zipfile.ZipFile(jar) as archive:
                return archive.read(name).decode("utf-8").splitlines()
        except (KeyError, zipfile.BadZipFile, zlib.error, UnicodeDecodeError, NotImplementedError) as error:
            raise SaccadeError(f"{jar} is not the archive of METEOR 1.5: {name} could not be read from it") from error


def _pairs(jar: Path, name: str) -> list[tuple[str, str]]:
    lines = _lines(jar, name)
    return list(zip(lines[::2], lines[1::2], strict=False))


_LETTER = r"[^\W\d_]"
_PLAIN = re.compile(r"[a-z0-9 ]*\Z")
_ALONE = re.compile(r"([^\w\s.'`,‘’-]|_)")  # stands by itself
_DOTS = re.compile(r"\.{2,}")
_COMMA = re.compile(r"(?<!\d),|,(?!\d)")  # not that of 1,000
_HYPHEN = re.compile(r"([^\W_]|\.)-([^\W_])")
_APOSTROPHES = (
    (re.compile(rf"((?!{_LETTER}).)'((?!{_LETTER}).)"), r"\1 ' \2"),
    (re.compile(rf"([\W_])'({_LETTER})"), r"\1 ' \2"),
    (re.compile(rf"({_LETTER})'((?!{_LETTER}).)"), r"\1 ' \2"),
    (re.compile(rf"({_LETTER})'({_LETTER})"), r"\1 '\2"),
    (re.compile(r"(\d)'(s)"), r"\1 '\2"),
)


@dataclass(frozen=True)
class MeteorSentence:
    """The words of a sentence and what they are compared by."""

    words: tuple[str, ...]
    stems: tuple[str, ...]
    function: tuple[bool, ...]  # words of little meaning: "the", "of"


def read_sentence(tokens: Tokens, tables: MeteorTables) -> MeteorSentence:
    words = tuple(normalise(tokens, tables.abbreviations))
    return MeteorSentence(
        words, tuple([stem(word) for word in words]), tuple([word in tables.function_words for word in words])
    )


def normalise(tokens: Tokens, abbreviations: frozenset[str] = frozenset()) -> list[str]:
    """Tokens again, as the option `-norm` makes them: hyphenated words in parts, "U.S." without dots, quotes alike.

    The evaluation of captions has METEOR normalise what the Penn Treebank's tokeniser left, so both are needed for its
    figures: "n't" becomes "n" and "'t", "5:30 p.m." becomes "5", ":", "30", "pm".
    """
    text = " ".join(tokens).lower()
    if _PLAIN.match(text):
        return text.split()
    text = _DOTS.sub(r" \g<0> ", _ALONE.sub(r" \1 ", f" {text} "))
    text = _COMMA.sub(" , ", text)
    text = re.sub("[`‘’]", "'", text).replace("''", ' " ')
    text = _HYPHEN.sub(r"\1 \2", text.replace("–", "-").replace("--", "-"))
    for pattern, parted in _APOSTROPHES:
        text = pattern.sub(parted, text)
    words = text.split()
    found: list[str] = []
    for word, following in zip(words, [*words[1:], ""], strict=True):
        found.extend(_dots(word, following, abbreviations))
    return found


def _dots(word: str, following: str, abbreviations: frozenset[str]) -> tuple[str, ...]:
    """A word without the dots of an abbreviation, or with the full stop apart."""
    before = word[:-1]
    if not before or not word.endswith(".") or not before.strip("."):
        return (word,)
    if "." in before and re.search(_LETTER, before):
        return (word.replace(".", ""),)
    if before in abbreviations or (following[:1].isascii() and following[:1].islower()):
        return (word,)
    return (before, ".")


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
    """Aligns sentences by words, stems, synonyms and paraphrases."""

    def __init__(self, wordnet: WordNet, paraphrases: Paraphrases) -> None:
        self.wordnet, self.paraphrases = wordnet, paraphrases

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
                    Match(SYNONYM, place, 1, start, 1)
                    for start, (other, _) in said
                    if other != word and self.wordnet.synonyms(other, word)
                ]
        if different and self.paraphrases:
            for place, count, start, start_count in self._phrases(reference.words, candidate.words):
                found[place].append(Match(PARAPHRASE, place, count, start, start_count))
            for start, start_count, place, count in self._phrases(candidate.words, reference.words):
                found[place].append(Match(PARAPHRASE, place, count, start, start_count))
        return found

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
    one_start = one_place = several_starts = several_places = 0  # words that a match wants, or several, as bits
    for match in (match for choices in possible for match in choices):
        starts, places = _bits(match.start, match.start_length), _bits(match.place, match.length)
        several_starts, several_places = several_starts | one_start & starts, several_places | one_place & places
        one_start, one_place = one_start | starts, one_place | places
    fixed: dict[int, Match] = {}
    used = taken = 0
    for place, choices in enumerate(possible):
        for match in choices if len(choices) == 1 else ():
            starts, places = _bits(match.start, match.start_length), _bits(place, match.length)
            if not starts & several_starts and not places & several_places:
                fixed[place] = match
                used, taken = used | starts, taken | places
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
    paraphrases: Paraphrases = {}
    if tables.paraphrases is not None:
        there = {phrase for each in read.values() for _, phrase in phrases(each.words)}
        paraphrases = read_paraphrases(tables.paraphrases, there)
    aligner = Aligner(tables.wordnet, paraphrases)
    best = []
    for one, each in zip(said, wanted, strict=True):
        rows = [_counts(one, reference, *aligner.align(one, reference)) for reference in each]
        best.append(rows[int(np.argmax([score(row, config) for row in rows]))])
    counts = np.stack(best)
    whole = counts.sum(0)
    return CaptionScore(score(whole, config), np.array([score(row, config) for row in counts]))


# Counts of an alignment, one row a caption: lengths and function words of both sides, matches of each stage (content,
# function) of both sides, chunks (0 where both sentences are the same).
LENGTHS, FUNCTION, CANDIDATE, REFERENCE, CHUNKS = slice(0, 2), slice(2, 4), slice(4, 12), slice(12, 20), 20


def _counts(
    candidate: MeteorSentence, reference: MeteorSentence, matches: list[Match], chunks: int
) -> Float[np.ndarray, " count"]:
    row = np.zeros(21)
    row[LENGTHS] = len(candidate.words), len(reference.words)
    row[FUNCTION] = sum(candidate.function), sum(reference.function)
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
