"""GSMN: Graph Structured Network for Image-Text Matching (Liu, Mao, Zhang, Xie, Wang, Zhang; CVPR 2020).

SCAN gives each word one cosine with its regions. GSMN keeps a vector of cosines and passes it along the edges of two
graphs, of words that depend on each other and of regions that lie around each other, so that a phrase is matched as a
phrase: "red" has to be found where "cube" is.

Node level: every word attends to the regions, and every region to the words, as in SCAN; its vector q and what it
attended to, a = Σ_i α_i c_i, are compared in t blocks of neighbouring numbers:

    m_j    = (cos(q_j¹, a_j¹), …, cos(q_jᵗ, a_jᵗ))                                                     (1)

Edges: between words by their similarity, where A says which of them depend on each other (or between all of them);
between regions by the distance ρ and the angle θ of their centres, for each of K Gaussian kernels:

    s_ij   = exp(λ e_i · e_j) / Σ_j exp(λ e_i · e_j),    W = ‖S ∘ A‖₂, rows of length one              (2)
    w_ijk  ∝ exp(−½ (ρ_ij − ρ_k)² / σ_k²) · exp(−½ Δ(θ_ij, θ_k)² / τ_k²),    Σ_k w_ijk = 1             (3)

Structure level: matching vectors are passed to neighbours, and a two-layer network scores each node of each graph:

    ĥ_i    = ‖_k tanh(Σ_j w_ijk W_k m_j + b_k)                                                         (4)
    s      = mean over i of w₂ · tanh(W₁ ĥ_i + b₁) + b₂,    S = s(words) + s(regions)                  (5)

As in SCAN, a is never computed: with the context's Gram matrix G_b of a block, q_b · a_b = Σ_i α_i (q_b · c_ib) and
|a_b|² = αᵀ G_b α.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.batch import Alignment, ImageCode, RegionBatch, TextBatch, TextCode
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.language.parsing.parser import shared_parser
from saccade.models.base.matcher import FragmentConfig, FragmentMatcher
from saccade.models.base.model import register
from saccade.nn.attention import masked_softmax
from saccade.ops import EPSILON, AttentionForm, attention_weights, pool
from saccade.ops.graph_matching import GRAPH_MATCHING, Nodes


@dataclass(frozen=True)
class GsmnConfig(FragmentConfig):
    """The paper's settings for Flickr30k."""

    blocks: int = 16  # t: a match is a vector of so many cosines
    hidden: int = 32  # of the structure level
    kernels: int = 8  # K
    sharpness: float = 20.0  # λ: how hard a node chooses on the other side
    slope: float = 0.1  # of negative scores, as in SCAN
    link_sharpness: float = 20.0  # λ of (2); the paper has one λ for all
    text_graph: Literal["sparse", "dense"] = "sparse"  # edges from a parser, or between all words
    graphs: Literal["both", "visual", "textual"] = "both"
    structure: bool = True  # False: the node level alone
    message_passing: bool = True  # False: the released code, where each neighbour is the node itself
    parser: str = "rules"  # of the sparse graph: rules, spacy, file:PATH


@register(
    "gsmn", task="matching", title="Graph Structured Network for Image-Text Matching", venue="Liu et al., CVPR 2020"
)
class Gsmn(FragmentMatcher):
    Config = GsmnConfig
    keep_in_float32 = ("visual", "textual", "places")
    operator = GRAPH_MATCHING

    def __init__(self, config: GsmnConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        if config.blocks < 1 or config.dim % config.blocks:
            raise SaccadeError(f"dim={config.dim} does not fall into blocks={config.blocks}: make it a multiple")
        self.form = AttentionForm("clipped_l2", config.sharpness, config.slope)
        passes = config.structure and config.message_passing
        if config.graphs != "textual":
            self.visual = MatchedGraph(config, bias=passes)  # the released code has none here
            if config.structure:
                self.places = GaussianKernels(config.kernels)
        if config.graphs != "visual":
            self.textual = MatchedGraph(config, bias=True)
        self.parses = passes and config.text_graph == "sparse" and config.graphs != "visual"

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
        if texts.linked is None and len(texts.links) != len(texts):
            raise SaccadeError(
                "these sentences come without their dependencies, which text_graph=sparse needs: "
                "read them with the model's own read(), or take text_graph=dense"
            )
        itself = torch.eye(texts.tokens.shape[1], dtype=torch.bool, device=texts.tokens.device)
        return replace(code, links=(texts.adjacency() | itself) & texts.mask[:, :, None])

    def prepare(self, images: ImageCode, texts: TextCode) -> tuple[Nodes, Nodes]:
        """The nodes of both graphs and their edges."""
        visual, textual = self.visual_edges(images), self.textual_edges(texts)
        return (
            Nodes.of(images.regions, images.mask, self.config.blocks, visual),
            Nodes.of(texts.words, texts.mask, self.config.blocks, textual),
        )

    def visual_edges(self, images: ImageCode) -> Float[Tensor, "image region region kernel"] | None:
        """(3): one weight for each kernel."""
        if not self.config.structure or self.config.graphs == "textual":
            return None
        assert images.boxes is not None
        weights = self.places(images.boxes, images.mask)
        return weights if self.config.message_passing else self_loops_only(weights)

    def textual_edges(self, texts: TextCode) -> Float[Tensor, "text word word 1"] | None:
        """(2): one weight for all kernels."""
        if not self.config.structure or self.config.graphs == "visual":
            return None
        if not self.config.message_passing:  # the weights of a row, which sum to one, all belong to the node itself
            return torch.diag_embed(texts.mask.to(texts.words))[..., None]
        links = texts.links if self.config.text_graph == "sparse" else None
        return likeness_weights(texts.words, texts.mask, self.config.link_sharpness, links)[..., None]

    def pair(self, images: Nodes, texts: Nodes) -> Float[Tensor, "image text"]:
        words, _ = block_cosines(texts, images, self.form)
        regions, _ = block_cosines(images, texts, self.form)
        return self.structure(words, regions.transpose(0, 1), images, texts)

    def structure(
        self,
        words: Float[Tensor, "image text word block"],
        regions: Float[Tensor, "image text region block"],
        images: Nodes,
        texts: Nodes,
    ) -> Float[Tensor, "image text"]:
        """(4–5), of both graphs."""
        score = words.new_zeros(())
        if self.config.graphs != "textual":
            score = score + self.visual(regions, images.mask, images.links)
        if self.config.graphs != "visual":
            score = score + self.textual(words.transpose(0, 1), texts.mask, texts.links).T
        return score

    def alignment(self, images: Nodes, texts: Nodes) -> Alignment:
        words, weights = block_cosines(texts, images, self.form, every_pair=False)
        regions, _ = block_cosines(images, texts, self.form, every_pair=False)
        score = words.new_zeros(len(texts))
        if self.config.graphs != "textual":
            score = score + self.visual(regions, images.mask, images.links)[:, 0]
        if self.config.graphs != "visual":
            score = score + self.textual(words, texts.mask, texts.links)[:, 0]
        return Alignment(
            weights[:, 0].mT,
            score,
            texts.mask,
            images.mask,
            word_score=words[:, 0].mean(dim=-1) * texts.mask,
            region_score=regions[:, 0].mean(dim=-1) * images.mask,
            word_links=None if texts.links is None else texts.links[..., 0],
            region_links=None if images.links is None else self.visual.edge_importance(images.links),
        )


def block_cosines(
    queries: Nodes, context: Nodes, form: AttentionForm, every_pair: bool = True
) -> tuple[Float[Tensor, "other item query block"], Float[Tensor, "other item part query"]]:
    """m of (1) and the weights α: every item with every other, or (one item to each) item p with other p.

    Tensors keep the item and its queries innermost, so that sums over the context run along memory.
    """
    mask = queries.mask
    length = queries.vectors.square().sum(dim=-1).clamp(min=EPSILON**2).sqrt().transpose(1, 2)  # [item, query, block]
    if every_pair:
        scores = torch.einsum("obpd,ibqd->bopiq", context.vectors, queries.vectors)
    else:
        scores = torch.einsum("obpd,obqd->bopq", context.vectors, queries.vectors).unsqueeze(3)
        mask, length = mask[:, None], length[:, None]
    weights = attention_weights(scores.sum(dim=0).transpose(1, 2), mask, context.mask[:, None], form)
    spread = weights.transpose(1, 2).contiguous()  # α: [other, part, item, query]
    product = (scores * spread).sum(dim=2)  # q · a, [block, other, item, query]
    squared = (torch.einsum("obps,osiq->obpiq", context.gram, spread) * spread[:, None]).sum(dim=2)  # |a|² = αᵀ G α
    size = length * squared.permute(0, 2, 3, 1).clamp(min=EPSILON**2).sqrt()
    return product.permute(1, 2, 3, 0) / size.clamp(min=EPSILON), weights


class MatchedGraph(nn.Module):
    """(4–5): from the matching vectors at a graph's nodes to one score."""

    def __init__(self, config: GsmnConfig, bias: bool) -> None:
        super().__init__()
        width = config.hidden if config.structure else config.blocks
        self.bend = config.message_passing  # tanh after the convolution: in the paper, not in the released code
        sizes = config.blocks, config.hidden, config.kernels
        self.propagate = GraphConvolution(*sizes, bias) if config.structure else None  # (4)
        self.hidden = NormedLinear(width, config.hidden)
        self.score = NormedLinear(config.hidden, 1)

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

    def edge_importance(self, links: Float[Tensor, "graph node node kernel"]) -> Float[Tensor, "graph node node"]:
        """The share of each neighbour in what arrives at a node; kernels count by the norm of their weights."""
        assert self.propagate is not None
        shares = links @ torch.stack([kernel.weight.norm() for kernel in self.propagate.kernels])
        return shares / shares.sum(dim=-1, keepdim=True).clamp(min=1e-30)


class NormedLinear(nn.Module):
    """W x + b with a length g for each row of W and a direction v: W = g v / |v| (Salimans and Kingma, NeurIPS 2016).

    The names of its weights are those of PyTorch's weight_norm, whose modules cannot be pickled.
    """

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        plain = nn.Linear(in_dim, out_dim)
        self.bias = plain.bias
        length, direction = plain.weight.detach().norm(dim=1, keepdim=True), plain.weight
        named = {"original0": nn.Parameter(length), "original1": direction}
        self.parametrizations = nn.ModuleDict({"weight": nn.ParameterDict(named)})

    @property
    def weight(self) -> Float[Tensor, "out in"]:
        length, direction = self.parametrizations["weight"].values()  # type: ignore[operator]
        return torch._weight_norm(direction, length)

    def forward(self, inputs: Float[Tensor, "*item in"]) -> Float[Tensor, "*item out"]:
        return F.linear(inputs, self.weight, self.bias)


class GraphConvolution(nn.Module):
    """(4) before its tanh, one part of the result per kernel: h_i = ‖_k Σ_j w_ijk W_k m_j + b_k."""

    def __init__(self, in_dim: int, out_dim: int, kernels: int, bias: bool = True) -> None:
        super().__init__()
        if kernels < 1 or out_dim % kernels:
            raise SaccadeError(f"{kernels} kernels cannot share {out_dim} numbers: make the second a multiple")
        self.has_bias = bias
        self.kernels: Sequence[nn.Linear] = nn.ModuleList(  # type: ignore[assignment]
            nn.Linear(in_dim, out_dim // kernels, bias) for _ in range(kernels)
        )

    def forward(
        self,
        nodes: Float[Tensor, "graph other node in"],
        weights: Float[Tensor, "graph node node #kernel"],
    ) -> Float[Tensor, "graph other node out"]:
        """`other` counts whatever shares a graph: the texts that one picture is compared with."""
        sent = F.linear(nodes, torch.cat([kernel.weight for kernel in self.kernels]))
        sent = sent.view(*sent.shape[:-1], weights.shape[-1], sent.shape[-1] // weights.shape[-1])
        arrived = torch.einsum("gijk,gojkc->goikc", weights, sent).flatten(-2)
        bias = self.bias()
        return arrived if bias is None else arrived + bias

    def bias(self) -> Float[Tensor, " out"] | None:
        return torch.cat([kernel.bias for kernel in self.kernels]) if self.has_bias else None


class GaussianKernels(nn.Module):
    """(3): K learned positions (ρ_k, θ_k) around a region (Norcliffe-Brown et al., NeurIPS 2018; Monti et al., 2017).

    Δ is the shorter way round the circle. A softmax over the exponents is defined even where all Gaussians underflow.
    """

    def __init__(self, kernels: int) -> None:
        super().__init__()
        self.distance = nn.Parameter(torch.rand(kernels))  # ρ_k
        self.angle = nn.Parameter((2 * torch.rand(kernels) - 1) * math.pi)  # θ_k
        self.distance_width = nn.Parameter((1 + torch.rand(kernels)) / 2)  # σ_k, not near 0
        self.angle_width = nn.Parameter((1 + torch.rand(kernels)) / 2)  # τ_k

    def forward(
        self, boxes: Float[Tensor, "image region 4"], mask: Bool[Tensor, "image region"]
    ) -> Float[Tensor, "image region region kernel"]:
        """w_ijk; zero where i or j is padding."""
        distance, angle = polar_coordinates(boxes)[..., None].unbind(dim=-2)
        turn = (angle - self.angle).abs()
        turn = torch.minimum(turn, (2 * math.pi - turn).abs())
        far = (distance - self.distance) ** 2 / (1e-14 + self.distance_width**2)
        turned = turn**2 / (1e-14 + self.angle_width**2)
        there = mask[:, :, None] & mask[:, None]
        return (-0.5 * (far + turned)).softmax(dim=-1) * there[..., None]


def polar_coordinates(boxes: Float[Tensor, "image region 4"]) -> Float[Tensor, "image region region 2"]:
    """Distance ρ and angle θ from the centre of every box to that of every other, (0, 0) where both are one.

    The angle is measured from the vertical axis, atan2(x, y), as in the official code.
    """
    centres = (boxes[..., :2] + boxes[..., 2:]) / 2
    x, y = (centres[:, :, None] - centres[:, None]).unbind(dim=-1)
    apart = (x != 0) | (y != 0)
    x, y = x.where(apart, 0.0), y.where(apart, 1.0)  # atan2(0, 0) and √0 have no gradient, atan2(0, 1) has
    return torch.stack([torch.hypot(x, y).where(apart, 0.0), torch.atan2(x, y)], dim=-1)


def likeness_weights(
    nodes: Float[Tensor, "graph node dim"],
    mask: Bool[Tensor, "graph node"],
    sharpness: float,
    links: Bool[Tensor, "graph node node"] | None = None,
) -> Float[Tensor, "graph node node"]:
    """(2); `links` is A, None for all edges; zero where a node is padding."""
    there = mask[:, :, None] & mask[:, None]
    likeness = masked_softmax(sharpness * torch.bmm(nodes, nodes.mT), there)
    weights = likeness * (there if links is None else there & links)
    return F.normalize(weights, dim=-1, eps=1e-30)


def self_loops_only(weights: Float[Tensor, "graph node node kernel"]) -> Float[Tensor, "graph node node kernel"]:
    """The same edges, each leading back to its own node: the released code."""
    return torch.diag_embed(weights.sum(dim=2).transpose(1, 2), dim1=1, dim2=2)
