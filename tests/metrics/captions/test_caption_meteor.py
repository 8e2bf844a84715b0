"""METEOR: the formula by hand, the alignment by trying all, the tables, and the figures of the original."""

from __future__ import annotations

import gzip
import json
import zipfile
from itertools import combinations, pairwise, permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.core.errors import SaccadeError
from saccade.metrics.captions.meteor import (
    EXACT,
    STEM,
    Aligner,
    Match,
    MeteorConfig,
    MeteorSentence,
    MeteorTables,
    count_chunks,
    meteor,
    normalise,
    read_meteor_tables,
    read_paraphrases,
    read_sentence,
    search,
)
from saccade.metrics.statistics import kendall

GOLDEN = Path(__file__).parents[2] / "golden" / "caption_metrics"


def score(candidate: str, *references: str, tables: MeteorTables | None = None) -> float:
    return meteor([candidate.split()], [[text.split() for text in references]], tables).corpus


def test_the_formula_by_hand() -> None:
    # All but the verb match: two content words and three function words (the, on, the), in two chunks.
    candidate, reference = "the cat sat on the mat", "the cat lay on the mat"
    matched, length = 2 * 0.75 + 3 * 0.25, 3 * 0.75 + 3 * 0.25
    share = matched / length
    assert score(candidate, reference) == pytest.approx(share * (1 - 0.6 * (2 / 5) ** 0.2))


def test_a_stem_weighs_less_than_the_word() -> None:
    share = (0.75 + 0.6 * 0.75) / 1.5
    assert score("dogs run", "dogs running") == pytest.approx(share)  # all matched in one chunk: no fragments
    assert score("dogs run", "dogs run") == 1


def test_recall_weighs_more_than_precision() -> None:
    precise, complete = score("dog", "dog park"), score("dog park", "dog")
    assert precise < complete
    mean = 1 / (0.15 / 1 + 0.85 / 0.5)
    assert precise == pytest.approx(mean * (1 - 0.6))


def test_the_best_reference_counts() -> None:
    best = score("a dog runs", "a dog runs fast")
    assert score("a dog runs", "a cat", "a dog runs fast", "birds") == best


def test_nothing_matched_is_nothing() -> None:
    assert score("zxqv", "a dog") == 0
    assert score("", "a dog") == 0
    assert score("a dog", "") == 0


def test_the_corpus_figure_is_that_of_the_sums() -> None:
    found = meteor([["dog"], ["a", "cat", "sits"]], [[["dog"]], [["big", "bird"]]])
    assert found.each.tolist() == [1, 0]
    assert 0 < found.corpus < 0.5
    recall, precision = 0.75 / (0.75 + 1.5), 0.75 / (0.75 + 2 * 0.75 + 0.25)
    assert found.corpus == pytest.approx(1 / (0.15 / precision + 0.85 / recall))  # the whole caption has no fragments


def test_parameters_can_be_chosen() -> None:
    plain = MeteorConfig(alpha=0.5, gamma=0.0, delta=0.5, stages=(1.0, 1.0, 1.0, 1.0))
    found = meteor([["a", "dog", "sits"]], [[["a", "cat", "sits", "there"]]], config=plain)
    assert found.corpus == pytest.approx(2 / (3 / 2 + 4 / 2))


# Words


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ("a well-dressed man", "a well dressed man"),
        ("ca n't reach", "ca n 't reach"),
        ("someone 's bike", "someone ' s bike"),
        ("at 5:30 p.m.", "at 5 : 30 pm"),
        ("the u.s. flag", "the us flag"),
        ("mr. smith", "mr. smith"),
        ("no. 5", "no . 5"),
        ("1,000 birds , 3.5 boxes", "1,000 birds , 3.5 boxes"),
        ("-lrb- very -rrb-", "-lrb- very -rrb-"),
        ("and / or & so...", "and / or & so ..."),
        ("A Dog", "a dog"),
    ],
)
def test_sentences_are_normalised_as_the_original_does(tokens: str, words: str) -> None:
    assert normalise(tokens.split()) == words.split()


# Alignment


def exact(candidate: str, reference: str) -> list[list[Match]]:
    return [[Match(EXACT, j, 1, i, 1) for i, w in enumerate(candidate) if w == v] for j, v in enumerate(reference)]


def try_all(possible: list[list[Match]]) -> tuple[int, int]:
    """The most matches and, with as many, the fewest chunks."""
    pairs = [match for choices in possible for match in choices]
    best = (0, 0)
    for count in range(1, len(pairs) + 1):
        for chosen in combinations(pairs, count):
            if len({m.start for m in chosen}) == len({m.place for m in chosen}) == count:
                best = min(best, (-count, count_chunks(list(chosen))))
    return -best[0], best[1]


@settings(max_examples=60, deadline=None)
@given(st.text("abc", max_size=4), st.text("abc", max_size=4))
def test_most_matches_then_fewest_chunks(candidate: str, reference: str) -> None:
    possible = exact(candidate, reference)
    found = search(possible)
    assert len({m.start for m in found}) == len({m.place for m in found}) == len(found)
    if sum(map(len, possible)) <= 10:
        assert (len(found), count_chunks(found)) == try_all(possible)


def test_repeated_words_are_aligned_in_long_runs() -> None:
    found = search(exact("abac", "acab"))
    assert [(match.place, match.start) for match in found] == [(0, 2), (1, 3), (2, 0), (3, 1)]
    assert count_chunks(found) == 2


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_chunks_are_runs_in_both_sentences(order: tuple[int, ...]) -> None:
    matches = [Match(EXACT, place, 1, start, 1) for place, start in enumerate(order)]
    breaks = sum(b != a + 1 for a, b in pairwise(order))
    assert count_chunks(matches) == breaks + 1


def test_equal_sentences_need_no_stems() -> None:
    tables = MeteorTables()
    sentence = read_sentence(["run", "runs", "running"], tables)
    matches, chunks = Aligner(tables.wordnet, {}).align(sentence, sentence)
    assert [match.stage for match in matches] == [EXACT] * 3
    assert chunks == 1
    other = MeteorSentence(("runs",), ("run",), (False,))
    assert Aligner(tables.wordnet, {}).align(other, sentence)[0][0].stage == EXACT
    assert Aligner(tables.wordnet, {}).align(other, read_sentence(["running"], tables))[0][0].stage == STEM


# Tables


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as pycocoevalcap has it, with a handful of words."""
    with zipfile.ZipFile(tmp_path / "meteor-1.5.jar", "w") as jar:
        jar.writestr("synonym/english.synsets", "bike\n1 2\nbicycle\n2\nmouse\n7\nrodent\n7 8\n")
        jar.writestr("synonym/english.exceptions", "mouse\nmice\n")
        jar.writestr("function/english.words", "a\nthe\n")
        jar.writestr("nonbreaking/english.prefixes", "# comment\nno #NUMERIC_ONLY#\nft\n")
    (tmp_path / "data").mkdir()
    with gzip.open(tmp_path / "data" / "paraphrase-en.gz", "wt") as file:
        file.write("0.5\nnext to\nbeside\n0.1\nin the middle of\namid\n0.2\nunheard\nof\n")
    return tmp_path


def test_synonyms_match(folder: Path) -> None:
    tables = read_meteor_tables(folder)
    assert tables.stages == ("exact", "stem", "synonym", "paraphrase")
    assert score("a bike", "a bicycle") < score("a bike", "a bicycle", tables=tables) < 1
    assert score("two mice", "two rodents", tables=tables) == pytest.approx((0.75 + 0.8 * 0.75) / 1.5)


def test_paraphrases_match_in_both_directions(folder: Path) -> None:
    tables = read_meteor_tables(folder)
    one, other = "dog next to cat", "dog beside cat"
    for candidate, reference in ((one, other), (other, one)):
        long = (2 * 0.75 + 0.6 * 2 * 0.75) / 3
        short = (2 * 0.75 + 0.6 * 0.75) / 2.25
        precision, recall = (long, short) if candidate == one else (short, long)
        assert score(candidate, reference, tables=tables) == pytest.approx(1 / (0.15 / precision + 0.85 / recall))


def test_only_paraphrases_of_these_captions_are_kept(folder: Path) -> None:
    path = folder / "data" / "paraphrase-en.gz"
    assert read_paraphrases(path, {"next to", "beside", "of"}) == {"next to": ["beside"]}


def test_word_lists_of_the_archive_are_used(folder: Path) -> None:
    tables = read_meteor_tables(folder)
    assert tables.function_words == {"a", "the"}
    assert tables.abbreviations == {"ft"}
    (folder / "data" / "paraphrase-en.gz").unlink()
    assert read_meteor_tables(folder).stages == ("exact", "stem", "synonym")


def test_what_is_no_table_is_answered(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=r"neither meteor-1\.5\.jar"):
        read_meteor_tables(tmp_path / "data")
    table = folder / "data" / "paraphrase-en.gz"
    table.write_bytes(table.read_bytes()[:-12])
    with pytest.raises(SaccadeError, match="not a whole gzip file"):
        read_paraphrases(table, {"of"})
    table.write_bytes(gzip.compress(b"0.5\nnext to\n"))
    with pytest.raises(SaccadeError, match="three lines an entry"):
        read_paraphrases(table, {"of"})
    (folder / "meteor-1.5.jar").write_bytes(b"no archive")
    with pytest.raises(SaccadeError, match=r"meteor-1\.5\.jar is not the archive"):
        read_meteor_tables(folder)


# The original


@pytest.mark.parametrize(
    ("name", "order", "equal"), [("toy", 0.94, 0.8), ("fakecap", 0.94, 0.9)], ids=["toy", "fakecap"]
)
def test_words_and_stems_alone_come_near_the_original(name: str, order: float, equal: float) -> None:
    """Its paraphrases and synonyms are missing; where no caption needs them the figures are its own."""
    texts, scores = (json.loads((GOLDEN / f"{name}_{part}.json").read_text()) for part in ("tokenized", "scores"))
    images = list(texts["candidates"])
    found = meteor(
        [texts["candidates"][image].split() for image in images],
        [[text.split() for text in texts["references"][image]] for image in images],
    )
    wanted = np.array([scores["per_image"][image]["METEOR"] for image in images])
    assert kendall(found.each, wanted).b > order
    assert (np.abs(found.each - wanted) < 1e-6).mean() > equal
    assert abs(found.corpus - scores["corpus"]["METEOR"]) < 0.006
