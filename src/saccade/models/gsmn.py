"""GSMN: Graph Structured Network for Image-Text Matching (Liu, Mao, Zhang, Xie, Wang, Zhang; CVPR 2020).

SCAN asks how well each word finds its regions. GSMN keeps the answer as a vector and lets it travel along the edges of
two graphs, words that depend on each other and regions that lie around each other, so that a phrase is matched as a
phrase: "red" has to be found where "cube" is. `docs/systems/gsmn.md` has the equations in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from saccade.batch import Alignment, ImageCode, RegionBatch, TextBatch, TextCode
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.language.parsing.parser import shared_parser
from saccade.models.base.registry import register
from saccade.models.fragments import FragmentConfig, FragmentMatcher
from saccade.nn import (
    BlockMatch,
    GaussianKernels,
    GraphConvolution,
    all_pairs,
    block_match,
    full_precision,
    likeness_weights,
    to_themselves,
)
from saccade.nn.block_match import block_cosines, with_grams
from saccade.ops import AttentionForm, pool
from saccade.ops.block_cosines import block_cosines as block_cosines_16
from saccade.ops.block_cosines import pack_pictures, pack_sentences, suits_block_cosines
from saccade.ops.kernels import on_gpu_of
from saccade.ops.native.attention import NativeAttention, native_attention

CACHED = 512  # sentences whose words and Gram matrices a GPU's cache holds, while picture after picture asks for them


@dataclass(frozen=True)
class GsmnConfig(FragmentConfig):
    """The paper's settings for Flickr30k."""

    blocks: int = 16  # t: a match is a vector of so many cosines
    hidden: int = 32  # of the structure level
    kernels: int = 8  # K
    sharpness: float = 20.0  # λ: how hard a node chooses on the other side
    slope: float = 0.1  # of negative scores, as in SCAN
    link_sharpness: float = 20.0  # λ of a word among the words of its sentence; the paper has one λ for all
    text_graph: Literal["sparse", "dense"] = "sparse"  # edges from a parser, or between all words
    graphs: Literal["both", "visual", "textual"] = "both"
    structure: bool = True  # False: nodes are matched and scored, nothing travels
    message_passing: bool = True  # False: the released code, where every neighbour is the node itself
    parser: str = "rules"  # what reads a sentence for the sparse graph: rules, spacy, file:PATH


@register(
    "gsmn", task="matching", title="Graph Structured Network for Image-Text Matching", venue="Liu et al., CVPR 2020"
)
class Gsmn(FragmentMatcher):
    Config = GsmnConfig

    def __init__(self, config: GsmnConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        if config.blocks < 1 or config.dim % config.blocks:
            raise SaccadeError(f"dim={config.dim} does not fall into blocks={config.blocks}: make it a multiple")
        self.form = AttentionForm("clipped_l2", config.sharpness, config.slope)
        travels = config.structure and config.message_passing
        if config.graphs != "textual":
            self.visual = MatchedGraph(config, bias=travels)  # the released code has none here
            if config.structure:
                self.places = GaussianKernels(config.kernels)
        if config.graphs != "visual":
            self.textual = MatchedGraph(config, bias=True)
        self.parses = travels and config.text_graph == "sparse" and config.graphs != "visual"

    def read(self, texts: Sequence[str]) -> TextBatch:
        batch = super().read(texts)
        if not self.parses:
            return batch
        return replace(batch, links=tuple(parse.links for parse in shared_parser(self.config.parser).parse(texts)))

    def encode_images(self, images: RegionBatch) -> ImageCode:
        return replace(super().encode_images(images), boxes=images.boxes)

    def encode_texts(self, texts: TextBatch) -> TextCode:
        code = super().encode_texts(texts)
        if not self.parses:
            return code
        if len(texts.links) != len(texts):
            raise SaccadeError(
                "these sentences come without their dependencies, which text_graph=sparse needs: "
                "read them with the model's own read(), or take text_graph=dense"
            )
        itself = torch.eye(texts.tokens.shape[1], dtype=torch.bool, device=texts.tokens.device)
        return replace(code, links=(texts.adjacency() | itself) & texts.mask[:, :, None])

    def similarity(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        if suits_block_cosines(images.regions, texts.words, self.config.blocks, self.form):
            with full_precision(images.regions), on_gpu_of(images.regions):
                return self._in_16_bits(self.visual_graph(images), self.textual_graph(texts))
        native = self._native(images, texts)

        def tile(images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
            if native is None:
                return self._compare(images, texts)[1]
            words, regions = block_cosines(images, texts, self.config.blocks, self.config.dim, native)
            return self._score(words, regions, images, texts)

        seen, read = self.visual_graph(images), self.textual_graph(texts)  # once for every item, not for every pair
        if not torch.is_grad_enabled():
            with full_precision(images.regions):
                seen = replace(seen, regions=with_grams(seen.regions, seen.mask, self.config.blocks))
                read = replace(read, words=with_grams(read.words, read.mask, self.config.blocks))
        budget = self.config.budget_mb << 20
        together = 1 if native is None else native.lanes
        size = self._floats_per_pair if native is None else self._graph_floats
        return all_pairs(tile, seen, read, self.parameters(), size, budget, cpu_tile=24 << 20, together=together)

    def align(self, images: ImageCode, texts: TextCode) -> Alignment:
        seen, read = self.visual_graph(images), self.textual_graph(texts)
        match, score = self._compare(seen, read, every_pair=False)
        return Alignment(
            match.weights[:, 0].transpose(1, 2),
            score[:, 0],
            texts.mask,
            images.mask,
            word_score=match.words[:, 0].mean(dim=-1) * texts.mask,
            region_score=match.regions[:, 0].mean(dim=-1) * images.mask,
            word_links=read.links,
            region_links=None if seen.links is None else self.visual.loudness(seen.links),
        )

    def visual_graph(self, images: ImageCode) -> ImageCode:
        """W_e of the regions, one weight for each kernel: polar coordinates through Gaussian kernels."""
        if not self.config.structure or self.config.graphs == "textual":
            return images
        assert images.boxes is not None
        weights = self.places(images.boxes, images.mask)
        return replace(images, links=weights if self.config.message_passing else to_themselves(weights))

    def textual_graph(self, texts: TextCode) -> TextCode:
        """W_e of the words: their likeness, between those that depend on each other or between all."""
        if not self.config.structure or self.config.graphs == "visual":
            return replace(texts, links=None)
        if not self.config.message_passing:  # weights of one row, which sum to one, all meet the same vector
            return replace(texts, links=torch.diag_embed(texts.mask.to(texts.words)))
        links = texts.links if self.config.text_graph == "sparse" else None
        return replace(texts, links=likeness_weights(texts.words, texts.mask, self.config.link_sharpness, links))

    def _compare(
        self, images: ImageCode, texts: TextCode, every_pair: bool = True
    ) -> tuple[BlockMatch, Float[Tensor, "image text"]]:
        """Node level, then structure level, then the sum of both graphs: all pairs, or picture p with sentence p."""
        with full_precision(images.regions):
            match = block_match(images, texts, self.config.blocks, self.form, every_pair, self.config.dim)
            return match, self._score(match.words, match.regions, images, texts, every_pair)

    def _score(
        self,
        words: Float[Tensor, "image text word block"],
        regions: Float[Tensor, "image text region block"],
        images: ImageCode,
        texts: TextCode,
        every_pair: bool = True,
    ) -> Float[Tensor, "image text"]:
        score = words.new_zeros(())
        if self.config.graphs != "textual":
            score = score + self.visual(regions, images.mask, images.links)
        if self.config.graphs != "visual":
            nodes = words.transpose(0, 1) if every_pair else words  # graph by graph
            links = None if texts.links is None else texts.links[..., None]  # one weight for all kernels
            of_texts = self.textual(nodes, texts.mask, links)
            score = score + (of_texts.T if every_pair else of_texts)
        return score

    def _in_16_bits(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        """Mixed precision on a GPU: a kernel for the node level, and one large product for what travels."""
        config, table = self.config, images.regions.new_empty(len(images), len(texts), dtype=torch.float32)
        pictures = pack_pictures(images.regions, images.mask, config.blocks)
        wide, tall = tiles_of(config, images.mask.shape[1], texts.mask.shape[1], len(texts))
        for some in _slices(len(texts), wide):
            part = texts.select(some)
            sentences = pack_sentences(part.words, part.mask, config.blocks)
            read = None
            if config.graphs != "visual" and part.links is not None:
                read = self.textual.folded(part.links[..., None])
            for rows in _slices(len(images), tall):
                words, regions = block_cosines_16(pictures[rows], sentences, self.form)
                score = words.new_zeros((), dtype=torch.float32)
                if config.graphs != "visual":
                    score = score + self.textual.in_16_bits(words, part.mask, read).T
                del words
                if config.graphs != "textual":
                    seen = None if images.links is None else self.visual.folded(images.links[rows])
                    score = score + self.visual.in_16_bits(regions, images.mask[rows], seen)
                table[rows, some] = score
        return table

    def _native(self, images: ImageCode, texts: TextCode) -> NativeAttention | None:
        """Loops of our own, on a CPU and where nothing has to be remembered for a gradient."""
        regions, words = images.regions, texts.words
        if regions.device.type != "cpu" or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
            return None
        work = 4.0 * images.mask.numel() * texts.mask.numel() * self.config.dim
        return native_attention(self.form, torch.promote_types(regions.dtype, words.dtype), work)

    def _floats_per_pair(self, regions: int, words: int) -> int:
        blocks = int(self.config.blocks)
        return 8 * blocks * regions * words + self._graph_floats(regions, words)

    def _graph_floats(self, regions: int, words: int) -> int:
        return 3 * (int(self.config.blocks) + 2 * int(self.config.hidden)) * (regions + words)


def tiles_of(config: GsmnConfig, regions: int, words: int, texts: int) -> tuple[int, int]:
    """How many sentences, and how many pictures with them, keep the 16-bit path within the model's budget."""
    budget = config.budget_mb << 20
    per_pair = 2 * (config.blocks * (regions + words) + 2 * config.hidden * max(regions, words))
    of_text, of_image = (2 * config.blocks * config.hidden * places**2 for places in (words, regions))
    wide = max(1, min(texts, CACHED, budget // 4 // of_text, budget // 2 // per_pair))
    return wide, max(1, budget * 3 // 4 // (wide * per_pair + of_image))


def _slices(count: int, size: int) -> list[slice]:
    """About equal ones."""
    parts = -(-count // size)
    return [slice(count * part // parts, count * (part + 1) // parts) for part in range(parts)]


class MatchedGraph(nn.Module):
    """From a graph whose nodes are matching vectors to one score.

    ĥ_i = ‖_k σ(Σ_j W_e,ijk W_k m_j + b_k),   s = mean over i of W_s σ(W_h ĥ_i + b_h) + b_s
    """

    def __init__(self, config: GsmnConfig, bias: bool) -> None:
        super().__init__()
        width = config.hidden if config.structure else config.blocks
        self.bend = config.message_passing  # σ after the convolution: in the paper, not in the released code
        self.propagate: GraphConvolution | None = None
        if config.structure:
            self.propagate = GraphConvolution(config.blocks, config.hidden, config.kernels, bias)
        self.hidden = weight_norm(nn.Linear(width, config.hidden))
        self.score = weight_norm(nn.Linear(config.hidden, 1))

    def forward(
        self,
        nodes: Float[Tensor, "graph other node block"],
        mask: Bool[Tensor, "graph node"],
        links: Float[Tensor, "graph node node #kernel"] | None,
    ) -> Float[Tensor, "graph other"]:
        if self.propagate is not None and links is not None:
            nodes = self.propagate(nodes, links)
            nodes = nodes.tanh() if self.bend else nodes
        return pool(self.score(self.hidden(nodes).tanh())[..., 0], mask[:, None], "mean")

    def folded(self, links: Float[Tensor, "graph node node #kernel"]) -> Float[Tensor, "graph said heard"] | None:
        return None if self.propagate is None else self.propagate.folded(links, torch.float16)

    def in_16_bits(
        self,
        nodes: Float[Tensor, "graph other node block"],
        mask: Bool[Tensor, "graph node"],
        folded: Float[Tensor, "graph said heard"] | None,
    ) -> Float[Tensor, "graph other"]:
        """The same for nodes of float16, links folded into one matrix; in place, so that no gradient comes through.

        A mean of scores is a score of means: one product more, for eight partial sums, which tensor cores like.
        """
        places = nodes.shape[2]
        if self.propagate is not None and folded is not None:
            nodes = torch.bmm(nodes.flatten(2), folded).view(*nodes.shape[:3], -1)
            nodes = nodes.add_(self.propagate.bias().half()) if self.propagate.has_bias else nodes
            nodes = nodes.tanh_() if self.bend else nodes
        nodes = F.linear(nodes, self.hidden.weight.half(), self.hidden.bias.half()).tanh_()
        share = mask / mask.sum(dim=1, keepdim=True).clamp(min=1)
        which = F.one_hot(torch.arange(places, device=mask.device) % 8, 8) * share[..., None]  # [graph, node, sum]
        readers = which[:, :, None] * self.score.weight[0][:, None]  # [graph, node, hidden, sum]
        sums: Tensor = torch.bmm(nodes.flatten(2), readers.flatten(1, 2).half()).float().sum(dim=-1)
        return sums.add_(self.score.bias * mask.any(dim=1, keepdim=True))

    def loudness(self, links: Float[Tensor, "graph node node kernel"]) -> Float[Tensor, "graph node node"]:
        """The share that a node hears of each neighbour: every kernel counts as much as its weights are large."""
        assert self.propagate is not None
        sizes = torch.stack([weight.norm() for weight in self.propagate.weights()])
        heard = links @ sizes
        return heard / heard.sum(dim=-1, keepdim=True).clamp(min=1e-30)
