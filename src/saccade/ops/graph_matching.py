"""GSMN's table of all pairs: cosines of blocks at the nodes of two graphs travel along edges and are scored.

    m_j   = (cos(q_j¹, a_j¹), …, cos(q_jᵗ, a_jᵗ)),  a_j = Σ_i α_ij c_i       node level, of words and of regions
    ĥ_i   = ‖_k tanh(Σ_j w_ijk W_k m_j + b_k)                               structure level
    s     = mean over i of w₂ · tanh(W₁ ĥ_i + b₁) + b₂

`models/gsmn.py` has the equations in full, and the plain form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from saccade.batch import Batch
from saccade.ops import gpu, native, triton
from saccade.ops.all_pairs import Pair, all_pairs
from saccade.ops.dispatch import Backend, Operator, anything
from saccade.ops.form import MAX_UNSHIFTED_SHARPNESS, AttentionForm, name_of, product_dtype
from saccade.ops.tiling import slices

CACHED_TEXTS = 512  # whose words and Gram matrices a GPU's cache holds, while picture after picture asks for them


@dataclass(frozen=True)
class Nodes(Batch):
    """One side: the vectors of its nodes, zero where padded, and the edges between them."""

    vectors: Float[Tensor, "item node dim"]
    mask: Bool[Tensor, "item node"]
    links: Float[Tensor, "item node node #kernel"] | None = None  # w_ijk
    gram: Float[Tensor, "item block node node"] | None = None  # products of two nodes of an item, block by block

    def trimmed(self, longest: int) -> Nodes:
        vectors, mask = self.vectors[:, :longest], self.mask[:, :longest]
        links = None if self.links is None else self.links[:, :longest, :longest]
        gram = None if self.gram is None else self.gram[..., :longest, :longest]
        return Nodes(vectors, mask, links, gram)

    def blocked(self, blocks: int) -> Float[Tensor, "item block node few"]:
        """Each vector in so many parts of neighbouring numbers."""
        return self.vectors.view(*self.mask.shape, blocks, self.vectors.shape[-1] // blocks).transpose(1, 2)

    def with_gram(self, blocks: int) -> Nodes:
        blocked = self.blocked(blocks)
        return replace(self, gram=torch.matmul(blocked, blocked.mT))


@dataclass(frozen=True)
class GraphWeights:
    """The structure level of one graph."""

    kernels: Sequence[Float[Tensor, "part block"]]  # W_k; empty: nothing travels
    bias: Float[Tensor, " hidden"] | None
    bend: bool  # tanh of what arrives
    hidden: tuple[Float[Tensor, "hidden in"], Float[Tensor, " hidden"]]  # W₁, b₁
    score: tuple[Float[Tensor, "1 hidden"], Float[Tensor, " 1"]]  # w₂, b₂


@dataclass(frozen=True)
class GraphProblem:
    """Every picture with every text; temporaries take at most about `budget` bytes."""

    images: Nodes
    texts: Nodes
    blocks: int
    form: AttentionForm
    visual: GraphWeights | None  # None: the score of this graph is not asked for
    textual: GraphWeights | None
    pair: Pair  # the model's own equations, of two `Nodes`
    structure: Callable[
        [Tensor, Tensor, Nodes, Nodes], Tensor
    ]  # their second half, from cosines [image text node block]
    weights: Sequence[Tensor]
    budget: int

    def describe(self) -> str:
        dtype, regions, words = product_dtype(self.images.vectors), self.images.mask.shape[1], self.texts.mask.shape[1]
        return f"{name_of(dtype)}, {regions} regions, {words} words, {self.blocks} blocks"


def graph_matching(problem: GraphProblem) -> Float[Tensor, "image text"]:
    """The score of both graphs, of every picture with every text."""
    return GRAPH_MATCHING(problem)


def _suits_triton(problem: GraphProblem) -> str | None:
    regions, words, form = problem.images.vectors, problem.texts.vectors, problem.form
    if (reason := gpu.refuses(regions.device)) is not None:
        return reason
    if not torch.is_autocast_enabled("cuda") or torch.is_grad_enabled():
        return "it is for mixed precision without a gradient"
    if torch.float64 in (regions.dtype, words.dtype):
        return "the vectors are of float64"
    width, longest = regions.shape[-1] // problem.blocks, max(regions.shape[1], words.shape[1])
    if not (16 <= width <= 128 and width & (width - 1) == 0):
        return f"a block has {width} numbers: the kernel takes 16, 32, 64 or 128"
    if not 0 < longest <= triton.BIN or not len(regions):
        return f"an item has {longest} vectors, a tile of the kernel 1 to {triton.BIN}"
    plain = form.normaliser == "clipped_l2" and form.slope <= 1 and abs(form.sharpness) <= MAX_UNSHIFTED_SHARPNESS
    return None if plain else "the kernel has clipped_l2 alone, and no sharpness above 30"


def triton_graphs(problem: GraphProblem, tiles: tuple[int, int] | None = None) -> Float[Tensor, "image text"]:
    """A kernel for the node level, one large product of 16 bits for what travels; `tiles`: texts and images at once."""
    from saccade.ops.triton.block_cosines import block_cosines, pack_images, pack_texts

    images, texts, blocks = problem.images, problem.texts, problem.blocks
    table = images.vectors.new_empty(len(images), len(texts), dtype=torch.float32)
    with torch.autocast(images.vectors.device.type, enabled=False), gpu.on_gpu_of(images.vectors):
        packed_images = pack_images(images.vectors, images.mask, blocks)
        wide, tall = tiles or _tiles(problem)
        for some in slices(len(texts), -(-len(texts) // wide)):
            part = texts.select(some)
            packed_texts = pack_texts(part.vectors, part.mask, blocks)
            folded = _folded(problem.textual, part.links)
            for rows in slices(len(images), -(-len(images) // tall)):
                words, regions = block_cosines(packed_images[rows], packed_texts, problem.form)
                score = words.new_zeros((), dtype=torch.float32)
                if problem.textual is not None:
                    score = score + _scores_16(problem.textual, words, part.mask, folded).T
                del words
                if problem.visual is not None:
                    links = None if images.links is None else images.links[rows]
                    edges = _folded(problem.visual, links)
                    score = score + _scores_16(problem.visual, regions, images.mask[rows], edges)
                table[rows, some] = score
    return table


def _folded(
    graph: GraphWeights | None, links: Float[Tensor, "graph node node #kernel"] | None
) -> Float[Tensor, "graph in_dim out_dim"] | None:
    """One matrix for each graph, w_ijk W_k, from all its nodes' numbers to all that arrives at its nodes, in float16.

    Many times the work in one large product, instead of many small ones and the walks through memory between them:
    quicker where the nodes of a graph are many different ones and the processor multiplies matrices of 16 bits.
    """
    if graph is None or links is None or not graph.kernels:
        return None
    maps = torch.stack(list(graph.kernels)).permute(2, 0, 1)  # [block, kernel, part]
    arrives = links.transpose(1, 2).expand(-1, -1, -1, maps.shape[1])  # [graph, sender, receiver, kernel]
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


def _tiles(problem: GraphProblem) -> tuple[int, int]:
    """How many texts, and how many pictures with them, keep it within the budget."""
    regions, words, blocks = problem.images.mask.shape[1], problem.texts.mask.shape[1], problem.blocks
    graph = problem.visual or problem.textual
    assert graph is not None
    hidden, budget = len(graph.hidden[1]), problem.budget
    per_pair = 2 * (blocks * (regions + words) + 2 * hidden * max(regions, words))
    of_text, of_image = (2 * blocks * hidden * places**2 for places in (words, regions))
    wide = max(1, min(len(problem.texts), CACHED_TEXTS, budget // 4 // of_text, budget // 2 // per_pair))
    return wide, max(1, budget * 3 // 4 // (wide * per_pair + of_image))


def _suits_native(problem: GraphProblem) -> str | None:
    if torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
        return "it is for float32 without a gradient"
    regions, words = problem.images.vectors, problem.texts.vectors
    work = 4.0 * problem.images.mask.numel() * problem.texts.mask.numel() * regions.shape[-1]
    return native.refuses(regions.device, {regions.dtype, words.dtype}, problem.form, work)


def _native_graphs(problem: GraphProblem) -> Float[Tensor, "image text"]:
    """Cosines in compiled loops; the weights of attention are nowhere written down."""
    from saccade.ops.native.attention import NativeAttention

    loops, blocks = NativeAttention.of(problem.form), problem.blocks

    def native_pair(images: Nodes, texts: Nodes) -> Float[Tensor, "image text"]:
        sides = [
            argument
            for side in (images, texts)
            for argument in (side.blocked(blocks).transpose(1, 2), side.gram, side.mask)
        ]
        words, regions = loops.block_cosines(*sides)  # type: ignore[arg-type]
        return problem.structure(words, regions, images, texts)

    return _in_tiles(problem, native_pair, loops.lanes)


def _in_tiles(problem: GraphProblem, pair: Pair, together: int = 1) -> Float[Tensor, "image text"]:
    with torch.autocast(problem.images.vectors.device.type, enabled=False):
        images, texts = problem.images.with_gram(problem.blocks), problem.texts.with_gram(problem.blocks)
    model = getattr(problem.pair, "__self__", None)
    return all_pairs(pair, images, texts, problem.weights, problem.budget, together, model)


GRAPH_MATCHING: Operator[GraphProblem, Tensor] = Operator(
    "graph_matching",
    (
        Backend("triton", _suits_triton, triton_graphs, gpu.triton_unavailable),
        Backend("native", _suits_native, _native_graphs, native.unavailable),
        Backend("torch", anything, lambda problem: _in_tiles(problem, problem.pair)),
    ),
    torch.bfloat16,
)
