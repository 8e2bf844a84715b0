"""Losses the papers share."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

Negatives = Literal["hardest", "all"]
RankingLoss = Literal["triplet", "bce", "contrastive"]
Ways = Literal["both", "texts", "images"]  # which negatives count


def triplet_loss(
    similarity: Float[Tensor, "image text"],
    margin: float = 0.2,
    negatives: Negatives = "hardest",
    positive: Bool[Tensor, "image text"] | None = None,
    owner: Int[Tensor, " text"] | None = None,
    hardest: int = 1,
    ways: Ways = "both",
) -> Float[Tensor, ""]:
    """Hinge loss over matched pairs, both ways, summed over the batch as the official code does.

        all:     Σ_{i≠j} [m + S_ij − S_ii]₊ + [m + S_ij − S_jj]₊
        hardest: Σ_i max_{j≠i} [m + S_ij − S_ii]₊ + Σ_j max_{i≠j} [m + S_ij − S_jj]₊

    The pairs are the diagonal; or, with `owner`, text t and picture `owner[t]`, any number of texts a picture.
    `positive` marks further pairs that match (two captions of one picture) and so are no negatives. With `hardest`
    k the mean of the k largest takes the place of the largest; of `ways`, only wrong texts or images may count.
    """
    own, match, owner = _pairs(similarity, positive, owner)
    if negatives == "hardest":
        wrong = similarity.masked_fill(match, -torch.inf)
        if hardest == 1:
            found = wrong.amax(dim=1)[owner] - own, wrong.amax(dim=0) - own
        else:
            texts = wrong.topk(min(hardest, wrong.shape[1]), dim=1).values[owner].T
            found = texts - own, wrong.topk(min(hardest, wrong.shape[0]), dim=0).values - own
        if hardest == 1 and ways == "both":
            return (margin + torch.stack(found)).clamp(min=0).sum()
        costs = [(margin + cost).clamp(min=0).sum() / max(1, cost.numel() // len(own)) for cost in found]
    else:
        caption_cost = (margin + similarity[owner] - own[:, None]).clamp(min=0).masked_fill(match[owner], 0)
        image_cost = (margin + similarity - own).clamp(min=0).masked_fill(match, 0)
        costs = [caption_cost.sum(), image_cost.sum()]
    return costs[0] + costs[1] if ways == "both" else costs[ways == "images"]


def binary_loss(
    similarity: Float[Tensor, "image text"],
    negatives: Negatives = "hardest",
    positive: Bool[Tensor, "image text"] | None = None,
    owner: Int[Tensor, " text"] | None = None,
) -> Float[Tensor, ""]:
    """Binary cross-entropy over scores in 0..1, with l_ij = log(1 − S_ij) for pairs that do not match (CAMP).

        hardest: −(2 Σ_i log S_ii + Σ_i min_j l_ij + Σ_j min_i l_ij), summed over the batch
        all:     −(mean of log S_ii + mean of l over the whole table), as the official code has it

    `positive` and `owner` are those of `triplet_loss`.
    """
    own, match, owner = _pairs(similarity.clamp(1e-6, 1 - 1e-6), positive, owner)
    wrong = (1 - similarity.clamp(1e-6, 1 - 1e-6)).log().masked_fill(match, 0)
    if negatives == "all":
        return -(own.log().mean() + wrong.mean())
    return -(2 * own.log().sum() + wrong.amin(dim=1)[owner].sum() + wrong.amin(dim=0).sum())


def contrastive_loss(
    similarity: Float[Tensor, "image text"],
    temperature: float = 0.05,
    positive: Bool[Tensor, "image text"] | None = None,
    owner: Int[Tensor, " text"] | None = None,
) -> Float[Tensor, ""]:
    """Cross-entropy of finding a text's picture and a picture's text among all others, both ways, summed over texts.

        −Σ_i log e^{S_ii / τ} / (e^{S_ii / τ} + Σ_{j≠i} e^{S_ij / τ}) − the same with i and j exchanged

    `positive` and `owner` are those of `triplet_loss`.
    """
    own, match, owner = _pairs(similarity / temperature, positive, owner)
    wrong = (similarity / temperature).masked_fill(match, -torch.inf)
    texts = torch.logaddexp(wrong.logsumexp(dim=1)[owner], own)
    images = torch.logaddexp(wrong.logsumexp(dim=0), own)
    return (texts + images - 2 * own).sum()


def focal_loss(
    logits: Float[Tensor, "*item"], right: Bool[Tensor, "*item"], alpha: float = 0.25, gamma: float = 2.0
) -> Float[Tensor, "*item"]:
    """−α (1 − p)^γ log p where it is right, −(1 − α) p^γ log(1 − p) elsewhere (Lin et al., 2017)."""
    chance = logits.sigmoid()
    yes, no = functional.logsigmoid(logits), functional.logsigmoid(-logits)
    return -torch.where(right, alpha * (1 - chance) ** gamma * yes, (1 - alpha) * chance**gamma * no)


def distillation_loss(
    similarity: Float[Tensor, "image text"], teacher: Float[Tensor, "image text"], temperature: float
) -> Float[Tensor, ""]:
    """A teacher's ranking as soft targets: KL(q ‖ p) over the texts of each picture and the pictures of each text.

        p = softmax(S / τ),   q = softmax(S_teacher / τ),   τ Σ KL: the gradient of a hinge's size, one for each text

    A picture's part counts as often as it has texts, as in `triplet_loss`.
    """
    loss = similarity.new_zeros(())
    for dim in (0, 1):
        student, target = (similarity / temperature).log_softmax(dim), (teacher / temperature).softmax(dim)
        loss = loss + functional.kl_div(student, target, reduction="sum") / similarity.shape[1 - dim]
    return temperature * similarity.shape[1] * loss


def _pairs(
    similarity: Float[Tensor, "image text"],
    positive: Bool[Tensor, "image text"] | None,
    owner: Int[Tensor, " text"] | None,
) -> tuple[Float[Tensor, " text"], Bool[Tensor, "image text"], Int[Tensor, " text"]]:
    """The similarity of each matched pair, which pairs are no negatives, and the picture of each text."""
    images, texts = similarity.shape
    if owner is None:
        owner = torch.arange(texts, device=similarity.device)
    own = similarity.gather(0, owner[None])[0]
    match = torch.arange(images, device=similarity.device)[:, None] == owner
    return own, match if positive is None else match | positive, owner
