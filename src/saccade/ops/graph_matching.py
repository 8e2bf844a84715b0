"""GSMN's table of all pairs: cosines of blocks at the nodes of two graphs travel along edges and are scored.

    m_j   = (cos(q_j¹, a_j¹), …, cos(q_jᵗ, a_jᵗ)),  a_j = Σ_i α_ij c_i       node level, of words and of regions
    ĥ_i   = ‖_k tanh(Σ_j w_ijk W_k m_j + b_k)                               structure level
    s     = mean over i of w₂ · tanh(W₁ ĥ_i + b₁) + b₂

`models/gsmn.py` has the equations in full, and the plain form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from saccade.batch import Batch
from saccade.ops import gpu, native, triton
from saccade.ops.all_pairs import ALL_PAIRS, PairsProblem
from saccade.ops.dispatch import Backend, Operator, anything
from saccade.ops.form import MAX_UNSHIFTED_SHARPNESS, AttentionForm
from saccade.ops.tiling import slices

CACHED_TEXTS = 512  # whose words and Gram matrices a GPU's cache holds, while picture after picture asks for them


@dataclass(frozen=True)
class Nodes(Batch):
    """One side: vectors in t blocks, zero where padded; their products with each other; the edges between them."""

    vectors: Float[Tensor, "item block node few"]
    mask: Bool[Tensor, "item node"]
    gram: Float[Tensor, "item block node node"]
    links: Float[Tensor, "item node node #kernel"] | None = None  # w_ijk

    @classmethod
    def of(
        cls,
        vectors: Float[Tensor, "item node dim"],
        mask: Bool[Tensor, "item node"],
        blocks: int,
        links: Float[Tensor, "item node node #kernel"] | None = None,
    ) -> Nodes:
        width = vectors.shape[-1] // blocks
        few = (vectors * mask[..., None]).view(*mask.shape, blocks, width).transpose(1, 2)
        return cls(few, mask, torch.matmul(few, few.mT), links)

    def trimmed(self, longest: int) -> Nodes:
        links = None if self.links is None else self.links[:, :longest, :longest]
        gram = self.gram[..., :longest, :longest]
        return Nodes(self.vectors[:, :, :longest], self.mask[:, :longest], gram, links)


@dataclass(frozen=True)
class GraphWeights:
    """The structure level of one graph."""

    kernels: Sequence[Float[Tensor, "part block"]]  # W_k; empty: nothing travels
    bias: Float[Tensor, " hidden"] | None
    bend: bool  # tanh of what arrives
    hidden: tuple[Float[Tensor, "hidden in"], Float[Tensor, " hidden"]]  # W₁, b₁
    score: tuple[Float[Tensor, "1 hidden"], Float[Tensor, " 1"]]  # w₂, b₂

    @classmethod
    def of(cls, graph: Any) -> GraphWeights | None:
        """From the layers of a model's graph; None: the model has no such graph."""
        if graph is None:
            return None
        kernels = [] if graph.propagate is None else [kernel.weight for kernel in graph.propagate.kernels]
        bias = None if graph.propagate is None else graph.propagate.bias()
        layers = [(layer.weight, layer.bias) for layer in (graph.hidden, graph.score)]
        return cls(kernels, bias, graph.bend, *layers)


def _suits_triton(problem: PairsProblem) -> str | None:
    regions, words = problem.images.regions, problem.texts.words
    form: AttentionForm = problem.model.form
    if (reason := gpu.refuses(regions.device)) is not None:
        return reason
    if not torch.is_autocast_enabled("cuda") or torch.is_grad_enabled():
        return "it is for mixed precision without a gradient"
    if torch.float64 in (regions.dtype, words.dtype):
        return "the vectors are of float64"
    width, longest = regions.shape[-1] // problem.model.config.blocks, max(regions.shape[1], words.shape[1])
    if not (16 <= width <= 128 and width & (width - 1) == 0):
        return f"a block has {width} numbers: the kernel takes 16, 32, 64 or 128"
    if not 0 < longest <= triton.BIN or not len(regions):
        return f"an item has {longest} vectors, a tile of the kernel 1 to {triton.BIN}"
    plain = form.normaliser == "clipped_l2" and form.slope <= 1 and abs(form.sharpness) <= MAX_UNSHIFTED_SHARPNESS
    return None if plain else "the kernel has clipped_l2 alone, and no sharpness above 30"


def triton_graphs(problem: PairsProblem, tiles: tuple[int, int] | None = None) -> Float[Tensor, "image text"]:
    """A kernel for the node level, one large product of 16 bits for what travels; `tiles`: texts and images at once."""
    from saccade.ops.triton.block_cosines import block_cosines, pack_images, pack_texts

    images, texts, blocks = problem.images, problem.texts, problem.model.config.blocks
    visual, textual = (GraphWeights.of(getattr(problem.model, name, None)) for name in ("visual", "textual"))
    table: Tensor = images.regions.new_empty(len(images), len(texts), dtype=torch.float32)
    with torch.autocast(images.regions.device.type, enabled=False), gpu.on_gpu_of(images.regions):
        regions, words = problem.sides
        packed_images = pack_images(images.regions, images.mask, blocks)
        wide, tall = tiles or _tiles(problem, visual or textual)
        for some in slices(len(texts), -(-len(texts) // wide)):
            mask = texts.mask[some]
            packed_texts = pack_texts(texts.words[some], mask, blocks)
            folded = _folded(textual, words.links, some)
            for rows in slices(len(images), -(-len(images) // tall)):
                of_words, of_regions = block_cosines(packed_images[rows], packed_texts, problem.model.form)
                score = of_words.new_zeros((), dtype=torch.float32)
                if textual is not None:
                    score = score + _scores_16(textual, of_words, mask, folded).T
                del of_words
                if visual is not None:
                    edges = _folded(visual, regions.links, rows)
                    score = score + _scores_16(visual, of_regions, images.mask[rows], edges)
                table[rows, some] = score
    return table


def _folded(
    graph: GraphWeights | None, links: Float[Tensor, "graph node node #kernel"] | None, some: slice
) -> Float[Tensor, "graph in_dim out_dim"] | None:
    """One matrix for each of some graphs, w_ijk W_k, from all its nodes' numbers to all that arrives, in float16.

    Many times the work in one large product, instead of many small ones and the walks through memory between them:
    quicker where the nodes of a graph are many different ones and the processor multiplies matrices of 16 bits.
    """
    if graph is None or links is None or not graph.kernels:
        return None
    maps = torch.stack(list(graph.kernels)).permute(2, 0, 1)  # [block, kernel, part]
    arrives = links[some].transpose(1, 2).expand(-1, -1, -1, maps.shape[1])  # [graph, sender, receiver, kernel]
    graphs, nodes = arrives.shape[:2]
    out = arrives.new_empty(graphs, nodes, len(maps), nodes, *maps.shape[1:], dtype=torch.float16)
    torch.mul(arrives[:, :, None, :, :, None], maps[:, None], out=out)
    return out.view(graphs, nodes * len(maps), -1)


def _scores_16(
    graph: GraphWeights,
    nodes: Float[Tensor, "graph other node block"],
    mask: Bool[Tensor, "graph node"],
    folded: Float[Tensor, "graph in_dim out_dim"] | None,
) -> Float[Tensor, "graph other"]:
    """The structure level of nodes of float16, in place.

    A mean of scores is a score of means: one product more, for eight partial sums, which tensor cores like.
    """
    places = nodes.shape[2]
    if folded is not None:
        nodes = torch.bmm(nodes.flatten(2), folded).view(*nodes.shape[:3], -1)
        nodes = nodes if graph.bias is None else nodes.add_(graph.bias.half())
        nodes = nodes.tanh_() if graph.bend else nodes
    nodes = F.linear(nodes, graph.hidden[0].half(), graph.hidden[1].half()).tanh_()
    share = mask / mask.sum(dim=1, keepdim=True).clamp(min=1)
    which = F.one_hot(torch.arange(places, device=mask.device) % 8, 8) * share[..., None]  # [graph, node, sum]
    readers = which[:, :, None] * graph.score[0][0][:, None]  # [graph, node, hidden, sum]
    sums: Tensor = torch.bmm(nodes.flatten(2), readers.flatten(1, 2).half()).float().sum(dim=-1)
    return sums.add_(graph.score[1] * mask.any(dim=1, keepdim=True))


def _tiles(problem: PairsProblem, graph: GraphWeights | None) -> tuple[int, int]:
    """How many texts, and how many pictures with them, keep it within the budget."""
    assert graph is not None
    regions, words, blocks = problem.images.mask.shape[1], problem.texts.mask.shape[1], problem.model.config.blocks
    hidden, budget = len(graph.hidden[1]), problem.budget
    per_pair = 2 * (blocks * (regions + words) + 2 * hidden * max(regions, words))
    of_text, of_image = (2 * blocks * hidden * places**2 for places in (words, regions))
    wide = max(1, min(len(problem.texts), CACHED_TEXTS, budget // 4 // of_text, budget // 2 // per_pair))
    return wide, max(1, budget * 3 // 4 // (wide * per_pair + of_image))


def _suits_native(problem: PairsProblem) -> str | None:
    if torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
        return "it is for float32 without a gradient"
    regions, words = problem.images.regions, problem.texts.words
    work = 4.0 * problem.images.mask.numel() * problem.texts.mask.numel() * regions.shape[-1]
    return native.refuses(regions.device, {regions.dtype, words.dtype}, problem.model.form, work)


def _native_graphs(problem: PairsProblem) -> Float[Tensor, "image text"]:
    """Cosines in compiled loops; the weights of attention are nowhere written down."""
    from saccade.ops.native.attention import NativeAttention

    loops = NativeAttention.of(problem.model.form)

    def native_pair(images: Nodes, texts: Nodes) -> Float[Tensor, "image text"]:
        sides = [part for side in (images, texts) for part in (side.vectors.transpose(1, 2), side.gram, side.mask)]
        score: Tensor = problem.model.structure(*loops.block_cosines(*sides), images, texts)
        return score

    return ALL_PAIRS(PairsProblem(problem.model, *problem.sides, problem.budget, native_pair, loops.lanes))


def _plain_graphs(problem: PairsProblem) -> Float[Tensor, "image text"]:
    """Out of mixed precision: blocks of few numbers may nearly cancel."""
    with torch.autocast(problem.like.device.type, enabled=False):
        return ALL_PAIRS(problem)


GRAPH_MATCHING: Operator[PairsProblem, Tensor] = Operator(
    "graph_matching",
    (
        Backend("triton", _suits_triton, triton_graphs, gpu.triton_unavailable),
        Backend("native", _suits_native, _native_graphs, native.unavailable),
        Backend("torch", anything, _plain_graphs),
    ),
    torch.bfloat16,
)
