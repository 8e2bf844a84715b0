"""SGAE: Auto-Encoding Scene Graphs for Image Captioning (Yang, Tang, Zhang, Cai; CVPR 2019).

Who says "a man on a bike" would rather say "a man riding a bike": such habits are learned from sentences alone. A
sentence is taken apart into its scene graph and put together again (S → G → D → S), through a dictionary D that every
node is rewritten in. A picture's scene graph is then rewritten in the same dictionary (I → G → D → S), so that what is
said of it follows those habits. `docs/systems/sgae.md` has the equations in full.

    x_r, x_a, x_o = the four graph convolutions g_r, g_a, g_s, g_o       (nn/scene_graph.py)
    x̂ = R(x; D) = softmax(x Dᵀ) D                                       (nn/dictionary.py)
    u = ReLU(W₁ e + W₂ v) − (W₁ e − W₂ v)²   what is seen (v) with its word (e), before a picture's convolutions
    h¹, h²: the two LSTMs of Up-Down, which look at the nodes x̂
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from saccade.batch import CaptionState, RegionBatch, SceneGraphBatch, TextBatch, Thought
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary, shared_parser
from saccade.language.graph_words import graph_words
from saccade.models.base.captioner import Listener
from saccade.models.base.registry import register
from saccade.nn.dictionary import Dictionary
from saccade.nn.encode import dropout_layer
from saccade.nn.look import Look, found
from saccade.nn.picture_graph import PictureGraph, PlainPictureGraph, to_sentences
from saccade.nn.region_embedding import RegionBatchNorm, RegionEmbedding, mean_region
from saccade.nn.scene_graph import GraphNodes, SceneGraphConvolution, without_edges
from saccade.nn.seen_graph import ReadGraph, SeenGraph
from saccade.nn.spatial_graph import spatial_graph, spatial_words
from saccade.nn.top_down import TopDown, TopDownMemory

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
    sentence_steps: int = 0  # first lessons: sentences from their graphs, without the dictionary
    dictionary_steps: int = 0  # further lessons: sentences through the dictionary; then pictures
    one_speaker: bool = False  # sentences and pictures are told by the same LSTMs; the released code has two pairs
    peek: bool = False  # lessons from sentences see the whole picture too, as in the released code
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
            raise SaccadeError("dictionary_steps are lessons through the dictionary: they go with dictionary=true")
        if self.one_speaker and self.fusion == "released":
            raise SaccadeError(
                "one_speaker=true goes with fusion=paper: else pictures are told from more than sentences"
            )


@register(
    "sgae",
    task="captioning",
    title="Auto-Encoding Scene Graphs for Image Captioning",
    venue="Yang et al., CVPR 2019",
)
class Sgae(Listener):
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
        if not config.one_speaker:
            self.sentence_look = Look(dim, dim, config.attention_dim)
            self.sentence_lstms = TopDown(config.word_dim, dim, dim, dim)

        self.picture_graph: nn.Module = (
            PlainPictureGraph(config.word_dim, dim, config.dropout)
            if apart
            else PictureGraph(config.word_dim, dim, config.dropout, config.fusion_norm)
        )
        self.picture_look = Look(dim, dim, config.attention_dim)
        beside = apart and config.dictionary
        if beside:
            self.to_sentences = to_sentences(dim, config.dropout)
            self.reworded_look = Look(dim, dim, config.attention_dim)
        self.picture_lstms = TopDown(config.word_dim, dim, 2 * dim if beside else dim, dim)

        self.out = nn.Linear(dim, len(vocabulary))
        self.register_buffer("spatial", spatial_words(vocabulary), persistent=False)
        self.register_buffer("lessons", torch.zeros((), dtype=torch.long))  # how many there were: it sets the stage
        self._settled = False

    def parameter_groups(self) -> list[dict[str, Any]]:
        own, *others = super().parameter_groups()
        if not self.config.dictionary:
            return [own, *others]
        entries = self.dictionary.entries
        own = own | {"params": [weight for weight in own["params"] if weight is not entries]}
        return [own, *others, {"params": [entries], "factor": self.config.dictionary_rate}]

    # What is taken in

    def read(self, texts: Sequence[str]) -> TextBatch:
        batch = super().read(texts)
        if not self.config.sentence_steps + self.config.dictionary_steps:
            return batch
        graphs = [parse.graph for parse in shared_parser(self.config.parser).parse(texts)]
        return replace(batch, graph=graph_words(graphs, self.vocabulary))

    def start(self, images: RegionBatch) -> CaptionState:
        return self.start_seeing(images, mean_region(images.features, images.mask))

    def start_seeing(self, images: RegionBatch, whole: Float[Tensor, "row region_dim"]) -> CaptionState:
        """I → G → D: the nodes of pictures; `whole` need not be the mean of their regions."""
        nodes = self.picture_graph(
            self.regions(images.features, images.mask), self.seen_graph(images), self.words, self.hear
        )
        beside = None
        if self.config.dictionary and self.config.fusion == "paper":
            nodes = self.reword(nodes)
        elif self.config.dictionary:
            beside = self.reword(replace(nodes, vectors=self.to_sentences(nodes.vectors))).vectors
        keys = None if beside is None else self.reworded_look.keys(beside)
        seen = self.picture_look.keys(nodes.vectors), nodes.mask, nodes.places, images.mask, self.take_in(whole)
        return CaptionState(self.picture_lstms.blank(nodes.vectors), SeenGraph(nodes.vectors, *seen, beside, keys))

    def take_in(self, whole: Float[Tensor, "row region_dim"]) -> Float[Tensor, "row dim"]:
        """A picture as one vector."""
        taken: Tensor = self.dropout(self.whole(whole).relu())
        return taken

    def seen_graph(self, images: RegionBatch) -> SceneGraphBatch:
        """The graph that came with pictures, or one that their boxes tell; its things are the regions."""
        if images.graph is None:
            return spatial_graph(images, self.spatial, self.config.neighbours if self.config.relations else 0)
        graph = replace(images.graph, object_mask=images.mask)
        return graph if self.config.relations else without_edges(graph)

    def start_reading(
        self, texts: TextBatch, images: RegionBatch, dictionary: bool, whole: Float[Tensor, "row in"] | None = None
    ) -> CaptionState:
        """S → G (→ D): the nodes of sentences; picture t is that of sentence t, and is seen with `peek` only."""
        if texts.graph is None:
            raise SaccadeError("these sentences come without scene graphs: read them with the model's own read()")
        nodes = self.read_graph(texts.graph)
        if dictionary:
            nodes = self.reword(nodes)
        if self.config.peek:
            whole = self.take_in(mean_region(images.features, images.mask) if whole is None else whole)
        else:
            whole = mean_region(nodes.vectors, nodes.mask)
        look, lstms = self._speaker(reading=True)
        seen = ReadGraph(nodes.vectors, look.keys(nodes.vectors), nodes.mask, nodes.places, images.mask, whole)
        return CaptionState(lstms.blank(nodes.vectors), seen)

    def read_graph(self, graph: SceneGraphBatch) -> GraphNodes:
        parts = graph.objects, graph.relations[:, :, 2], graph.attributes
        nodes: GraphNodes = self.sentence_graph(*map(self.hear, parts), graph)
        return nodes

    def reword(self, nodes: GraphNodes) -> GraphNodes:
        """x̂ = R(x; D)."""
        return replace(nodes, vectors=self.dictionary(nodes.vectors) * nodes.mask[:, :, None])

    # Lessons

    @property
    def stage(self) -> Stage:
        """What lessons are about now."""
        sentences = self.config.sentence_steps
        if not sentences + self.config.dictionary_steps:
            return "pictures"
        done = int(self.lessons)
        if done < sentences:
            return "sentences"
        return "dictionary" if done < sentences + self.config.dictionary_steps else "pictures"

    @property
    def settled(self) -> bool:
        """Once pictures are told, nothing else ever is: a GPU need not be asked how many lessons there were."""
        self._settled = self._settled or self.stage == "pictures"
        return self._settled

    def start_lesson(self, images: RegionBatch, texts: TextBatch, owner: Int[Tensor, " text"]) -> CaptionState:
        stage = "pictures" if self._settled else self.stage
        if self.training:
            self.lessons += 1
        if stage == "pictures":
            return super().start_lesson(images, texts, owner)
        return self.start_reading(texts, images.select(owner), stage == "dictionary")

    # What is said

    def hear(self, words: Int[Tensor, "*text"]) -> Float[Tensor, "*text word_dim"]:
        heard: Tensor = self.dropout(self.words(words).relu())
        return heard

    def think(self, word: Float[Tensor, "row word_dim"], state: CaptionState) -> Thought:
        memory, seen = state.memory, state.seen
        assert isinstance(memory, TopDownMemory)
        assert isinstance(seen, SeenGraph)
        look, lstms = self._speaker(isinstance(seen, ReadGraph))
        looking = lstms.look(word, seen.whole, memory)
        weights = look(looking[0], seen.keys, seen.mask)
        taken, extras = found(weights, seen.nodes), {"nodes": weights}
        if seen.reworded is not None and seen.reworded_keys is not None:
            again = self.reworded_look(looking[0], seen.reworded_keys, seen.mask)
            taken, extras["reworded"] = torch.cat([found(again, seen.reworded), taken], dim=1), again
            weights = (weights + again) / 2
        memory = lstms.say(taken, looking, memory)
        hidden = self.dropout(memory.saying)
        return Thought(hidden, CaptionState(memory, seen), seen.on_regions(weights), extras=extras)

    def _speaker(self, reading: bool) -> tuple[Look, TopDown]:
        if reading and not self.config.one_speaker:
            return self.sentence_look, self.sentence_lstms
        return self.picture_look, self.picture_lstms

    def speak(self, hidden: Float[Tensor, "*row dim"]) -> Float[Tensor, "*row word"]:
        logits: Tensor = self.out(hidden)
        return logits
