from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from saccade.core.errors import SaccadeError
from saccade.nn.transformer import Layer, attend_over, places_of, run_layers
from saccade.nn.transformer.streams import CoAttention, Interaction, Sizes, Streams

SIZES = Sizes(dim=12, heads=3, image_heads=2, hidden=20, image_hidden=16, dropout=0.0, attention_dropout=0.0)


def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2, [True] * 1 + [False] * 4])
    return torch.randn(3, 5, 12, dtype=torch.float64), mask


def test_a_layer_is_pytorchs_own() -> None:
    torch.manual_seed(1)
    layer = Layer(12, 3, 20).double()
    theirs = nn.TransformerEncoderLayer(
        12, 3, 20, dropout=0.0, activation="gelu", layer_norm_eps=1e-12, batch_first=True, dtype=torch.float64
    )
    state = {
        "self_attn.in_proj": layer.qkv, "self_attn.out_proj.": layer.project, "linear1.": layer.fc1,
        "linear2.": layer.fc2, "norm1.": layer.norm1, "norm2.": layer.norm2,
    }  # fmt: skip
    names = {"self_attn.in_proj": "_"}
    theirs.load_state_dict(
        {f"{k}{names.get(k, '')}{kind}": getattr(m, kind) for k, m in state.items() for kind in ("weight", "bias")}
    )
    states, mask = batch()
    found = run_layers([layer], states, mask)
    torch.testing.assert_close(found[mask], theirs(states, src_key_padding_mask=~mask)[mask])


@pytest.mark.parametrize("recompute", [False, True])
def test_packed_and_padded_batches_give_the_same_states_and_gradients(recompute: bool) -> None:
    torch.manual_seed(1)
    layers = nn.ModuleList(Layer(12, 3, 20) for _ in range(2)).double()
    found = []
    for packed in (False, True):
        states, mask = batch()
        layers.zero_grad()
        after = run_layers(layers, states, mask, places_of(mask) if packed else None, recompute)
        (after * mask[..., None]).sin().sum().backward()
        found.append([after[mask], *(p.grad for p in layers.parameters())])
        assert not packed or not after[~mask].any()
    for padded, alone in zip(*found, strict=True):
        torch.testing.assert_close(padded, alone)


def test_what_is_attended_to_is_what_the_layer_sums() -> None:
    torch.manual_seed(1)
    layer = Layer(12, 3, None, cross=True).double()
    states, mask = batch()
    queries, keys = torch.randn(3, 2, 12, dtype=torch.float64), attend_over(mask)
    weights = layer.weights(queries, keys, states)
    torch.testing.assert_close(weights.sum(dim=3), torch.ones(3, 3, 2, dtype=torch.float64))
    assert not weights.masked_select(~keys).any()
    values = layer.context(states)[..., 12:].unflatten(2, (3, 4)).transpose(1, 2)
    attended = layer.project((weights @ values).transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(queries, keys, states), layer.norm1(queries + attended))


def frameworks() -> dict[str, Streams]:
    torch.manual_seed(1)
    return {
        "interaction": Interaction(SIZES, 2, 1, 1).double(),
        "one stream": Interaction(SIZES, 2, 0, 0).double(),
        "co-attention": CoAttention(SIZES, 1, 0, 2, feeds=True).double(),
        "cross-modality": CoAttention(SIZES, 2, 1, 1, feeds=False).double(),
    }


@pytest.mark.parametrize("name", frameworks())
def test_streams_read_each_other_and_no_padding(name: str) -> None:
    streams = frameworks()[name]
    regions, region_mask = batch()
    words, word_mask = regions[:, :4].flip(0) + 1, torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]]).bool()
    found = streams(regions, region_mask, words, word_mask)
    noisy = streams(regions + ~region_mask[..., None], region_mask, words + 3.0 * ~word_mask[..., None], word_mask)
    changed = streams(regions * 2, region_mask, words, word_mask), streams(regions, region_mask, words * 2, word_mask)
    for side, mask in enumerate((region_mask, word_mask)):
        torch.testing.assert_close(noisy[side][mask], found[side][mask])
        assert not torch.allclose(changed[1 - side][side][mask], found[side][mask])  # the other side was changed
    seen: list[Tensor] = []
    looked = streams(regions, region_mask, words, word_mask, seen.append)
    torch.testing.assert_close(looked[1][word_mask], found[1][word_mask])
    assert {tuple(weights.shape) for weights in seen} == {(3, 3, 4, 5)}


def test_heads_must_share_the_width_out() -> None:
    with pytest.raises(SaccadeError, match="10 wide cannot be shared out among 4 heads"):
        Layer(10, 4, 8)
