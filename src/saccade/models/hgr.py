"""HGR: Fine-grained Video-Text Retrieval with Hierarchical Graph Reasoning (Chen, Zhao, Jin, Wu; CVPR 2020).

A sentence is a graph of three levels: the event (all of it), its actions (verbs), and entities with the roles that they
play for an action. A video has three encodings of its frames f_i, one for each level. Events are compared as wholes;
every action and every entity looks for its own frames. Of the words' states w_i, from a GRU of two directions:

    g_e    = Σ_i α_i w_i,   α = softmax_i(a · w_i);   g_a, g_o = the largest of each number over a phrase's words
    g_p    ← g_p ⊙ W_r r_p                        for an action or entity p of role r_p: role matrices, factorised   (1)
    β_ij   = softmax over j ∈ N_i of (W_q g_i + b_q) · W_k g_j / √d                                                  (2)
    g_i    ← LayerNorm(g_i + W_t Σ_j β_ij g_j)    in every layer of reasoning; the result is c_e, c_a, c_o           (3)
    v_x,i  = W_x f_i + b_x,   x ∈ {e, a, o};      v_e = Σ_i softmax_i(a_v · v_e,i) v_e,i                             (4)
    s_e    = cos(v_e, c_e)                                                                                           (5)
    s_ij   = cos(v_x,j, c_x,i),   φ_ij = softmax_j(λ [s_ij]₊ / √(Σ_j [s_ij]₊²))                                      (6)
    s_x    = mean over i of cos(Σ_j φ_ij v_x,j, c_x,i);   or the sum over i of Σ_j φ_ij s_ij                         (7)
    S      = (s_e + s_a + s_o) / 3                                                                                   (8)

As in SCAN the attended frames are never computed: c · Σ φ v = Σ φ (c · v), and their length is √(φᵀ G φ), G = V Vᵀ.
Defaults are those of the released code, on which the published figures rest; the text's forms are settings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from saccade.batch import Alignment, ImageCode, RegionBatch, TextBatch, TextCode
from saccade.core.config import check_ranges
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.language.parsing.roles import RoleGraph
from saccade.language.roles import ROLES, role_tables, shared_roles
from saccade.models.base.matcher import FragmentMatcher, Fragments
from saccade.models.base.model import Model, register
from saccade.nn.attention import masked_softmax, products
from saccade.nn.encode import Standardise, WordEncoder, at_least_float32, dropout_layer, full_precision, unit
from saccade.nn.recurrent import SentenceLstm
from saccade.nn.transformer import TransformerWords
from saccade.ops import EPSILON, all_pairs, pool
from saccade.ops.phrase_matching import PHRASE_MATCHING

Level = Literal["event", "action", "entity"]
EVENT = len(ROLES)  # the event's own row of W_r, where it has one
SHORTEST = 1e-10  # the least that a norm over frames counts as


@dataclass(frozen=True)
class HgrConfig:
    """The settings of the released code for MSR-VTT."""

    region_dim: int = 2048  # of a frame
    word_dim: int = 300
    dim: int = 1024
    word_encoder: Literal["gru", "lstm", "minilm"] = (
        "gru"  # the text has an LSTM; minilm: pre-trained, not in the paper
    )
    word_lr_scale: float = 0.1  # how fast a pre-trained word encoder learns, beside the rest of the model
    layers: int = 1  # of the GRU
    bidirectional: bool = True
    roles: Literal["phrases", "all", "none"] = "phrases"  # (1): all: of the event too, as in the text
    graph_layers: int = 1  # (2–3); 0: no reasoning
    graph_attention: bool = True  # False: β is the same for all neighbours
    attention_dim: int | None = None  # d; None: half of dim. The text divides by √dim: attention_dim=dim
    layer_norm: bool = True  # False: the text's (3)
    event_listens: bool = False  # True: the event hears its actions; in the released graphs it hears nobody
    levels: tuple[Level, ...] = ("event", "action", "entity")  # that (8) is the mean of
    share_levels: bool = False  # one W for all levels of (4)
    sharpness: float = 4.0  # λ
    fusion: Literal["vectors", "scores"] = "vectors"  # (7): scores: the text's Σ_j φ_ij s_ij
    phrase_pool: Literal["mean", "sum"] = "mean"  # (7): sum: the text's
    loss_weights: tuple[float, ...] = ()  # of losses on S and on each of the levels; none: on S alone
    max_words: int = 30
    max_frames: int = 20  # evenly taken where a video has more; 0: all
    actions: int = 4  # at most, of a sentence
    entities: int = 6
    parser: str = "rules"  # where role graphs come from: rules, spacy, file:TREES, roles:GRAPHS
    dropout: float = 0.2  # of word vectors and encoded frames in training
    graph_dropout: float = 0.5  # of what arrives at a node
    standardise: bool = False  # features to mean 0 and spread 1, channel by channel; not in the paper
    budget_mb: int = 256  # bounds the memory of all-pairs scoring

    def __post_init__(self) -> None:
        check_ranges(self, "sharpness", "more than zero")
        check_ranges(self, "graph_layers", "zero or more")
        check_ranges(self, "max_frames", "zero or more")
        for name in ("max_words", "actions", "entities"):
            check_ranges(self, name, "at least 1")
        if not self.levels or len(set(self.levels)) < len(self.levels):
            raise SaccadeError(f"model.levels are some of event, action and entity, each once, not {self.levels}")
        if self.loss_weights and len(self.loss_weights) != 1 + len(self.levels):
            raise SaccadeError(
                f"model.loss_weights: one for S and one for each of {len(self.levels)} levels were expected, "
                f"not {len(self.loss_weights)}"
            )

    @property
    def local(self) -> tuple[Level, ...]:
        """The levels whose phrases look for frames of their own."""
        return tuple(level for level in self.levels if level != "event")

    @property
    def reads_phrases(self) -> bool:
        return bool(self.local) or (self.event_listens and self.graph_layers > 0)


class RoleReasoning(nn.Module):
    """One layer of (2–3)."""

    def __init__(self, config: HgrConfig) -> None:
        super().__init__()
        dim, inner = config.dim, config.attention_dim or max(1, config.dim // 2)
        self.message = nn.Linear(dim, dim, bias=False)  # W_t
        self.query = nn.Linear(dim, inner) if config.graph_attention else None
        self.key = nn.Linear(dim, inner, bias=False) if config.graph_attention else None  # a softmax is blind to b_k
        self.norm = nn.LayerNorm(dim) if config.layer_norm else nn.Identity()
        self.dropout = dropout_layer(config.graph_dropout)

    def forward(
        self, nodes: Float[Tensor, "text node dim"], edges: Float[Tensor, "text node node"]
    ) -> Float[Tensor, "text node dim"]:
        weights = edges
        if self.query is not None and self.key is not None:
            heard = edges > 0
            query = self.query(nodes) / math.sqrt(self.query.out_features)
            weights = masked_softmax(products(query, self.key(nodes)), heard) * heard  # (2)
        arrived = self.message(torch.bmm(weights.to(nodes), nodes))
        found: Tensor = self.norm(at_least_float32(nodes + self.dropout(arrived)))  # (3)
        return found


@dataclass(frozen=True)
class Frames(Fragments):
    """The frames of videos at the levels of phrases, their Gram matrices and lengths, and the event."""

    vectors: Float[Tensor, "image level frame dim"]
    mask: Bool[Tensor, "image frame"]
    gram: Float[Tensor, "image level frame frame"]
    length: Float[Tensor, "image level frame"]
    event: Float[Tensor, "image dim"] | None = None  # of length one
    focus: Float[Tensor, "image frame"] | None = None  # how much each frame counts in it


@dataclass(frozen=True)
class Phrases(Fragments):
    """The actions and the entities of sentences, of length one, and the event."""

    vectors: Float[Tensor, "text level phrase dim"]
    mask: Bool[Tensor, "text phrase"]  # a phrase of any level is there
    real: Bool[Tensor, "text level phrase"]
    spans: Float[Tensor, "text level phrase word"]  # 1 at the words of each
    word_mask: Bool[Tensor, "text word"]
    event: Float[Tensor, "text dim"] | None = None

    def trimmed(self, longest: int) -> Phrases:
        cut = {name: getattr(self, name)[:, :, :longest] for name in ("vectors", "real", "spans")}
        return replace(self, mask=self.mask[:, :longest], **cut)


@register(
    "hgr",
    task="matching",
    title="Fine-grained Video-Text Retrieval with Hierarchical Graph Reasoning",
    venue="Chen et al., CVPR 2020",
)
class Hgr(FragmentMatcher):
    Config = HgrConfig
    keep_in_float32 = ("graph",)
    operator = PHRASE_MATCHING
    intended_use = "To rank videos by sentences and sentences by a video, and to show which phrase found which frames."

    def __init__(self, config: HgrConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        Model.__init__(self, config, vocabulary, extractor)  # with encoders of its own
        dim, words = config.dim, len(vocabulary)
        self.standardise = Standardise(config.region_dim) if config.standardise else None
        self.dropout = dropout_layer(config.dropout)
        maps = 1 if config.share_levels else len(config.levels)
        self.levels = nn.ModuleList(nn.Linear(config.region_dim, dim) for _ in range(maps))  # (4)
        if "event" in config.levels:
            self.focus = nn.Linear(dim, 1, bias=False)  # a_v
        self.words: WordEncoder | TransformerWords
        if config.word_encoder == "minilm":
            self.words = TransformerWords(words, dim, False, config.dropout)
        else:
            form = config.layers, config.bidirectional, False, config.dropout, config.word_encoder
            self.words = WordEncoder(words, config.word_dim, dim, *form)
            nn.init.uniform_(self.words.embed.weight, -(config.word_dim**-0.5), config.word_dim**-0.5)
            begin(self.words.rnn, dim)
        self.reasons = config.graph_layers > 0 and config.reads_phrases
        if "event" in config.levels or self.reasons:
            self.attend_words = nn.Linear(dim, 1, bias=False)  # a
        if config.reads_phrases and config.roles != "none":
            self.roles = nn.Embedding(EVENT + (config.roles == "all" and hasattr(self, "attend_words")), dim)  # W_r
        self.graph = nn.ModuleList(RoleReasoning(config) for _ in range(config.graph_layers if self.reasons else 0))

    # Sentences

    def read(self, texts: Sequence[str]) -> TextBatch:
        """With role graphs."""
        batch = super().read(texts)
        if not self.config.reads_phrases:
            return batch
        return self.with_roles(batch, shared_roles(self.config.parser).read(texts))

    def with_roles(self, texts: TextBatch, graphs: Sequence[RoleGraph]) -> TextBatch:
        """Sentences with given role graphs."""
        config, words = self.config, texts.tokens.shape[1]
        found = role_tables(
            graphs, config.actions, config.entities, words, config.max_words, event_listens=config.event_listens
        )
        return replace(texts, **{name: table.to(texts.tokens.device) for name, table in found._asdict().items()})

    def states(self, texts: TextBatch) -> tuple[Float[Tensor, "text word dim"], Bool[Tensor, "text word"]]:
        """w at the places of words, and where these are: <start>, <end> and what follows `max_words` are not read."""
        if isinstance(self.words, TransformerWords):
            return self.words(texts) * texts.mask[..., None], texts.mask
        place = torch.arange(texts.tokens.shape[1], device=texts.tokens.device)
        count = (texts.lengths - 2).clamp(min=1, max=self.config.max_words)[:, None]
        real = (place >= 1) & (place <= count)
        inner = self.words(TextBatch(texts.tokens[:, 1:], real[:, 1:]))
        return functional.pad(inner, (0, 0, 1, 0)) * real[..., None], real

    def encode_texts(self, texts: TextBatch) -> TextCode:
        """c_e, c_a and c_o."""
        states, real = self.states(texts)
        event = self.event_node(states, real) if hasattr(self, "attend_words") else None
        if not self.config.reads_phrases:
            return TextCode(states, texts.mask, event)
        if texts.role_words is None or texts.roles is None or texts.edges is None:
            raise SaccadeError(
                "these sentences come without their role graphs, which HGR needs: read them with the model's own read()"
            )
        spans = texts.role_words * real[:, None]
        phrases = self.phrase_nodes(states, spans, texts.roles)
        if self.config.roles == "all" and event is not None:
            event = event * self.roles.weight[EVENT]
        if not self.reasons or event is None:
            return TextCode(states, texts.mask, event, phrases=spans, nodes=phrases)
        nodes = torch.cat([event[:, None], phrases], dim=1)
        for layer in self.graph:
            nodes = layer(nodes, texts.edges)
        return TextCode(states, texts.mask, nodes[:, 0], phrases=spans, nodes=nodes[:, 1:])

    def event_node(
        self, states: Float[Tensor, "text word dim"], real: Bool[Tensor, "text word"]
    ) -> Float[Tensor, "text dim"]:
        """g_e."""
        weights = masked_softmax(self.attend_words(states)[..., 0], real)
        return torch.bmm(weights[:, None], at_least_float32(states))[:, 0]

    def phrase_nodes(
        self, states: Float[Tensor, "text word dim"], spans: Float[Tensor, "text phrase word"], roles: Tensor
    ) -> Float[Tensor, "text phrase dim"]:
        """g_a and g_o, and (1); zero where there is no phrase."""
        own, there = spans[..., None] > 0, spans.any(dim=2)[..., None]
        largest = at_least_float32(states)[:, None].masked_fill(~own, -torch.inf).amax(dim=2).masked_fill(~there, 0.0)
        return largest if self.config.roles == "none" else largest * self.roles(roles)

    # Videos

    def encode_images(self, images: RegionBatch) -> ImageCode:
        """The frames at every level side by side (4)."""
        features = images.features if self.standardise is None else self.standardise(images.features, images.mask)
        mask = images.mask & evenly_taken(images.mask, self.config.max_frames)
        maps = [self.levels[0 if self.config.share_levels else n] for n in range(len(self.config.levels))]
        vectors = torch.cat([at_least_float32(self.dropout(level(features))) for level in maps], dim=2)
        return ImageCode(vectors * mask[..., None], mask)

    def prepare(self, images: ImageCode, texts: TextCode) -> tuple[Frames, Phrases]:
        maps = dict(zip(self.config.levels, torch.split(images.regions, self.config.dim, dim=2), strict=True))
        vectors = torch.stack(
            [maps[level] for level in self.config.local] or [images.regions[..., : self.config.dim]], dim=1
        )
        length = torch.linalg.vector_norm(vectors, dim=-1).clamp(min=EPSILON)
        seen = Frames(vectors, images.mask, products(vectors, vectors), length)
        nodes = texts.words[:, :0] if texts.nodes is None else texts.nodes
        spans = self.by_level(texts.mask[:, None] * nodes.new_zeros(()) if texts.phrases is None else texts.phrases)
        real = spans.any(dim=3)
        said = Phrases(self.by_level(unit(nodes)), real.any(dim=1), real, spans, texts.mask)
        if "event" not in maps:
            return seen, said
        assert texts.pooled is not None
        focus = masked_softmax(self.focus(maps["event"])[..., 0], images.mask)
        event = unit(torch.bmm(focus[:, None], maps["event"])[:, 0])  # v_e of (4)
        return replace(seen, event=event, focus=focus), replace(said, event=unit(texts.pooled))

    def by_level(self, values: Tensor) -> Tensor:
        """[text phrase …] as [text level phrase …]: actions and entities apart, where phrases are read at all."""
        if not self.config.local:
            return values[:, None, :0]
        counts = [self.config.actions, self.config.entities]
        parts, size = dict(zip(("action", "entity"), torch.split(values, counts, dim=1), strict=True)), max(counts)
        wanted = [parts[level] for level in self.config.local]
        more = [(0, 0) * (values.dim() - 2) + (0, size - part.shape[1]) for part in wanted]
        return torch.stack([functional.pad(part, own) for part, own in zip(wanted, more, strict=True)], dim=1)

    # Matching

    def attend(
        self,
        scores: Float[Tensor, "*pair frame phrase"],
        length: Float[Tensor, "*pair frame"],
        mask: Bool[Tensor, "*pair frame"],
        gram: Float[Tensor, "*pair frame frame"],
    ) -> tuple[Float[Tensor, "*pair frame phrase"], Float[Tensor, "*pair phrase"]]:
        """φ (6) and the match of every phrase (7), from c · v."""
        real = mask[..., None]
        cosine = scores / length[..., None]
        clipped = cosine.relu() * real
        size = clipped.square().sum(dim=-2, keepdim=True).clamp(min=SHORTEST**2).sqrt()
        sharp = (clipped * (self.config.sharpness / size)).masked_fill(~real, torch.finfo(scores.dtype).min)
        weights = sharp.softmax(dim=-2)
        if self.config.fusion == "scores":
            return weights, (weights * cosine * real).sum(dim=-2)
        squared = (torch.matmul(gram, weights) * weights).sum(dim=-2)
        return weights, (weights * scores).sum(dim=-2) / squared.clamp(min=EPSILON**2).sqrt()

    def phrase_pairs(self, images: Frames, texts: Phrases, level: Level) -> Float[Tensor, "image text"]:
        """s_x of every pair."""
        place = self.config.local.index(level)
        frames, phrases, mask = images.vectors[:, place], texts.vectors[:, place], texts.real[:, place]
        with full_precision(frames):
            scores = torch.einsum("ifd,qd->ifq", frames, phrases.flatten(0, 1))
            match = self.attend(scores, images.length[:, place], images.mask, images.gram[:, place])[1]
            return pool(match.view(len(frames), *mask.shape), mask, self.config.phrase_pool)

    def event_pairs(self, images: Frames, texts: Phrases) -> Float[Tensor, "image text"]:
        assert images.event is not None
        assert texts.event is not None
        with full_precision(images.event):
            return images.event @ texts.event.T  # (5)

    def action_pairs(self, images: Frames, texts: Phrases) -> Float[Tensor, "image text"]:
        return self.phrase_pairs(images, texts, "action")

    def entity_pairs(self, images: Frames, texts: Phrases) -> Float[Tensor, "image text"]:
        return self.phrase_pairs(images, texts, "entity")

    def pair(self, images: Frames, texts: Phrases) -> Float[Tensor, "image text"]:
        tables = [getattr(self, f"{level}_pairs")(images, texts) for level in self.config.levels]
        return torch.stack(tables).mean(dim=0)  # (8)

    def level_tables(self, images: ImageCode, texts: TextCode) -> list[Float[Tensor, "image text"]]:
        """The table of each level by itself."""
        prepared = self.prepare(images, texts)
        return [all_pairs(getattr(self, f"{level}_pairs"), *prepared, self.budget) for level in self.config.levels]

    @property
    def ranking_weights(self) -> tuple[float, ...]:
        return tuple(self.config.loss_weights)

    def ranked(self, images: ImageCode, texts: TextCode) -> tuple[Float[Tensor, "image text"], ...]:
        if not self.config.loss_weights:
            return super().ranked(images, texts)
        tables = self.level_tables(images, texts)
        return torch.stack(tables).mean(dim=0), *tables

    def alignment(self, images: Frames, texts: Phrases) -> Alignment:
        """Every word attends as the last phrase that it belongs to; a word of no phrase, as the event does."""
        sides = images.length, images.mask[:, None], images.gram
        weights, match = self.attend(products(images.vectors, texts.vectors), *sides)
        fits = pool(match, texts.real, self.config.phrase_pool)
        scores = {level: fits[:, place] for place, level in enumerate(self.config.local)}
        if images.event is not None and texts.event is not None:
            scores["event"] = (images.event * texts.event).sum(dim=-1)
        levels = torch.stack([scores[level] for level in self.config.levels], dim=1)
        spans, every = texts.spans.flatten(1, 2), weights.mT.flatten(1, 2)  # [pair, phrase, word or frame]
        order = torch.arange(1, spans.shape[1] + 1, device=spans.device)
        latest = functional.pad(spans * order[:, None], (0, 0, 1, 0)).amax(dim=1).long()  # 0: none
        shared = images.mask / images.mask.sum(dim=1, keepdim=True) if images.focus is None else images.focus
        rows = torch.cat([shared[:, None].to(every), every], dim=1)
        fits = functional.pad(match.flatten(1), (1, 0)).gather(1, latest)
        weights = rows.gather(1, latest[..., None].expand(-1, -1, rows.shape[2])) * texts.word_mask[..., None]
        return Alignment(weights, levels.mean(dim=1), texts.word_mask, images.mask, word_score=fits, level_score=levels)

    def locate(self, images: ImageCode, texts: TextCode) -> Alignment:
        return self.align(images, texts)


def begin(network: nn.Module, dim: int) -> None:
    """As the released code does: orthogonal weights, no bias but that of an LSTM's forget gate."""
    for name, weight in network.named_parameters():
        if "weight" in name:
            nn.init.orthogonal_(weight)
            continue
        nn.init.zeros_(weight)
        if isinstance(network, SentenceLstm) and "bias_ih" in name:
            nn.init.ones_(weight[dim : 2 * dim])


def evenly_taken(mask: Bool[Tensor, "image frame"], most: int) -> Bool[Tensor, "image frame"]:
    """Of videos of more frames than `most`, so many at even steps from the first to the last; else all."""
    if not most or mask.shape[1] <= most:
        return torch.ones_like(mask)
    count = mask.sum(dim=1, keepdim=True)
    steps = torch.arange(most, device=mask.device, dtype=torch.float64) / max(1, most - 1)
    places = (steps * (count - 1).clamp(min=0)).round().long()
    taken = torch.zeros_like(mask).scatter(1, places, True)
    return torch.where(count > most, taken, torch.ones_like(mask))
