"""The triplet losses: by hand, against plain loops, and where there is nothing to compare with."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from saccade.nn import Negatives, binary_loss, contrastive_loss, distillation_loss, triplet_loss


def drawn(images: int, texts: int, seed: int = 0) -> Tensor:
    return torch.rand(images, texts, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1


def plain(similarity: Tensor, margin: float, negatives: Negatives, positive: Tensor | None, owner: Tensor) -> float:
    """Pair by pair: sentence t and picture owner[t], against every other sentence and every other picture."""
    scores = similarity.numpy()
    images, texts = scores.shape
    total = 0.0
    for text in range(texts):
        image = int(owner[text])

        def matches(i: int, t: int) -> bool:
            return int(owner[t]) == i or (positive is not None and bool(positive[i, t]))

        own = scores[image, text]
        captions = [max(0.0, margin + scores[image, t] - own) for t in range(texts) if not matches(image, t)]
        pictures = [max(0.0, margin + scores[i, text] - own) for i in range(images) if not matches(i, text)]
        for costs in (captions, pictures):
            total += max(costs, default=0.0) if negatives == "hardest" else sum(costs)
    return total


def test_the_triplet_losses_by_hand() -> None:
    similarity = torch.tensor([[0.5, 0.6, 0.1], [0.2, 0.9, 0.85], [0.45, 0.3, 0.4]])
    captions = [[0.3, 0.0], [0.0, 0.15], [0.25, 0.1]]  # [0.2 + S_ij − S_ii]₊ by row
    images = [[0.0, 0.15], [0.0, 0.0], [0.0, 0.65]]  # [0.2 + S_ij − S_jj]₊ by column
    assert float(triplet_loss(similarity, 0.2, "all")) == pytest.approx(sum(map(sum, captions + images)))
    assert float(triplet_loss(similarity, 0.2, "hardest")) == pytest.approx(sum(map(max, captions + images)))


def test_a_sibling_caption_is_no_negative_when_told_so() -> None:
    similarity = torch.tensor([[0.5, 0.9], [0.9, 0.5]])
    same = torch.ones(2, 2, dtype=torch.bool)
    assert float(triplet_loss(similarity, 0.2, "hardest", same)) == 0.0
    assert float(triplet_loss(similarity, 0.2, "hardest")) == pytest.approx(2 * 0.6 + 2 * 0.6)


@pytest.mark.parametrize("negatives", ["hardest", "all"])
def test_one_text_a_picture_is_the_diagonal(negatives: Negatives) -> None:
    """And it does not matter in which order the texts come."""
    similarity = drawn(7, 7)
    diagonal = triplet_loss(similarity, 0.2, negatives)
    torch.testing.assert_close(triplet_loss(similarity, 0.2, negatives, owner=torch.arange(7)), diagonal)
    order = torch.randperm(7, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(triplet_loss(similarity[:, order], 0.2, negatives, owner=order), diagonal)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_several_texts_a_picture_against_a_plain_loop(data: st.DataObject) -> None:
    images = data.draw(st.integers(1, 5), "images")
    owner = torch.tensor(data.draw(st.lists(st.integers(0, images - 1), min_size=1, max_size=9), "owner"))
    similarity = drawn(images, len(owner), data.draw(st.integers(0, 99), "seed"))
    positive = None
    if data.draw(st.booleans(), "positives"):
        positive = drawn(images, len(owner), data.draw(st.integers(100, 199), "positive seed")) > 0.5
    margin = data.draw(st.sampled_from([0.0, 0.2, 1.0]))
    kinds: tuple[Negatives, ...] = ("hardest", "all")
    for negatives in kinds:
        loss = float(triplet_loss(similarity, margin, negatives, positive, owner))
        assert loss == pytest.approx(plain(similarity, margin, negatives, positive, owner), abs=1e-12)


@pytest.mark.parametrize("negatives", ["hardest", "all"])
def test_one_picture_alone_teaches_nothing_and_breaks_nothing(negatives: Negatives) -> None:
    similarity = drawn(1, 5).requires_grad_()
    loss = triplet_loss(similarity, 0.2, negatives, owner=torch.zeros(5, dtype=torch.long))
    loss.backward()
    assert loss.item() == 0.0
    assert similarity.grad is not None
    assert similarity.grad.tolist() == [[0.0] * 5]


@pytest.mark.parametrize("negatives", ["hardest", "all"])
def test_a_positive_is_never_pushed_away(negatives: Negatives) -> None:
    """A match that scores far above the pair itself would be the hardest negative, were it not known as a match."""
    owner = torch.tensor([0, 0, 1, 2, 2])
    similarity = drawn(3, 5, seed=1) * 0.1
    further = torch.zeros(3, 5, dtype=torch.bool)
    further[1, 0] = further[0, 2] = True
    similarity[further] = 9.0
    similarity[0, 1] = 5.0  # a second caption of picture 0 beside the first
    similarity.requires_grad_()
    loss = triplet_loss(similarity, 0.2, negatives, further, owner)
    loss.backward()
    assert similarity.grad is not None
    assert loss.item() < 10
    assert (similarity.grad[further] == 0).all()
    own = similarity.grad[owner, torch.arange(5)]
    assert (own <= 0).all()  # pairs are pulled together, if anything
    pushed = np.argwhere(similarity.grad.numpy() > 0)
    assert len(pushed)
    assert all(int(owner[text]) != image for image, text in pushed)


def binary_by_hand(scores: Tensor, owner: list[int], hardest: bool) -> float:
    images, texts = scores.shape
    right = [math.log(scores[owner[t], t]) for t in range(texts)]
    wrong = [[0.0 if owner[t] == i else math.log(1 - scores[i, t]) for t in range(texts)] for i in range(images)]
    if not hardest:
        return -(sum(right) / texts + sum(map(sum, wrong)) / (images * texts))
    per_image = sum(min(wrong[owner[t]]) for t in range(texts))
    per_text = sum(min(row[t] for row in wrong) for t in range(texts))
    return -(2 * sum(right) + per_image + per_text)


@pytest.mark.parametrize("negatives", ["hardest", "all"])
@pytest.mark.parametrize("owner", [[0, 1, 2, 3], [0, 0, 1, 2, 2, 3]])
def test_binary_loss_by_its_definition(negatives: Negatives, owner: list[int]) -> None:
    scores = torch.rand(4, len(owner), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = binary_loss(scores, negatives, owner=torch.tensor(owner))
    assert found.item() == pytest.approx(binary_by_hand(scores, owner, negatives == "hardest"))


def test_binary_loss_bears_scores_that_are_certain() -> None:
    scores = torch.tensor([[1.0, 1.0], [0.0, 0.0]], requires_grad=True)
    loss = binary_loss(scores)
    loss.backward()
    assert loss.isfinite()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


@given(images=st.integers(1, 5), texts=st.integers(1, 7), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_the_contrastive_loss_against_plain_loops(images: int, texts: int, seed: int) -> None:
    similarity, temperature = drawn(images, texts, seed), 0.2
    owner = torch.randint(images, (texts,), generator=torch.Generator().manual_seed(seed))
    scores, total = (similarity / temperature).exp().numpy(), 0.0
    for text in range(texts):
        image, own = int(owner[text]), scores[int(owner[text]), text]
        captions = sum(scores[image, t] for t in range(texts) if int(owner[t]) != image)
        pictures = sum(scores[i, text] for i in range(images) if i != image)
        total -= math.log(own / (own + captions)) + math.log(own / (own + pictures))
    assert float(contrastive_loss(similarity, temperature, owner=owner)) == pytest.approx(total, abs=1e-9)
    similarity.requires_grad_()
    contrastive_loss(similarity, temperature, owner=owner).backward()  # type: ignore[no-untyped-call]
    assert similarity.grad is not None
    assert similarity.grad.isfinite().all()


def test_a_teacher_is_followed_by_the_gradient_and_agreement_costs_nothing() -> None:
    teacher = torch.tensor([[0.6, 0.5, 0.1, 0.0], [0.0, 0.2, 0.7, 0.4]], dtype=torch.float64)
    assert float(distillation_loss(teacher, teacher, 0.05)) == pytest.approx(0, abs=1e-12)
    student = torch.zeros_like(teacher, requires_grad=True)
    distillation_loss(student, teacher, 0.05).backward()
    texts, images = (torch.softmax(teacher / 0.05, dim) for dim in (1, 0))
    expected = 4 * ((0.25 - texts) / 2 + (0.5 - images) / 4)  # τ · (p − q) / τ, the means over pictures and over texts
    torch.testing.assert_close(student.grad, expected)
