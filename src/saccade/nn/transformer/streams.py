"""How words and regions meet in a transformer: the four frameworks of early vision–language pre-training.

interaction       one stream [regions ; words], all tokens attend to all; then a stream of each by itself
                  (InterBERT; without the second half Unicoder-VL)
co-attention      words attend to regions and regions to words, alternating with self-attention in each stream
                  (ViLBERT)
cross-modality    a stream of each by itself; then layers of cross-attention both ways, self-attention and two
                  layers for each token (LXMERT)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from saccade.nn.transformer.blocks import Layer, Places, attend_over, leaves_out_padding, places_of, run_layers

Pair = tuple[Tensor, Tensor]  # states of regions and of words
Look = Callable[[Float[Tensor, "item head word region"]], None]  # is shown what words attend to


@dataclass(frozen=True)
class Sizes:
    """What the layers of the two streams are like, and what is done with padding and memory."""

    dim: int
    heads: int  # of layers that read words
    image_heads: int  # … of those that read regions alone
    hidden: int
    image_hidden: int
    dropout: float
    attention_dropout: float
    packed: bool | None = None  # leave padding out; None: on CPUs, where nothing is lost by counting it
    recompute: bool = False

    def text(self, cross: bool = False, feeds: bool = True) -> Layer:
        hidden = self.hidden if feeds else None
        return Layer(self.dim, self.heads, hidden, self.dropout, self.attention_dropout, cross)

    def image(self, cross: bool = False, feeds: bool = True) -> Layer:
        hidden = self.image_hidden if feeds else None
        return Layer(self.dim, self.image_heads, hidden, self.dropout, self.attention_dropout, cross)


class Streams(nn.Module):
    """States of regions and words in, states that know of each other out."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes

    @abstractmethod
    def forward(
        self,
        regions: Float[Tensor, "item region dim"],
        region_mask: Bool[Tensor, "item region"],
        words: Float[Tensor, "item word dim"],
        word_mask: Bool[Tensor, "item word"],
        look: Look | None = None,
    ) -> Pair: ...

    def places(self, mask: Tensor) -> Places | None:
        """For `run`, of batches that are packed."""
        return places_of(mask) if leaves_out_padding(self.sizes.packed, mask.device) else None

    def run(self, layers: Iterable[nn.Module], states: Tensor, mask: Tensor, places: Places | None) -> Tensor:
        return run_layers(layers, states, mask, places, self.sizes.recompute and self.training)

    def step(self, layer: nn.Module, states: Tensor, keys: Tensor, context: Tensor) -> Tensor:
        """One layer of cross-attention."""
        if self.sizes.recompute and self.training and torch.is_grad_enabled():
            return checkpoint(layer, states, keys, context, use_reentrant=False)  # type: ignore[no-any-return]
        found: Tensor = layer(states, keys, context)
        return found


class Interaction(Streams):
    """All tokens together through `shared` layers, then words and regions apart."""

    def __init__(self, sizes: Sizes, shared: int, text: int, image: int) -> None:
        super().__init__(sizes)
        self.shared = nn.ModuleList(sizes.text() for _ in range(shared))
        self.text = nn.ModuleList(sizes.text() for _ in range(text))
        self.image = nn.ModuleList(sizes.image() for _ in range(image))

    def forward(
        self, regions: Tensor, region_mask: Tensor, words: Tensor, word_mask: Tensor, look: Look | None = None
    ) -> Pair:
        count = regions.shape[1]
        states, mask = torch.cat([regions, words], dim=1), torch.cat([region_mask, word_mask], dim=1)
        both, region_places, word_places = (self.places(one) for one in (mask, region_mask, word_mask))
        if look is None:
            states = self.run(self.shared, states, mask, both)
        else:
            keys = attend_over(mask)
            for layer in self.shared:
                assert isinstance(layer, Layer)
                look(layer.weights(states, keys)[:, :, count:, :count])
                states = layer(states, keys)
        regions, words = states[:, :count], states[:, count:]
        regions = self.run(self.image, regions, region_mask, region_places)
        return regions, self.run(self.text, words, word_mask, word_places)


class CoAttention(Streams):
    """Words through `text` layers, regions through `image` layers, then `cross` times: each attends to the other
    stream, then to itself.

    `feeds`: whether attention to the other stream has two layers for each token of its own. ViLBERT's has, LXMERT's has
    not, and its weights serve both ways.
    """

    def __init__(self, sizes: Sizes, text: int, image: int, cross: int, feeds: bool) -> None:
        super().__init__(sizes)
        self.text = nn.ModuleList(sizes.text() for _ in range(text))
        self.image = nn.ModuleList(sizes.image() for _ in range(image))
        self.to_regions = nn.ModuleList(sizes.text(cross=True, feeds=feeds) for _ in range(cross))
        self.to_words = nn.ModuleList(sizes.image(cross=True) for _ in range(cross)) if feeds else None
        self.text_after = nn.ModuleList(sizes.text() for _ in range(cross))
        self.image_after = nn.ModuleList(sizes.image() for _ in range(cross))

    def forward(
        self, regions: Tensor, region_mask: Tensor, words: Tensor, word_mask: Tensor, look: Look | None = None
    ) -> Pair:
        region_places, word_places = self.places(region_mask), self.places(word_mask)
        words = self.run(self.text, words, word_mask, word_places)
        regions = self.run(self.image, regions, region_mask, region_places)
        region_keys, word_keys = attend_over(region_mask), attend_over(word_mask)
        back = self.to_regions if self.to_words is None else self.to_words
        for to_regions, to_words, text, image in zip(
            self.to_regions, back, self.text_after, self.image_after, strict=True
        ):
            assert isinstance(to_regions, Layer)
            if look is not None:
                look(to_regions.weights(words, region_keys, regions))
            found = self.step(to_regions, words, region_keys, regions), self.step(to_words, regions, word_keys, words)
            words = self.run([text], found[0], word_mask, word_places)
            regions = self.run([image], found[1], region_mask, region_places)
        return regions, words
