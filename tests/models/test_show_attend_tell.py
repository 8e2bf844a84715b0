"""Show, Attend and Tell: its equations by hand, exact masks, what the penalty asks, and that REINFORCE is unbiased."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from saccade.batch import END, PAD, START, RegionBatch, TeacherForced, TextBatch
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models import ShowAttendTell, ShowAttendTellConfig
from saccade.models.show_attend_tell import draw

SMALL = ShowAttendTellConfig(region_dim=12, word_dim=7, dim=10, attention_dim=5, dropout=0.0)
TUTORIAL = {
    "attention_layers": 1,
    "activation": "relu",
    "gate": "vector",
    "first_layers": 1,
    "first_tanh": False,
    "deep_output": False,
    "coverage_over": "mean",
}
FORMS: dict[str, dict[str, Any]] = {
    "paper": {},
    "tutorial": TUTORIAL,
    "hard": {"attention": "hard"},
    "hard by words": {"attention": "hard", "reward": "word", "semi_sampling": 1.0, "output_layers": 2},
    "hard by means": {"attention": "hard", "reward": "mean", "gate": "none", "context_shortcut": False},
    "none": {"attention": "none"},
}


def build(vocabulary: Vocabulary, **switches: Any) -> ShowAttendTell:
    torch.manual_seed(0)
    return ShowAttendTell(replace(SMALL, **switches), vocabulary).double()


def lesson(
    model: ShowAttendTell, images: RegionBatch, texts: TextBatch
) -> tuple[Tensor, dict[str, Tensor], TeacherForced]:
    """Cross-entropy, the model's own losses, and what was told."""
    forced, labels, wanted = model(images, texts), texts.tokens[:, 1:], texts.mask[:, 1:]
    nll = -forced.log_probabilities.gather(2, labels.masked_fill(~wanted, END)[:, :, None])[:, :, 0] * wanted
    return nll.sum() / wanted.sum(), model.own_losses(forced, labels, nll, wanted), forced


def test_the_paper_by_hand(vocabulary: Vocabulary, toy_images: RegionBatch) -> None:
    """Equations 1–7 for the second picture, which has two regions, after <start> and after one word."""
    model = build(vocabulary).eval()
    images = toy_images.to(dtype=torch.float64)
    forced = model.teacher_force(model.start(images), torch.tensor([[START, 4]] * 4))
    regions = images.features[1, :2]
    w = {name: value.detach() for name, value in model.named_parameters()}

    def linear(name: str, x: Tensor) -> Tensor:
        return w[f"{name}.weight"] @ x + w.get(f"{name}.bias", 0)

    first = linear("first.0", regions.mean(dim=0)).relu()
    h, c = linear("first_hidden", first).tanh(), linear("first_cell", first).tanh()
    for step, word in enumerate((START, 4)):
        keys = [linear("look.deeper.0", linear("look.region", a)).tanh() for a in regions]
        alpha = torch.cat([linear("look.weigh", (key + linear("look.state", h)).tanh()) for key in keys]).softmax(0)
        context = linear("gate", h).sigmoid() * (alpha @ regions)
        read = w["embed.weight"][word]
        sums = w["lstm.weight_ih"] @ torch.cat([read, context]) + w["lstm.bias_ih"]
        enter, forget, candidate, leave = (sums + w["lstm.weight_hh"] @ h + w["lstm.bias_hh"]).chunk(4)
        c = forget.sigmoid() * c + enter.sigmoid() * candidate.tanh()
        h = leave.sigmoid() * c.tanh()
        logits = linear("say", (read + linear("of_hidden", h) + linear("of_context", context)).tanh())
        logits[[PAD, START]] = float("-inf")
        torch.testing.assert_close(forced.weights[1, step], torch.cat([alpha, torch.zeros(3).double()]))
        torch.testing.assert_close(forced.log_probabilities[1, step], logits.log_softmax(dim=0))


@pytest.mark.parametrize("form", FORMS)
def test_padding_changes_no_loss_and_no_gradient_in_training(
    form: str, vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    images, results = toy_images.to(dtype=torch.float64), []
    for regions, words in ((0, 0), (6, 4)):
        model = build(vocabulary, **FORMS[form]).train()
        torch.manual_seed(1)
        loss, own, _ = lesson(model, images.pad(regions), toy_texts.pad(words))
        (loss + sum(own.values())).backward()
        results.append([loss, *own.values(), *model.buffers(), *(p.grad for p in model.parameters())])
    for plain, padded in zip(*results, strict=True):
        torch.testing.assert_close(padded, plain, rtol=1e-9, atol=1e-9)


def test_the_penalty_counts_how_often_regions_were_looked_at(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    """Equation 14, given for each word; in the tutorial's form a mean over captions and regions."""
    model = build(vocabulary, coverage=0.5)
    images = toy_images.to(dtype=torch.float64)
    _, own, forced = lesson(model, images, toy_texts)
    steps, counts = (toy_texts.lengths - 1).tolist(), images.mask.sum(dim=1).tolist()
    each = [(1 - forced.weights[i, : steps[i], : counts[i]].sum(dim=0)).square() for i in range(4)]
    torch.testing.assert_close(own["coverage_loss"], 0.5 * torch.cat(each).sum() / sum(steps))
    mean = build(vocabulary, coverage=0.5, coverage_over="mean")
    torch.testing.assert_close(
        lesson(mean, images, toy_texts)[1]["coverage_loss"], 0.5 * torch.stack([part.mean() for part in each]).mean()
    )
    assert lesson(build(vocabulary, coverage=0.0), images, toy_texts)[1] == {}


def test_reinforce_is_unbiased(vocabulary: Vocabulary, toy_images: RegionBatch) -> None:
    """Over all draws, weighted by their chances, the gradient is that of the expected cost, whatever the baseline."""
    image = toy_images.to(dtype=torch.float64).select([0])
    text = TextBatch.of([[START, 5]])  # one word to say, so one look
    options = {"attention": "hard", "semi_sampling": 1.0, "reinforce": 1.0, "entropy": 0.0}

    def told_of(region: int) -> tuple[ShowAttendTell, Tensor, Tensor, TeacherForced]:
        model = build(vocabulary, **options).train()
        model.baseline.fill_(0.7)
        shares = model.eval()(image, text).weights[0, 0].detach()
        reached = shares.cumsum(0)
        chances = iter([torch.zeros(1), (reached[region] - shares[region] / 2)[None]])
        model.chance = lambda *_, **__: next(chances)
        loss, own, forced = lesson(model.train(), image, text)
        assert forced.extras["taken"][0, 0].tolist() == [float(i == region) for i in range(5)]
        return model, loss, loss + sum(own.values()), forced

    estimate, exact = [], []
    for region in range(5):
        model, cost, loss, forced = told_of(region)
        share = forced.weights[0, 0, region]
        loss.backward(retain_graph=True)
        estimate.append([share.item() * p.grad for p in model.parameters() if p.grad is not None])
        model.zero_grad()
        (share * cost).backward()
        exact.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    for found, expected in zip(zip(*estimate, strict=True), zip(*exact, strict=True), strict=True):
        torch.testing.assert_close(torch.stack(found).sum(dim=0), torch.stack(expected).sum(dim=0))


def test_the_baseline_follows_the_cost_of_captions(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    for reward in ("caption", "mean"):
        model = build(vocabulary, attention="hard", reward=reward).train()
        model.baseline.fill_(2.0)
        _, _, forced = lesson(model, toy_images.to(dtype=torch.float64), toy_texts)
        wanted, labels = toy_texts.mask[:, 1:], toy_texts.tokens[:, 1:]
        nll = -(forced.log_probabilities.gather(2, labels.masked_fill(~wanted, END)[..., None])[..., 0] * wanted)
        costs = nll.sum(dim=1) if reward == "caption" else nll.sum(dim=1) / wanted.sum(dim=1)
        assert model.baseline.item() == pytest.approx(0.9 * 2.0 + 0.1 * costs.mean().item())


def test_looks_are_drawn_by_their_shares_and_never_from_padding() -> None:
    torch.manual_seed(0)
    shares = torch.tensor([[0.2, 0.5, 0.3, 0.0]]).expand(20000, -1)
    drawn = draw(shares, torch.rand(20000))
    torch.testing.assert_close(drawn.mean(dim=0), shares[0], atol=0.02, rtol=0)
    short = torch.tensor([[0.3, 0.3, 0.3999, 0.0]])  # rounding may leave a sum below one
    assert draw(short, torch.tensor([0.99999])).tolist() == [[0, 0, 1, 0]]


def test_which_pictures_are_sampled_is_drawn_for_whole_captions(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    images = toy_images.select([0, 0, 3, 3] * 16).to(dtype=torch.float64)
    texts = toy_texts.select([1] * 64)
    model = build(vocabulary, attention="hard").train()
    _, _, forced = lesson(model, images, texts)
    one_hot = (forced.extras["taken"] == 1).any(dim=2)
    assert (one_hot.all(dim=1) | ~one_hot.any(dim=1)).all()
    assert 10 < one_hot[:, 0].sum() < 54
    never = build(vocabulary, attention="hard", semi_sampling=0.0).train()
    soft = build(vocabulary).train()
    torch.testing.assert_close(lesson(never, images, texts)[0], lesson(soft, images, texts)[0])


def test_hard_attention_at_test(vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch) -> None:
    """Expected looks are those of soft attention; the likeliest go to one region."""
    images = toy_images.to(dtype=torch.float64)
    soft, expected, likeliest = (
        build(vocabulary, **switches).eval()(images, toy_texts)
        for switches in ({}, {"attention": "hard"}, {"attention": "hard", "at_test": "likeliest"})
    )
    torch.testing.assert_close(expected.log_probabilities, soft.log_probabilities)
    assert likeliest.extras["taken"].sum(dim=2).eq(1).all()
    torch.testing.assert_close(likeliest.extras["taken"].argmax(dim=2), likeliest.weights.argmax(dim=2))


def test_without_attention_all_regions_count_alike(vocabulary: Vocabulary, toy_images: RegionBatch) -> None:
    model = build(vocabulary, attention="none").eval()
    output = model.step(torch.tensor([START] * 4), model.start(toy_images.to(dtype=torch.float64)))
    counts = toy_images.mask.sum(dim=1, keepdim=True)
    torch.testing.assert_close(output.weights, (toy_images.mask / counts).double())


@pytest.mark.parametrize("form", ["paper", "tutorial", "hard", "none"])
def test_it_learns_which_picture_is_which(
    form: str, vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    torch.manual_seed(0)
    sizes = replace(SMALL, dim=32, word_dim=16, attention_dim=16, dropout=0.1)
    model = ShowAttendTell(replace(sizes, **FORMS[form]), vocabulary)
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-2)
    for _ in range(80):
        optimiser.zero_grad()
        loss, own, _ = lesson(model.train(), toy_images, toy_texts)
        (loss + sum(own.values())).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    assert lesson(model.eval(), toy_images, toy_texts)[0] < 0.15


def test_bad_settings_are_told() -> None:
    with pytest.raises(SaccadeError, match="attention_layers must be at least 1, not 0"):
        ShowAttendTellConfig(attention_layers=0)
    with pytest.raises(SaccadeError, match="semi_sampling must be between 0 and 1"):
        ShowAttendTellConfig(semi_sampling=1.5)


def test_word_vectors_start_as_large_as_asked(vocabulary: Vocabulary) -> None:
    torch.manual_seed(0)
    published = ShowAttendTell(SMALL, vocabulary).embed.weight
    torch.manual_seed(0)
    larger = ShowAttendTell(replace(SMALL, word_init_std=1.0), vocabulary).embed.weight
    torch.testing.assert_close(published, larger / 100)
    assert 0.5 < float(larger.detach().std()) < 1.5
