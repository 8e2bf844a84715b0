"""Document frequencies from files, and the rewards of self-critical training."""

from __future__ import annotations

import pickle
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.batch import END, PAD, START
from saccade.core.errors import SaccadeError
from saccade.metrics.captions.bleu import Bleu
from saccade.metrics.captions.cider import CiderD, DocumentFrequencies
from saccade.metrics.captions.reward import SelfCriticalReward, word_rows

CAPTIONS = [[["a", "dog", "runs"], ["a", "dog"]], [["a", "cat"]], [["two", "cats", "sit"]]]


def test_an_ngram_counts_once_for_a_picture(tmp_path: Path) -> None:
    counted = DocumentFrequencies.of(CAPTIONS)
    assert counted.pictures == 3
    assert counted.counts[("a",)] == 2
    assert counted.counts[("a", "dog")] == 1
    counted.save(tmp_path / "frequencies.json")
    again = DocumentFrequencies.load(tmp_path / "frequencies.json")
    assert again.pictures == 3
    assert again.counts == counted.counts


def test_the_references_own_frequencies_are_the_default() -> None:
    candidates = [["a", "dog"], ["a", "bird", "runs"], ["two"]]
    own = CiderD(CAPTIONS).score(candidates)
    np.testing.assert_allclose(CiderD(CAPTIONS, DocumentFrequencies.of(CAPTIONS)).score(candidates), own, atol=1e-12)


def test_a_word_that_is_everywhere_weighs_nothing() -> None:
    everywhere = DocumentFrequencies(100, {("a",): 100, ("dog",): 1})
    assert CiderD(CAPTIONS, everywhere).score([["a"]], [0])[0] == 0.0
    assert CiderD(CAPTIONS, everywhere).score([["dog"]], [0])[0] > 0.0


def test_ngrams_whose_beginnings_are_not_in_the_file_are_known_all_the_same() -> None:
    longest_only = DocumentFrequencies(10, {("a", "dog"): 5})
    table = DocumentFrequencies(10, {("a", "dog"): 5, ("a",): 0, ("dog",): 0})
    candidates = [["a", "dog", "runs"]]
    np.testing.assert_allclose(
        CiderD(CAPTIONS, longest_only).score(candidates, [0]), CiderD(CAPTIONS, table).score(candidates, [0])
    )


def test_the_pickles_of_self_critical_code_are_read(golden: Path, tmp_path: Path) -> None:
    counted = DocumentFrequencies.load(golden / "updown" / "scst_df.p")
    assert counted.pictures >= 1
    assert all(isinstance(word, str) for ngram in counted.counts for word in ngram)
    ids = counted.rename(lambda word: int(str(word)))
    assert {len(ngram) for ngram in ids.counts} == {1, 2, 3, 4}
    with pytest.raises(SaccadeError, match="words, not ids"):
        ids.save(tmp_path / "ids.json")
    with pytest.raises(SaccadeError, match="fall together"):
        counted.rename(lambda word: "same")


class Harm:
    def __reduce__(self) -> tuple[object, ...]:
        return (print, ("harm",))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"document_frequency": defaultdict(float), "ref_len": Harm()}, "refused: it wants to run builtins.print"),
        ({"document_frequency": {}, "ref_len": 0}, '"ref_len" must be the number of pictures'),
        ({"document_frequency": {("a",): "x"}, "ref_len": 5}, "a number of pictures was expected"),
        ({"document_frequency": {7: 1.0}, "ref_len": 5}, "an n-gram was expected"),
        ({"ref_len": 5}, '"document_frequency" was expected'),
        ([1, 2], '"document_frequency" was expected'),
    ],
)
def test_other_pickles_are_refused(
    tmp_path: Path, content: object, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "df.p"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(SaccadeError, match=said):
        DocumentFrequencies.load(path)
    assert capsys.readouterr().out == ""


def test_damaged_files_are_told(tmp_path: Path) -> None:
    (tmp_path / "df.p").write_bytes(b"\x80\x04nonsense")
    (tmp_path / "df.json").write_text('{"pictures": 3}')
    for name, said in (("df.p", "damaged"), ("df.json", '"document_frequencies" was expected'), ("no.p", "not exist")):
        with pytest.raises(SaccadeError, match=said):
            DocumentFrequencies.load(tmp_path / name)
    with pytest.raises(SaccadeError, match="one to 4 words"):
        CiderD(CAPTIONS, DocumentFrequencies(3, {("a",) * 5: 1}))


REFERENCES = [[[5, 6, 7, END, PAD], [5, 6, END, PAD, PAD]], [[8, 9, 10, 11, END]]]


def test_rows_end_with_their_end() -> None:
    rows = torch.tensor([[START, 5, 6, END, PAD], [5, 6, 7, 8, 9], [END, 5, 5, 5, 5]])
    assert word_rows(rows) == [[5, 6, END], [5, 6, 7, 8, 9], [END]]
    assert word_rows([[5, END, 7]]) == [[5, END]]


def test_a_caption_that_ends_where_people_end_earns_more() -> None:
    reward = SelfCriticalReward(REFERENCES)
    whole, cut = reward(np.array([[8, 9, 10, 11, END], [8, 9, 10, 11, 12]]), [1, 1])
    assert whole == pytest.approx(10.0)
    assert cut < whole


def test_a_reward_is_the_weighted_sum_of_its_metrics() -> None:
    rows, owners = [[5, 6, END], [8, 9, END], [5, 5, 5]], [0, 1, 0]
    ended = [word_rows(references) for references in REFERENCES]
    expected = 2 * CiderD(ended).score(rows, owners) + 0.5 * Bleu(ended).score(rows, owners)[3]
    np.testing.assert_allclose(SelfCriticalReward(REFERENCES, None, 2.0, 0.5)(rows, owners), expected)
    with pytest.raises(SaccadeError, match="other than 0"):
        SelfCriticalReward(REFERENCES, cider_weight=0.0)
