from __future__ import annotations

import torch

from saccade.batch import END, START, TextBatch
from saccade.language import Vocabulary
from saccade.nn.masking import content, hide_words, one_span, segments, tokens, with_overlapping
from saccade.nn.negatives import hard_texts, likely_items, other_items

LONG = 40


def many_texts(count: int = 4000) -> TextBatch:
    torch.manual_seed(0)
    lengths = torch.randint(3, LONG, (count,)).tolist()
    return TextBatch.of([[START, *torch.randint(4, 20, (n,)).tolist(), END] for n in lengths])


def runs(hidden: torch.Tensor) -> torch.Tensor:
    """How many pieces follow each other, of each text's first hidden run that does not reach the end."""
    starts = hidden & ~torch.cat([torch.zeros_like(hidden[:, :1]), hidden[:, :-1]], dim=1)
    return hidden.sum() / starts.sum()


def test_only_words_are_hidden() -> None:
    texts = many_texts(200)
    there = content(texts)
    assert not (there & ((texts.tokens == START) | (texts.tokens == END) | ~texts.mask)).any()
    for hidden in (segments(there, 0.5, 3.0), tokens(there, 0.5), one_span(there)):
        assert hidden.any()
        assert not (hidden & ~there).any()


def test_segments_are_three_long_on_average_and_tokens_one() -> None:
    there = torch.ones(3000, 200, dtype=torch.bool)
    assert 2.9 < runs(segments(there, 0.01, 3.0)) < 3.15  # rarely do two meet
    assert runs(segments(there, 0.01, 1.0)) < 1.05
    share = segments(there, 0.1, 3.0).float().mean()
    assert 0.22 < share < 0.28  # 1 − the chance that no segment of the pieces before reaches a piece
    assert abs(float(tokens(there, 0.15).float().mean()) - 0.15) < 0.005


def test_the_released_code_hides_one_span() -> None:
    there = content(many_texts())
    hidden = one_span(there)
    starts = hidden & ~torch.cat([torch.zeros_like(hidden[:, :1]), hidden[:, :-1]], dim=1)
    assert starts.sum(dim=1).max() == 1
    assert not hidden[there.sum(dim=1) < 4].any()  # of three pieces, three tenths are less than one
    assert 0 < (~hidden[there.sum(dim=1) >= 10].any(dim=1)).float().mean() < 0.15  # a start behind the last piece


def test_eight_of_ten_hidden_words_become_the_mask_and_one_another() -> None:
    texts, vocabulary = many_texts(), Vocabulary(("<pad>", "<start>", "<end>", "<unk>", *map(str, range(16))))
    hidden = tokens(content(texts), 0.5)
    shown, target = hide_words(texts, hidden, vocabulary)
    assert torch.equal(target >= 0, hidden)
    assert torch.equal(target[hidden], texts.tokens[hidden])
    assert torch.equal(shown.tokens[~hidden], texts.tokens[~hidden])
    now, before = shown.tokens[hidden], texts.tokens[hidden]
    assert abs(float((now == vocabulary.mask_id).float().mean()) - 0.8) < 0.01
    assert abs(float(((now != vocabulary.mask_id) & (now != before)).float().mean()) - 0.1 * 15 / 16) < 0.01


def test_regions_are_hidden_with_those_that_overlap_them() -> None:
    boxes = torch.tensor([[0, 0, 10, 10], [0, 0, 10, 5], [0, 0, 10, 4], [20, 20, 30, 30.0]])
    anchors = torch.tensor([True, False, False, False])
    assert with_overlapping(anchors, boxes, 0.5).tolist() == [True, False, False, False]  # 0.5 and 0.4 of the first
    assert with_overlapping(anchors, boxes, 0.45).tolist() == [True, True, False, False]
    assert with_overlapping(anchors, boxes, 0.5, inclusive=True).tolist() == [True, True, False, False]  # 11 × 6 / 121
    assert with_overlapping(anchors[[3, 0, 1, 2]], boxes, 0.45).tolist() == [True, True, True, False]


def test_the_hardest_text_is_the_one_most_like_it_that_is_allowed() -> None:
    texts = TextBatch.of([[1, 5, 6, 7, 2], [1, 5, 6, 8, 2], [1, 9, 10, 2], [1, 5, 11, 2]])
    others = ~torch.eye(4, dtype=torch.bool)
    assert hard_texts(texts, others, 12)[:2].tolist() == [1, 0]
    others[0, 1] = False
    assert hard_texts(texts, others, 12)[0] == 3
    torch.manual_seed(0)
    drawn = torch.stack([other_items(others) for _ in range(200)])
    assert not (drawn == torch.arange(4)).any()
    assert set(drawn[:, 0].tolist()) == {2, 3}
    assert set(drawn[:, 2].tolist()) == {0, 1, 3}


def test_likely_items_are_drawn_by_the_softmax_of_their_scores() -> None:
    torch.manual_seed(0)
    scores = torch.tensor([[0.0, 2.0, 1.0, 9.0]]).log_softmax(dim=1).expand(4000, -1)
    allowed = torch.tensor([True, True, True, False]).expand(4000, -1)
    drawn = likely_items(scores, allowed).bincount(minlength=4) / 4000
    torch.testing.assert_close(drawn[:3], torch.tensor([0.0, 2.0, 1.0]).softmax(dim=0), atol=0.04, rtol=0)
    assert drawn[3] == 0
