"""Writing captions: step by step as PyTorch's own GRU would, labels and loss by hand, no trace of padding."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from saccade.batch import RegionBatch, TextBatch
from saccade.models.vsrn import CaptionGenerator, caption_labels, caption_loss

WORDS = 20


def generator(bidirectional: bool = False) -> CaptionGenerator:
    torch.manual_seed(0)
    return CaptionGenerator(WORDS, 12, 6, 5, 0.2, bidirectional).double().eval()


def plainly(model: CaptionGenerator, regions: Tensor, words: Tensor) -> Tensor:
    """One picture, one caption, with PyTorch's GRUs and a loop."""
    wide = model.writer.hidden_size
    reader = nn.GRU(6, 6, batch_first=True, bidirectional=model.reader.bidirectional).double()
    reader.load_state_dict(model.reader.state_dict())
    writer = nn.GRU(5 + wide, wide).double()
    writer.load_state_dict({f"{key}_l0": value for key, value in model.writer.state_dict().items()})
    outputs, state = reader(model.project(regions)[None])
    hidden = state.transpose(0, 1).reshape(1, 1, wide)
    said = []
    for word in words:
        pairs = torch.cat([outputs[0], hidden[0].expand(len(regions), -1)], dim=1)
        weights = model.attention.weigh(torch.tanh(model.attention.match(pairs)))[:, 0].softmax(dim=0)
        out, hidden = writer(torch.cat([model.embed(word), weights @ outputs[0]])[None, None], hidden)
        said.append(model.out(out[0, 0]).log_softmax(dim=0))
    return torch.stack(said)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_each_step_is_that_of_a_plain_loop(bidirectional: bool, toy_images: RegionBatch, toy_texts: TextBatch) -> None:
    model, images = generator(bidirectional), toy_images.to(dtype=torch.float64)
    found = model(*model.read(images.features, images.mask), images.mask, toy_texts.tokens)
    for i in range(4):
        expected = plainly(model, images.features[i][images.mask[i]], toy_texts.tokens[i])
        torch.testing.assert_close(found[i], expected)


def test_padding_changes_no_loss(toy_images: RegionBatch, toy_texts: TextBatch) -> None:
    model, images, owner = generator(), toy_images.to(dtype=torch.float64), torch.arange(4)
    plain = model.loss(images.features, images.mask, owner, toy_texts, 60)
    padded = images.pad(5)
    found = model.loss(padded.features, padded.mask, owner, toy_texts.pad(9), 60)
    torch.testing.assert_close(found, plain, rtol=0, atol=1e-12)


def test_captions_of_one_picture_are_written_from_it(toy_images: RegionBatch, toy_texts: TextBatch) -> None:
    model, images = generator(), toy_images.to(dtype=torch.float64)
    owner = torch.tensor([2, 2, 0, 1])
    together = model.loss(images.features, images.mask, owner, toy_texts, 60)
    repeated = images.select(owner)
    apart = model.loss(repeated.features, repeated.mask, torch.arange(4), toy_texts, 60)
    torch.testing.assert_close(together, apart)


def test_labels_end_with_one_pad_that_counts() -> None:
    texts = TextBatch.of([[1, 7, 8, 2], [1, 9, 2]])
    labels, wanted = caption_labels(texts, 6)
    assert labels.tolist() == [[1, 7, 8, 2, 0, 0, 0], [1, 9, 2, 0, 0, 0, 0]]
    assert wanted.int().tolist() == [[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 0, 0, 0]]


@pytest.mark.parametrize(("words", "cut"), [(4, [1, 5, 5, 5, 5, 2, 0]), (5, [1, 5, 5, 5, 5, 2, 0]), (3, None)])
def test_long_captions_are_cut_and_still_end(words: int, cut: list[int] | None) -> None:
    labels, wanted = caption_labels(TextBatch.of([[1, *[5] * words, 2]]), 6)
    assert labels[0].tolist() == (cut or [1, 5, 5, 5, 2, 0, 0])
    assert int(wanted.sum()) == min(words + 2, 6) + 1


@pytest.mark.parametrize("longest", [3, 6, 7, 8, 40])
def test_only_the_steps_that_count_are_taken(longest: int, toy_images: RegionBatch, toy_texts: TextBatch) -> None:
    """As many as the longest caption asks for: the loss is that of all `longest` − 1 steps."""
    model, images = generator(), toy_images.to(dtype=torch.float64)
    labels, wanted = caption_labels(toy_texts, longest)
    spoken = model(*model.read(images.features, images.mask), images.mask, labels[:, : longest - 1])
    by_hand = torch.zeros((), dtype=torch.float64)
    for text in range(4):
        for step in range(longest - 1):
            if wanted[text, step + 1]:
                by_hand -= spoken[text, step, labels[text, step + 1]] / 4
    torch.testing.assert_close(caption_loss(spoken, labels, wanted), by_hand)
    torch.testing.assert_close(model.loss(images.features, images.mask, torch.arange(4), toy_texts, longest), by_hand)


def test_it_runs_in_mixed_precision(toy_images: RegionBatch, toy_texts: TextBatch) -> None:
    model = generator().float().train()
    with torch.autocast("cpu", torch.bfloat16):
        loss = model.loss(toy_images.features, toy_images.mask, torch.arange(4), toy_texts, 60)
    assert loss.dtype == torch.float32
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_it_learns_to_say_what_it_sees(toy_images: RegionBatch, toy_texts: TextBatch) -> None:
    model = generator().float().train()
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    losses = []
    for _ in range(60):
        loss = model.loss(toy_images.features, toy_images.mask, torch.arange(4), toy_texts, 60)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
