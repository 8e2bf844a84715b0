"""SGAE: Auto-Encoding Scene Graphs for Image Captioning (Yang, Tang, Zhang, Cai; CVPR 2019).

Who says "a man on a bike" would rather say "a man riding a bike": such habits are learned from sentences alone. A
sentence is taken apart into its scene graph and put together again (S → G → D → S), through a dictionary D that every
node is rewritten in. A picture's scene graph is then rewritten in the same dictionary (I → G → D → S), so that what is
said of it follows those habits. `docs/systems/sgae.md` has the equations in full.

    x_r = g_r(e_s, e_o, e_r)      x_a = mean over the attributes a of a thing of g_a(e_o, e_a)
    x_o = (g(e_o) + Σ g_s(e_o, e_o', e_r) + Σ g_o(e_o', e_o, e_r)) / (1 + number of these)
    x̂   = R(x; D) = softmax(x Dᵀ) D
    u   = ReLU(W₁ e + W₂ v) − (W₁ e − W₂ v)²   a picture's node: its word e with what is seen v, before the convolutions
    h¹  = LSTM₁([h²; v̄; e_w], h¹)      α = softmax(w · tanh(W x̂ + U h¹))      h² = LSTM₂([Σ α x̂; h¹], h²)

`graphs.py` beside this has the graphs, their convolutions and the dictionary; the two LSTMs are Up-Down's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from saccade.batch import CaptionState, RegionBatch, SceneGraphBatch, StepOutput, TextBatch
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary, shared_parser
from saccade.language.graph_words import graph_words
from saccade.models.base.captioner import RecurrentCaptioner
from saccade.models.base.model import register
from saccade.models.sgae.graphs import (
    Dictionary,
    GraphContext,
    GraphNodes,
    PictureGraph,
    PlainPictureGraph,
    SceneGraphConvolution,
    SentenceGraphContext,
    spatial_graph,
    spatial_words,
    to_sentences,
    without_edges,
)
from saccade.nn.attention import AdditiveAttention, attended
from saccade.nn.captioners import RegionBatchNorm, RegionEmbedding, TopDown, TopDownMemory, mean_region
from saccade.nn.encode import dropout_layer

State = CaptionState[TopDownMemory, GraphContext]
Stage = Literal["sentences", "dictionary", "pictures"]


@dataclass(frozen=True)
class SgaeConfig:
    """The paper's settings for COCO."""

    region_dim: int = 2048
    word_dim: int = 1000
    dim: int = 1000  # of nodes, dictionary and LSTMs
    attention_dim: int = 512
    dictionary: bool = True  # False: the LSTMs look at the nodes as the convolutions left them
    entries: int = 10_000  # of the dictionary
    entry_spread: float = 0.0  # how far entries start apart; 0: all between 0 and 0.01, as in the released code
    dictionary_rate: float = 1.0  # how fast it learns beside the rest; the paper has 0.02 once it comes from sentences
    fusion: Literal["paper", "released"] = "paper"  # released: what is seen, and D's reading of it, are looked at apart
    fusion_norm: bool = False  # layer normalisation of what is fused, which a high learning rate needs
    relations: bool = True  # False: things alone, nobody hears from neighbours
    neighbours: int = 2  # of a region, where pictures come without graphs and boxes tell who stands how to whom
    sentence_steps: int = 0  # of training, first: sentences from their graphs, without the dictionary
    dictionary_steps: int = 0  # of training, then: sentences through the dictionary; pictures follow
    shared_decoder: bool = False  # sentences and pictures are told by the same LSTMs; the released code has two pairs
    peek: bool = False  # sentences are trained with the whole picture too, as in the released code
    attention_gain: float = 1.0  # of h¹'s initial weights in LSTM₂; 1: as published
    region_norm: RegionBatchNorm = "none"  # batch normalisation before, or around, the layer that takes regions in
    dropout: float = 0.5
    parser: str = "rules"  # what reads a sentence's graph: rules, spacy, file:PATH

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
                "shared_decoder=true goes with fusion=paper: else pictures are told from more than sentences"
            )


@register(
    "sgae",
    task="captioning",
    title="Auto-Encoding Scene Graphs for Image Captioning",
    venue="Yang et al., CVPR 2019",
)
class Sgae(RecurrentCaptioner[TopDownMemory, GraphContext]):
    Config = SgaeConfig
    spatial: Tensor
    lessons: Tensor

    def __init__(self, config: SgaeConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        dim, apart = config.dim, config.fusion == "released"
        self.dropout = dropout_layer(config.dropout)
        self.words = nn.Embedding(len(vocabulary), config.word_dim)
        self.regions = RegionEmbedding(config.region_dim, dim, config.region_norm, config.dropout)
        self.whole = nn.Linear(config.region_dim, dim)
        if config.dictionary:
            self.dictionary = Dictionary(config.entries, dim, config.entry_spread)  # D

        self.sentence_graph = SceneGraphConvolution(config.word_dim, dim, config.dropout)
        if not config.shared_decoder:
            self.sentence_look = AdditiveAttention(dim, dim, config.attention_dim)
            self.sentence_lstms = TopDown(config.word_dim, dim, dim, dim, config.attention_gain)

        self.picture_graph: nn.Module = (
            PlainPictureGraph(config.word_dim, dim, config.dropout)
            if apart
            else PictureGraph(config.word_dim, dim, config.dropout, config.fusion_norm)
        )
        self.picture_look = AdditiveAttention(dim, dim, config.attention_dim)
        beside = apart and config.dictionary
        if beside:
            self.to_sentences = to_sentences(dim, config.dropout)
            self.reworded_look = AdditiveAttention(dim, dim, config.attention_dim)
        self.picture_lstms = TopDown(config.word_dim, dim, 2 * dim if beside else dim, dim, config.attention_gain)

        self.out = nn.Linear(dim, len(vocabulary))
        self.register_buffer("spatial", spatial_words(vocabulary), persistent=False)
        self.register_buffer("lessons", torch.zeros((), dtype=torch.long))  # training steps so far

    def parameter_groups(self) -> list[dict[str, Any]]:
        own, *others = super().parameter_groups()
        if not self.config.dictionary:
            return [own, *others]
        entries = self.dictionary.entries
        own = own | {"params": [weight for weight in own["params"] if weight is not entries]}
        return [own, *others, {"params": [entries], "factor": self.config.dictionary_rate}]

    # What is attended to

    def read(self, texts: Sequence[str]) -> TextBatch:
        batch = super().read(texts)
        if not self.config.sentence_steps + self.config.dictionary_steps:
            return batch
        graphs = [parse.graph for parse in shared_parser(self.config.parser).parse(texts)]
        return replace(batch, graph=graph_words(graphs, self.vocabulary))

    def start_from(self, images: RegionBatch, whole: Float[Tensor, "row region_dim"]) -> State:
        """I → G → D: the nodes of pictures."""
        regions = self.regions(images.features, images.mask)
        nodes = self.picture_graph(regions, self.scene_graph(images), self.words, self.embed)
        reworded = keys = None
        if self.config.dictionary and self.config.fusion == "paper":
            nodes = self.reword(nodes)
        elif self.config.dictionary:
            reworded = self.reword(replace(nodes, vectors=self.to_sentences(nodes.vectors))).vectors
            keys = self.reworded_look.keys(reworded)
        context = GraphContext(
            nodes.vectors,
            self.picture_look.keys(nodes.vectors),
            nodes.mask,
            nodes.places,
            images.mask,
            self.embed_whole(whole),
            reworded,
            keys,
        )
        return CaptionState(self.picture_lstms.initial_memory(nodes.vectors), context)

    def embed_whole(self, whole: Float[Tensor, "row region_dim"]) -> Float[Tensor, "row dim"]:
        """A picture as one vector, v̄."""
        vector: Tensor = self.dropout(self.whole(whole).relu())
        return vector

    def scene_graph(self, images: RegionBatch) -> SceneGraphBatch:
        """The graph that came with pictures, or one that their boxes tell; its things are the regions."""
        if images.graph is None:
            return spatial_graph(images, self.spatial, self.config.neighbours if self.config.relations else 0)
        graph = replace(images.graph, object_mask=images.mask)
        return graph if self.config.relations else without_edges(graph)

    def start_from_sentences(
        self, texts: TextBatch, images: RegionBatch, dictionary: bool, whole: Float[Tensor, "row in"] | None = None
    ) -> State:
        """S → G (→ D): the nodes of sentences; picture t is that of sentence t, and is seen with `peek` only.

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
        look, lstms = self._decoder(sentences=True)
        keys = look.keys(nodes.vectors)
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

    # Training in stages

    @property
    def stage(self) -> Stage:
        """What the next training step is about."""
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

    # What is said

    def decode_step(self, word: Float[Tensor, "row word_dim"], state: State) -> StepOutput[TopDownMemory, GraphContext]:
        memory, context = state.memory, state.context
        look, lstms = self._decoder(isinstance(context, SentenceGraphContext))
        attention = lstms.attention_step(word, context.whole, memory)  # h¹
        weights = look(attention[0], context.keys, context.mask)  # α
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
