"""`SentenceGru` is `nn.GRU` with the same parameters: states and gradients must agree to rounding."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from saccade.nn.recurrent import SentenceGru, SentenceLstm

LENGTHS = torch.tensor([3, 9, 1, 9, 4])


def pair(layers: int, bidirectional: bool) -> tuple[nn.GRU, SentenceGru]:
    torch.manual_seed(0)
    theirs = nn.GRU(7, 5, layers, batch_first=True, bidirectional=bidirectional).double()
    ours = SentenceGru(7, 5, layers, bidirectional).double()
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


@pytest.mark.parametrize("padded", [False, True], ids=["as on a CPU", "as on a GPU"])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
def test_states_and_gradients_are_those_of_pytorch(layers: int, bidirectional: bool, padded: bool) -> None:
    theirs, ours = pair(layers, bidirectional)
    one = torch.randn(5, 11, 7, dtype=torch.double, requires_grad=True)
    other = one.detach().clone().requires_grad_()
    packed = pack_padded_sequence(one, LENGTHS, batch_first=True, enforce_sorted=False)
    expected = pad_packed_sequence(theirs(packed)[0], batch_first=True, total_length=11)[0]
    states = ours._padded(other, LENGTHS) if padded else ours(other, LENGTHS)
    torch.testing.assert_close(states, expected)
    pull = torch.randn_like(expected)
    (expected * pull).sum().backward()
    (states * pull).sum().backward()
    torch.testing.assert_close(other.grad, one.grad)
    for (name, parameter), wanted in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, wanted.grad, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize(("bidirectional", "learned"), [(True, True), (True, False), (False, False), (False, True)])
@pytest.mark.parametrize("layers", [1, 2])
def test_an_lstm_reads_padded_sentences_as_packed_ones(layers: int, bidirectional: bool, learned: bool) -> None:
    torch.manual_seed(0)
    lstm = SentenceLstm(7, 5, layers, bidirectional, learned).double()
    start = lstm.initial if lstm.initial is not None else lstm.zeros
    inputs, first = torch.randn(5, 11, 7, dtype=torch.double), start[:, None].expand(-1, 5, -1).chunk(2)
    nothing = inputs.masked_fill(torch.arange(11)[None, :, None] >= LENGTHS[:, None, None], float("nan"))
    gradients = []
    for states, final in (lstm(inputs, LENGTHS), lstm._padded(nothing, LENGTHS, first)):
        draw = torch.Generator().manual_seed(1)
        pulls = [torch.randn(part.shape, generator=draw, dtype=torch.double) for part in (states, final)]
        loss = (states * pulls[0]).sum() + (final * pulls[1]).sum()
        gradients.append([states, final, *torch.autograd.grad(loss, list(lstm.parameters()))])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_dropout_is_between_the_layers_of_an_lstm_alone() -> None:
    """All dropped, the second layer reads nothing; in evaluation, and with one layer, nothing is."""
    torch.manual_seed(0)
    lstm, inputs = SentenceLstm(7, 5, 2, dropout=1.0).double(), torch.randn(5, 11, 7, dtype=torch.double)
    assert lstm.initial is not None
    first = lstm.initial[:, None].expand(-1, 5, -1).chunk(2)
    states, _ = lstm(inputs, LENGTHS)
    torch.testing.assert_close(lstm(-inputs, LENGTHS)[0], states)
    torch.testing.assert_close(lstm._padded(inputs, LENGTHS, first)[0], states)
    lstm.eval()
    assert not torch.equal(lstm(-inputs, LENGTHS)[0], lstm(inputs, LENGTHS)[0])
    one = SentenceLstm(7, 5, 1, dropout=1.0).double()
    assert not torch.equal(one(-inputs, LENGTHS)[0], one(inputs, LENGTHS)[0])


def test_gradients_are_those_of_finite_differences() -> None:
    _, ours = pair(1, True)
    inputs = torch.randn(3, 4, 7, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: ours(x, torch.tensor([2, 4, 1])), (inputs,))


def test_padding_is_zero_and_never_read() -> None:
    _, ours = pair(1, True)
    inputs = torch.randn(5, 9, 7, dtype=torch.double)
    states = ours(inputs, LENGTHS)
    beyond = torch.arange(9)[None, :] >= LENGTHS[:, None]
    assert states[beyond].abs().max() == 0
    for read in (ours, ours._padded):
        torch.testing.assert_close(read(inputs.masked_fill(beyond[..., None], float("nan")), LENGTHS), states)


def test_one_sentence_of_one_word() -> None:
    _, ours = pair(1, True)
    assert ours(torch.randn(1, 1, 7, dtype=torch.double), torch.tensor([1])).shape == (1, 1, 10)
