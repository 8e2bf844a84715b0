"""SGAE: Auto-Encoding Scene Graphs for Image Captioning (Yang, Tang, Zhang, Cai; CVPR 2019).

People write "a man riding a bike" rather than "a man on a bike": such habits are learned from sentences alone. A
sentence is taken apart into its scene graph and put together again (S → G → D → S), through a dictionary D that every
node is rewritten in. A picture's scene graph is then rewritten in the same dictionary (I → G → D → S), so that its
caption follows those habits. `docs/systems/sgae.md` has the equations in full.

    x_r = g_r(e_s, e_o, e_r)      x_a = mean over the attributes a of a thing of g_a(e_o, e_a)
    x_o = (g(e_o) + Σ g_s(e_o, e_o', e_r) + Σ g_o(e_o', e_o, e_r)) / (1 + number of these)
    x̂   = R(x; D) = softmax(x Dᵀ) D
    u   = ReLU(W₁ e + W₂ v) − (W₁ e − W₂ v)²   a picture's node: its word e and its region v, before the convolutions
    h¹  = LSTM₁([h²; v̄; e_w], h¹)      α = softmax(w · tanh(W x̂ + U h¹))      h² = LSTM₂([Σ α x̂; h¹], h²)

A picture's graph has the names and attributes that the detector gives its regions; its relations come with it, or are
derived from the boxes (`spatial_graph`). The two LSTMs are Up-Down's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from saccade.batch import UNKNOWN, Batch, CaptionState, RegionBatch, SceneGraphBatch, StepOutput, TextBatch
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary, shared_parser
from saccade.language.vocabulary import graph_words
from saccade.models.base.captioner import RecurrentCaptioner
from saccade.models.base.model import register
from saccade.nn.attention import AdditiveAttention, attended
from saccade.nn.captioners import RegionBatchNorm, RegionEmbedding, TopDown, TopDownMemory, mean_region
from saccade.nn.encode import at_least_float32, dropout_layer

Embed = Callable[[Tensor], Tensor]  # word ids → vectors
Stage = Literal["sentences", "dictionary", "pictures"]

RELATION_WORDS = (  # of a region to its neighbour; of each row the first word in the vocabulary is used
    ("in", "inside", "within"),
    ("on", "upon"),
    ("above", "over"),
    ("below", "under", "beneath"),
    ("left",),
    ("right",),
    ("near", "by", "next", "beside", "with"),
)
IN, ON, ABOVE, BELOW, LEFT, RIGHT, NEAR = range(len(RELATION_WORDS))
MIN_COVERED = 0.8  # a region is in another that covers so much of it


@dataclass(frozen=True)
class SgaeConfig:
    """The paper's settings for COCO."""

    region_dim: int = 2048
    word_dim: int = 1000
    dim: int = 1000  # of nodes, dictionary and LSTMs
    attention_dim: int = 512
    dictionary: bool = True  # False: the LSTMs attend to the nodes as the convolutions left them
    entries: int = 10_000  # of the dictionary
    entry_spread: float = 0.0  # initial standard deviation; 0: uniform between 0 and 0.01, as in the released code
    dictionary_rate: float = 1.0  # of its learning rate; the paper has 0.02 once it comes from sentences
    fusion: Literal["paper", "released"] = "paper"  # released: attends to regions and to their rewritten form apart
    fusion_norm: bool = False  # layer normalisation of u, which a high learning rate needs
    relations: bool = True  # False: things alone
    names: bool = True  # regions have the names and attributes that their detector gives them; False: none
    neighbours: int = 2  # of a region, in graphs derived from boxes
    sentence_steps: int = 0  # first stage of training: sentences from their graphs, without the dictionary
    dictionary_steps: int = 0  # second stage: sentences through the dictionary; pictures follow
    shared_decoder: bool = False  # one decoder for sentences and pictures; the released code has two
    peek: bool = False  # sentences are trained with the whole picture too, as in the released code
    attention_gain: float = 1.0  # of h¹'s initial weights in LSTM₂; 1: as published
    region_norm: RegionBatchNorm = "none"  # batch normalisation before, or around, the regions' layer
    dropout: float = 0.5
    parser: str = "rules"  # of sentences into graphs: rules, spacy, file:PATH

    def __post_init__(self) -> None:
        for name in ("entries", "attention_dim", "dim", "word_dim"):
            if getattr(self, name) < 1:
                raise SaccadeError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("neighbours", "sentence_steps", "dictionary_steps", "entry_spread"):
            if getattr(self, name) < 0:
                raise SaccadeError(f"{name} must not be negative, but is {getattr(self, name)}")
        if not self.dictionary_rate > 0:
            raise SaccadeError(f"dictionary_rate must be more than zero, not {self.dictionary_rate}")
        if self.dictionary_steps and not self.dictionary:
            raise SaccadeError("dictionary_steps are steps through the dictionary: they go with dictionary=true")
        if self.shared_decoder and self.fusion == "released":
            raise SaccadeError(
                "shared_decoder=true goes with fusion=paper: else pictures are described from more than sentences are"
            )


@dataclass(frozen=True)
class GraphNodes(Batch):
    """The nodes of a graph: its things, its relations, and one node for the attributes of each thing that has any.

    Each has two places among the things: a relation those of subject and object, another its thing's twice.
    """

    vectors: Float[Tensor, "graph node dim"]
    mask: Bool[Tensor, "graph node"]
    places: Int[Tensor, "graph node 2"]


@dataclass(frozen=True)
class GraphContext(Batch):
    """What a captioner of scene graphs attends to: a picture's nodes, and their places among its regions."""

    nodes: Float[Tensor, "row node dim"]
    keys: Float[Tensor, "row node attention_dim"]
    mask: Bool[Tensor, "row node"]
    places: Int[Tensor, "row node 2"]
    regions: Bool[Tensor, "row region"]
    whole: Float[Tensor, "row dim"]
    reworded: Float[Tensor, "row node dim"] | None = None  # the nodes rewritten in D, where both are attended to
    reworded_keys: Float[Tensor, "row node attention_dim"] | None = None

    def on_regions(self, weights: Float[Tensor, "row node"]) -> Float[Tensor, "row region"]:
        """Attention to a relation goes to its two things, to an attribute to its thing."""
        halves = (weights / 2 * self.mask)[:, :, None].expand(-1, -1, 2)
        return weights.new_zeros(self.regions.shape).scatter_add(1, self.places.flatten(1), halves.flatten(1))


@dataclass(frozen=True)
class SentenceGraphContext(GraphContext):
    """A sentence's nodes, which have no regions."""

    def on_regions(self, weights: Float[Tensor, "row node"]) -> Float[Tensor, "row region"]:
        return weights.new_zeros(self.regions.shape)


State = CaptionState[TopDownMemory, GraphContext]


@register(
    "sgae", task="captioning", title="Auto-Encoding Scene Graphs for Image Captioning", venue="Yang et al., CVPR 2019"
)
class Sgae(RecurrentCaptioner[TopDownMemory, GraphContext]):
    Config = SgaeConfig
    spatial: Tensor
    lessons: Tensor

    def __init__(self, config: SgaeConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        dim, dropout, apart = config.dim, config.dropout, config.fusion == "released"
        self.dropout = dropout_layer(dropout)
        self.words = nn.Embedding(len(vocabulary), config.word_dim)
        self.regions = RegionEmbedding(config.region_dim, dim, config.region_norm, dropout)
        self.whole = nn.Linear(config.region_dim, dim)
        if config.dictionary:
            self.dictionary = Dictionary(config.entries, dim, config.entry_spread)  # D

        self.sentence_graph = SceneGraphConvolution(config.word_dim, dim, dropout)
        if not config.shared_decoder:
            self.sentence_look = AdditiveAttention(dim, dim, config.attention_dim)
            self.sentence_lstms = TopDown(config.word_dim, dim, dim, dim, config.attention_gain)

        self.picture_graph: PictureGraph | PlainPictureGraph
        if apart:
            self.picture_graph = PlainPictureGraph(config.word_dim, dim, dropout)
        else:
            self.picture_graph = PictureGraph(config.word_dim, dim, dropout, config.fusion_norm)
        self.picture_look = AdditiveAttention(dim, dim, config.attention_dim)
        beside = apart and config.dictionary
        if beside:  # from what pictures' nodes are like to what sentences' are, before D
            bent = nn.LeakyReLU(0.1), dropout_layer(dropout)
            first, second, third = (nn.Linear(dim, dim) for _ in range(3))
            self.to_sentences = nn.Sequential(first, *bent, second, *bent, third)
            self.reworded_look = AdditiveAttention(dim, dim, config.attention_dim)
        self.picture_lstms = TopDown(config.word_dim, dim, 2 * dim if beside else dim, dim, config.attention_gain)

        self.out = nn.Linear(dim, len(vocabulary))
        self.register_buffer("spatial", spatial_words(vocabulary), persistent=False)
        self.register_buffer("lessons", torch.zeros((), dtype=torch.long))  # training steps so far

    @property
    def reads_graphs(self) -> bool:
        return bool(self.config.names)

    def parameter_groups(self) -> list[dict[str, Any]]:
        own, *others = super().parameter_groups()
        if not self.config.dictionary:
            return [own, *others]
        entries = self.dictionary.entries
        own = own | {"params": [weight for weight in own["params"] if weight is not entries]}
        return [own, *others, {"params": [entries], "factor": self.config.dictionary_rate}]

    def read(self, texts: Sequence[str]) -> TextBatch:
        batch = super().read(texts)
        if not self.config.sentence_steps + self.config.dictionary_steps:
            return batch
        graphs = [parse.graph for parse in shared_parser(self.config.parser).parse(texts)]
        return replace(batch, graph=graph_words(graphs, self.vocabulary))

    def start_from(self, images: RegionBatch, whole: Float[Tensor, "row region_dim"]) -> State:
        """I → G → D: the nodes of pictures."""
        regions = self.regions(images.features, images.mask)
        nodes: GraphNodes = self.picture_graph(regions, self.scene_graph(images), self.words, self.embed)
        beside: tuple[Tensor, ...] = ()
        if self.config.dictionary and self.config.fusion == "paper":
            nodes = self.reword(nodes)
        elif self.config.dictionary:
            reworded = self.reword(replace(nodes, vectors=self.to_sentences(nodes.vectors))).vectors
            beside = reworded, self.reworded_look.keys(reworded)
        keys, whole = self.picture_look.keys(nodes.vectors), self.embed_whole(whole)
        context = GraphContext(nodes.vectors, keys, nodes.mask, nodes.places, images.mask, whole, *beside)
        return CaptionState(self.picture_lstms.initial_memory(nodes.vectors), context)

    def embed_whole(self, whole: Float[Tensor, "row region_dim"]) -> Float[Tensor, "row dim"]:
        """A picture as one vector, v̄."""
        vector: Tensor = self.dropout(self.whole(whole).relu())
        return vector

    def scene_graph(self, images: RegionBatch) -> SceneGraphBatch:
        """The graph that came with pictures, its relations derived from their boxes if it has none; its things are the
        regions."""
        spatial = spatial_graph(images, self.spatial, self.config.neighbours if self.config.relations else 0)
        if images.graph is None:
            return spatial
        graph = replace(images.graph, object_mask=images.mask)
        if not self.config.relations:
            return graph.resize(relation=0, attributed=0)
        if graph.relations.shape[1]:
            return graph
        return replace(graph, relations=spatial.relations, relation_mask=spatial.relation_mask)

    def start_from_sentences(
        self, texts: TextBatch, images: RegionBatch, dictionary: bool, whole: Float[Tensor, "row in"] | None = None
    ) -> State:
        """S → G (→ D): the nodes of sentences; picture t is that of sentence t, and is used with `peek` only.

        Raises: SaccadeError if the sentences come without scene graphs.
        """
        if texts.graph is None:
            raise SaccadeError("these sentences come without scene graphs: read them with the model's own read()")
        nodes = self.read_graph(texts.graph)
        if dictionary:
            nodes = self.reword(nodes)
        if self.config.peek:
            whole = self.embed_whole(mean_region(images.features, images.mask) if whole is None else whole)
        else:
            whole = mean_region(nodes.vectors, nodes.mask)
        attend, lstms = self._decoder(sentences=True)
        keys = attend.keys(nodes.vectors)
        context = SentenceGraphContext(nodes.vectors, keys, nodes.mask, nodes.places, images.mask, whole)
        return CaptionState(lstms.initial_memory(nodes.vectors), context)

    def read_graph(self, graph: SceneGraphBatch) -> GraphNodes:
        """x_o, x_r, x_a of sentences."""
        parts = graph.objects, graph.relations[:, :, 2], graph.attributes
        nodes: GraphNodes = self.sentence_graph(*map(self.embed, parts), graph)
        return nodes

    def reword(self, nodes: GraphNodes) -> GraphNodes:
        """x̂ = R(x; D)."""
        return replace(nodes, vectors=self.dictionary(nodes.vectors) * nodes.mask[:, :, None])

    @property
    def stage(self) -> Stage:
        """The stage of the next training step."""
        sentences = self.config.sentence_steps
        if not sentences + self.config.dictionary_steps:
            return "pictures"
        done = int(self.lessons)
        if done < sentences:
            return "sentences"
        return "dictionary" if done < sentences + self.config.dictionary_steps else "pictures"

    def in_last_stage(self) -> bool:
        return self.stage == "pictures"

    def start_training(self, images: RegionBatch, texts: TextBatch, owner: Int[Tensor, " text"]) -> State:
        stage = "pictures" if self.is_static else self.stage
        if self.training:
            self.lessons += 1
        if stage == "pictures":
            return super().start_training(images, texts, owner)
        return self.start_from_sentences(texts, images.select(owner), stage == "dictionary")

    def decode_step(self, word: Float[Tensor, "row word_dim"], state: State) -> StepOutput[TopDownMemory, GraphContext]:
        memory, context = state.memory, state.context
        attend, lstms = self._decoder(isinstance(context, SentenceGraphContext))
        attention = lstms.attention_step(word, context.whole, memory)  # h¹
        weights = attend(attention[0], context.keys, context.mask)  # α
        found, extras = attended(weights, context.nodes), {"nodes": weights}
        if context.reworded is not None and context.reworded_keys is not None:
            again = self.reworded_look(attention[0], context.reworded_keys, context.mask)
            found, extras["reworded"] = torch.cat([attended(again, context.reworded), found], dim=1), again
            weights = (weights + again) / 2
        memory = lstms.language_step(found, attention, memory)  # h²
        hidden = self.dropout(memory.language_hidden)
        return StepOutput(hidden, CaptionState(memory, context), context.on_regions(weights), extras=extras)

    def _decoder(self, sentences: bool) -> tuple[AdditiveAttention, TopDown]:
        if sentences and not self.config.shared_decoder:
            return self.sentence_look, self.sentence_lstms
        return self.picture_look, self.picture_lstms


def read_out(queries: Float[Tensor, "*item dim"], entries: Float[Tensor, "entry dim"]) -> Float[Tensor, "*item dim"]:
    """R(x; D) = softmax(x Dᵀ) D."""
    weights = at_least_float32(queries @ entries.T).softmax(dim=-1)
    return weights.to(queries.dtype) @ entries.to(queries.dtype)


class Dictionary(nn.Module):
    """D: entries that sentences and pictures share. Those that start between 0 and 0.01, nearly alike, part slowly."""

    def __init__(self, count: int, dim: int, spread: float = 0.0) -> None:
        super().__init__()
        self.entries = nn.Parameter(torch.randn(count, dim) * spread if spread else torch.rand(count, dim) / 100)

    def forward(self, queries: Float[Tensor, "*item dim"]) -> Float[Tensor, "*item dim"]:
        return read_out(queries, self.entries)


def relu_layer(in_dim: int, dim: int, dropout: float) -> nn.Sequential:
    """The form of every layer of SGAE's graphs."""
    return nn.Sequential(nn.Linear(in_dim, dim), nn.ReLU(), dropout_layer(dropout))


class SceneGraphConvolution(nn.Module):
    """x_r, x_a and x_o of the equations above. With `keep`, g(o) = o, and x_r = (r + g_r(s, o, r)) / 2."""

    def __init__(self, in_dim: int, dim: int, dropout: float, keep: bool = False) -> None:
        super().__init__()
        self.own = None if keep else relu_layer(in_dim, dim, dropout)  # g
        self.as_subject = relu_layer(3 * in_dim, dim, dropout)  # g_s
        self.as_object = relu_layer(3 * in_dim, dim, dropout)  # g_o
        self.relation = relu_layer(3 * in_dim, dim, dropout)  # g_r
        self.attribute = relu_layer(2 * in_dim, dim, dropout)  # g_a

    def forward(
        self,
        things: Float[Tensor, "graph object in"],
        relations: Float[Tensor, "graph relation in"],
        attributes: Float[Tensor, "graph attributed attribute in"],
        graph: SceneGraphBatch,
    ) -> GraphNodes:
        subject, object_ = (place_of(graph.relations[:, :, end], graph.relation_mask, things) for end in (0, 1))
        triples = torch.cat([subject @ things, object_ @ things, relations], dim=2)
        degree = 1 + (subject + object_).sum(dim=1)
        messages = subject.mT @ self.as_subject(triples) + object_.mT @ self.as_object(triples)
        kept = things if self.own is None else self.own(things)
        objects = (kept + messages) / degree[:, :, None]
        related = self.relation(triples)
        if self.own is None:
            related = (relations + related) / 2
        real, described = graph.attribute_mask[..., None].to(things), graph.attribute_mask.any(dim=2)
        owners = (place_of(graph.described, described, things) @ things)[:, :, None]
        pairs = torch.cat([owners.expand(-1, -1, attributes.shape[2], -1), attributes], dim=3)
        qualities = (self.attribute(pairs) * real).sum(dim=2) / real.sum(dim=2).clamp(min=1)
        mask = torch.cat([graph.object_mask, graph.relation_mask, described], dim=1)
        numbers = torch.arange(things.shape[1], device=mask.device).expand(len(mask), -1)
        own, owner = (place[:, :, None].expand(-1, -1, 2) for place in (numbers, graph.described))
        places = torch.cat([own, graph.relations[:, :, :2], owner], dim=1)
        return GraphNodes(torch.cat([objects, related, qualities], dim=1) * mask[:, :, None], mask, places)


def place_of(
    places: Int[Tensor, "graph edge"], mask: Bool[Tensor, "graph edge"], things: Float[Tensor, "graph object in"]
) -> Float[Tensor, "graph edge object"]:
    """1 at the thing where an edge ends: its product with the things gathers, its transpose sums messages.

    Unlike a scatter, it sums in one order on any device.
    """
    here = torch.arange(things.shape[1], device=places.device)
    return ((places[:, :, None] == here) & mask[:, :, None]).to(things)


class Fusion(nn.Module):
    """u = ReLU(W₁ e + W₂ v) − (W₁ e − W₂ v)²; with `norm`, normalised against squares that grow too fast."""

    def __init__(self, word_dim: int, region_dim: int, dim: int, norm: bool = False) -> None:
        super().__init__()
        self.word = nn.Linear(word_dim, dim)
        self.seen = nn.Linear(region_dim, dim)
        self.norm = nn.LayerNorm(dim) if norm else nn.Identity()

    def forward(
        self, word: Float[Tensor, "*node word"], region: Float[Tensor, "*node region"]
    ) -> Float[Tensor, "*node dim"]:
        one, other = self.word(word), self.seen(region)
        fused: Tensor = self.norm((one + other).relu() - (one - other).square())
        return fused


class PictureGraph(nn.Module):
    """The paper's multi-modal graph network: every node fuses its word and its region, then the graph is convolved.

    A relation's region is the mean of its two things'. A thing without a name has the word e = softmax((W v) Eᵀ) E.
    """

    def __init__(self, word_dim: int, dim: int, dropout: float, norm: bool = False) -> None:
        super().__init__()
        self.guess = nn.Linear(dim, word_dim)
        self.object = Fusion(word_dim, dim, dim, norm)
        self.relation = Fusion(word_dim, dim, dim, norm)
        self.attribute = Fusion(word_dim, dim, dim, norm)
        self.convolution = SceneGraphConvolution(dim, dim, dropout)

    def forward(
        self, regions: Float[Tensor, "image region dim"], graph: SceneGraphBatch, words: nn.Embedding, embed: Embed
    ) -> GraphNodes:
        named = graph.objects > 0
        labels = read_out(self.guess(regions), words.weight.relu())
        labels = torch.where(named[:, :, None], embed(graph.objects).to(labels), labels)
        subject, object_ = (place_of(graph.relations[:, :, end], graph.relation_mask, regions) for end in (0, 1))
        owners = place_of(graph.described, graph.attribute_mask.any(dim=2), regions) @ regions
        nodes: GraphNodes = self.convolution(
            self.object(labels, regions),
            self.relation(embed(graph.relations[:, :, 2]), (subject + object_) @ regions / 2),
            self.attribute(embed(graph.attributes), owners[:, :, None]),
            graph,
        )
        return nodes


class PlainPictureGraph(nn.Module):
    """The released code's: regions as they are, words mapped into their space; things need no names."""

    def __init__(self, word_dim: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.word = relu_layer(word_dim, dim, dropout)
        self.convolution = SceneGraphConvolution(dim, dim, dropout, keep=True)

    def forward(
        self, regions: Float[Tensor, "image region dim"], graph: SceneGraphBatch, words: nn.Embedding, embed: Embed
    ) -> GraphNodes:
        relations, attributes = (self.word(embed(ids)) for ids in (graph.relations[:, :, 2], graph.attributes))
        nodes: GraphNodes = self.convolution(regions, relations, attributes, graph)
        return nodes


def spatial_words(vocabulary: Vocabulary) -> Int[Tensor, " kind"]:
    """The id of a word for each kind of relation; <unk> where the vocabulary has none."""
    known = ([vocabulary.id_of(word) for word in row if word in vocabulary] for row in RELATION_WORDS)
    return torch.tensor([ids[0] if ids else UNKNOWN for ids in known])


def spatial_graph(images: RegionBatch, words: Int[Tensor, " kind"], neighbours: int) -> SceneGraphBatch:
    """A relation of every region to each of its nearest `neighbours`, by their boxes; no names, no attributes.

    The distance is that of the centres; of equals the first is nearer.
    """
    boxes, mask = images.boxes, images.mask
    count, regions = mask.shape
    centres = (boxes[:, :, :2] + boxes[:, :, 2:]) / 2
    apart = (centres[:, :, None] - centres[:, None]).square().sum(dim=3)
    itself = torch.eye(regions, dtype=torch.bool, device=boxes.device)
    apart = apart.masked_fill(itself | ~mask[:, None], float("inf"))
    distances, order = apart.sort(dim=2, stable=True)  # stable: padding must not change who comes first
    nearest = order[:, :, :neighbours]
    there = distances[:, :, :neighbours].isfinite() & mask[:, :, None]
    kinds = how_they_stand(boxes).gather(2, nearest)
    subjects = torch.arange(regions, device=boxes.device)[:, None].expand_as(nearest)
    relations = torch.stack([subjects, nearest, words.to(boxes.device)[kinds]], dim=3)
    unnamed, none = nearest.new_zeros(count, regions), nearest.new_zeros(count, 0)
    edges = relations.flatten(1, 2), there.flatten(1)
    return SceneGraphBatch(unnamed, mask, *edges, none, none[:, :, None], none[:, :, None].bool())


def how_they_stand(boxes: Float[Tensor, "image region 4"]) -> Int[Tensor, "image region region"]:
    """The row of `RELATION_WORDS` for each pair: inside, on (touching from above), to one side, or merely near."""
    one, other = boxes[:, :, None], boxes[:, None]
    overlap = (torch.minimum(one[..., 2:], other[..., 2:]) - torch.maximum(one[..., :2], other[..., :2])).clamp(min=0)
    shared = overlap.prod(dim=-1)
    size = (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(dim=-1)
    within = (shared >= MIN_COVERED * size[:, :, None]) & (size[:, :, None] < size[:, None]) & (shared > 0)
    right, down = ((one[..., :2] + one[..., 2:] - other[..., :2] - other[..., 2:]) / 2).unbind(dim=-1)
    touches, sideways = shared > 0, right.abs() > down.abs()
    kinds = torch.where(sideways, torch.where(right < 0, LEFT, RIGHT), torch.where(down < 0, ABOVE, BELOW))
    kinds = kinds.masked_fill(touches, NEAR)
    kinds = kinds.masked_fill(touches & ~sideways & (down < 0), ON)
    return kinds.masked_fill(within, IN)
