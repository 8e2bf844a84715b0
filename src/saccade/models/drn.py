"""DRN: Dense Regression Network for Video Grounding (Zeng, Xu, Huang, Chen, Tan, Gan; CVPR 2020).

Every frame inside the moment that a sentence tells of learns how far it is to the moment's beginning and end, so that
one annotation supervises many frames. A video is a row of T equal segments x_s; a bi-LSTM reads a sentence into h_n,
and g = [h_1 ; h_N]. Each of several levels i asks the sentence anew and sees half as many cells as the one before:

    α_in = softmax_n w₁ · (h_n ⊙ W₂⁽ⁱ⁾ ReLU(W₃ g))        q_i = Σ_n α_in h_n
    C_i = conv_i [C_{i−1} ⊙ W_q⁽ⁱ⁾ q_i ; W_l l]            l_t = ((t − ½) / T, (t + ½) / T, 1 / T)
    P_i = conv(lateral(C_i) + upsample(lateral(C_{i+1})))                    C_{−1} = W x + b

Three heads, shared by the levels, look at a cell t: the distances d̂_t = exp(s_i · M_loc), from which follows the moment
b̂_t = (t − d̂_ts, t + d̂_te); how well the cell matches the sentence, m̂_t; and the overlap û_t of b̂_t with the truth:

    L_loc = 1/N_pos Σ_{t ∈ pos} −log IoU(d_t, d̂_t)         d_t = (t − t_s, t_e − t)
    L_match = 1/N_pos Σ_t focal(m_t, m̂_t)                   L_iou = Σ_t smooth-L1(IoU(b̂_t, b), û_t)

Positive is a cell inside the moment whose larger distance is of its level's range. Training has three stages: L_match +
L_loc; then L_iou, which moves the head of û alone; then all three. The best moment has the largest m̂_t û_t.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from saccade.batch import RankedMoments, RegionBatch, TextBatch
from saccade.core.config import check_ranges
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.base.model import register
from saccade.models.base.moment_finder import Losses, MomentFinder, MomentFinderConfig, Stage
from saccade.nn.attention import attended, masked_softmax
from saccade.nn.encode import at_least_float32, dropout_layer, last_state
from saccade.nn.losses import focal_loss
from saccade.nn.recurrent import SentenceLstm

OPEN = 1e8  # the range of the last level has no end
SAME = 1e-6  # times that differ by less, as shares of a video, are the same


@dataclass(frozen=True)
class DrnConfig(MomentFinderConfig):
    """The paper's form; the released code's is a switch wherever the two differ."""

    lstm_dim: int = 512  # of one direction
    lstm_layers: int = 1
    segments: int = 32  # T
    pool: Literal["max", "mean"] = "max"  # of the frames of a segment
    dim: int = 256  # channels of C_0; those of C_i are 2^i as many
    pyramid_dim: int = 512
    location_dim: int = 256
    location: Literal["all", "first", "none"] = "all"  # which levels are told where cells lie; first: the released code
    levels: int = 3
    least_distance: tuple[float, ...] = (-1.0, 5.6, 11.0)  # of the ranges of the levels, in segments
    most_distance: tuple[float, ...] = (6.0, 11.0)  # the last level's has no end
    tower_layers: int = 1  # convolutions of a head before its output
    positives: Literal["inside", "boundary"] = "inside"  # boundary: the first and last cell of a moment, sparse
    quality: Literal["iou", "centerness", "none"] = "iou"  # what û_t estimates; centerness: as FCOS has it
    score: Literal["both", "match", "quality"] = "both"  # what moments are ranked by
    focal_alpha: float = 0.25
    focal_gamma: float = 2.0
    prior: float = 0.01  # m̂ of a fresh model
    match_divisor: Literal["positives", "positives_and_texts"] = (
        "positives"  # of L_match; the latter: the released code
    )
    iou_least: float | None = None  # cells of less overlap are not in L_iou, the mean of the others; 0.9 in the code
    detach_iou: bool = True  # the overlap is a target and no more; false in the released code
    clamp: Literal["all", "first"] = "all"  # which moments L_iou cuts to the video; first: those of cell 0, the code
    dropout: float = 0.0  # of segments and word vectors, in training; not in the paper
    threshold: float = 0.05  # of m̂; cells below propose nothing
    per_level: int = 32  # moments that a level proposes at most
    fallback: Literal["best", "whole"] = (
        "best"  # if no cell proposes: the best, or the whole video with score 1, the code
    )

    def __post_init__(self) -> None:
        check_ranges(self, "segments levels lstm_layers tower_layers per_level", "at least 1")
        if not self.levels <= min(len(self.least_distance), len(self.most_distance) + 1):
            raise SaccadeError(
                f"model.levels is {self.levels}: model.least_distance and most_distance have fewer ranges"
            )
        if self.segments % 2 ** (self.levels - 1):
            raise SaccadeError(f"model.segments must be a multiple of {2 ** (self.levels - 1)}, not {self.segments}")
        if self.score == "quality" and self.quality == "none":
            raise SaccadeError("model.score=quality needs a quality to rank by: model.quality is none")


class Read(NamedTuple):
    """A sentence, as each level asked for it."""

    weights: Float[Tensor, "text level word"]  # α
    queries: tuple[Float[Tensor, "text dim"], ...]  # q_i


class Cells(NamedTuple):
    """What the heads say of the cells of all levels, the finest level first."""

    match: Float[Tensor, "text cell"]  # the logit of m̂
    distances: Float[Tensor, "text cell 2"]  # d̂, in segments
    quality: Float[Tensor, "text cell"] | None  # the logit of û
    places: Float[Tensor, " cell"]  # t, in segments
    level: Int[Tensor, " cell"]


def span_overlap(one: Float[Tensor, "*item 2"], other: Float[Tensor, "*item 2"]) -> Float[Tensor, "*item"]:
    """Intersection over union; of spans apart 0."""
    shared = torch.minimum(one[..., 1], other[..., 1]) - torch.maximum(one[..., 0], other[..., 0])
    hull = torch.maximum(one[..., 1], other[..., 1]) - torch.minimum(one[..., 0], other[..., 0])
    return shared.clamp(min=0) / (hull.clamp(min=0) + 1e-6)


def range_maximum(
    frames: Float[Tensor, "text frame dim"], first: Int[Tensor, "text segment"], after: Int[Tensor, "text segment"]
) -> Float[Tensor, "text segment dim"]:
    """The largest of each channel from frame `first` to the one before `after`: of two runs of 2^k that cover these."""
    runs, count = [frames], frames.shape[1]
    longest = int((after - first).max()) if frames.device.type == "cpu" else count  # a GPU would have to be waited for
    while 2 ** len(runs) <= longest:
        half = 2 ** (len(runs) - 1)
        longer = torch.maximum(runs[-1][:, :-half], runs[-1][:, half:])
        runs.append(functional.pad(longer, (0, 0, 0, count - longer.shape[1])))
    level = (after - first).float().log2().floor().long()  # exact for numbers this small
    table, own = torch.stack(runs, dim=1), torch.arange(len(frames), device=frames.device)[:, None]
    return torch.maximum(table[own, level, first], table[own, level, after - 2**level])


def range_mean(
    frames: Float[Tensor, "text frame dim"], first: Int[Tensor, "text segment"], after: Int[Tensor, "text segment"]
) -> Float[Tensor, "text segment dim"]:
    sums, own = functional.pad(frames.cumsum(dim=1), (0, 0, 1, 0)), torch.arange(len(frames), device=frames.device)
    return (sums[own[:, None], after] - sums[own[:, None], first]) / (after - first)[..., None]


def convolution(in_dim: int, out_dim: int, width: int = 3, stride: int = 1) -> nn.Sequential:
    layer = nn.Conv1d(in_dim, out_dim, width, stride, padding=width // 2, bias=False)
    nn.init.kaiming_uniform_(layer.weight, a=1)
    return nn.Sequential(layer, nn.BatchNorm1d(out_dim), nn.ReLU())


def tower(dim: int, layers: int, in_dim: int | None = None, width: int = 3) -> nn.Sequential:
    """Convolutions of a head, with biases."""
    found: list[nn.Module] = []
    for layer in range(layers):
        first = in_dim if layer == 0 and in_dim is not None else dim
        found += [nn.Conv1d(first, dim, width, padding=width // 2), nn.BatchNorm1d(dim), nn.ReLU()]
    return nn.Sequential(*found)


class Heads(nn.Module):
    """M_match, M_loc and M_iou."""

    def __init__(self, config: DrnConfig) -> None:
        super().__init__()
        dim = config.pyramid_dim
        self.match_tower, self.location_tower = tower(dim, config.tower_layers), tower(dim, config.tower_layers)
        self.match, self.location = nn.Conv1d(dim, 1, 3, padding=1), nn.Conv1d(dim, 2, 3, padding=1)
        self.scales = nn.ParameterList(torch.ones(1) for _ in range(config.levels))  # s_i
        self.mix: nn.Module | None = None
        self.quality: nn.Module | None = None
        if config.quality == "iou":
            self.mix = tower(dim, 1, 2 * dim, width=1)
            self.quality = nn.Sequential(*tower(max(dim // 2, 1), 1, dim), nn.Conv1d(max(dim // 2, 1), 1, 1))
        elif config.quality == "centerness":
            self.quality = nn.Conv1d(dim, 1, 3, padding=1)
        for layer in self.modules():
            if isinstance(layer, nn.Conv1d) and layer.bias is not None:
                nn.init.normal_(layer.weight, std=0.01)
                nn.init.zeros_(layer.bias)
        assert self.match.bias is not None
        nn.init.constant_(self.match.bias, -math.log((1 - config.prior) / config.prior))

    def towers(self, maps: Float[Tensor, "text dim cell"]) -> tuple[Tensor, Tensor]:
        return self.match_tower(maps), self.location_tower(maps)

    def rate(self, match: Tensor, location: Tensor) -> Float[Tensor, "text cell"] | None:
        """The logit of û."""
        if self.quality is None:
            return None
        rated: Tensor = self.quality(match if self.mix is None else self.mix(torch.cat([match, location], dim=1)))
        return at_least_float32(rated[:, 0])


@register(
    "drn",
    task="moments",
    title="Dense Regression Network for Video Grounding",
    venue="Zeng et al., CVPR 2020",
)
class Drn(MomentFinder):
    Config = DrnConfig
    stage: Tensor
    ranges: Tensor

    def __init__(self, config: DrnConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        levels, states = range(config.levels), 2 * config.lstm_dim
        inputs = [config.region_dim, *(config.dim * 2**level for level in levels)]  # channels of C_{i−1}
        self.dropout = dropout_layer(config.dropout)
        self.words = nn.Embedding(len(vocabulary), config.word_dim, padding_idx=0)
        self.lstm = SentenceLstm(config.word_dim, config.lstm_dim, config.lstm_layers, learned_start=False)
        self.summary = nn.Linear(2 * states, config.lstm_dim)  # W₃
        self.commands = nn.ModuleList(nn.Linear(config.lstm_dim, states) for _ in levels)  # W₂
        self.weigh = nn.Linear(states, 1)  # w₁
        self.queries = nn.ModuleList(nn.Linear(states, inputs[level]) for level in levels)  # W_q
        self.segment_map = nn.Linear(config.region_dim, config.region_dim)  # W
        self.location_map = nn.Linear(3, config.location_dim) if config.location != "none" else None  # W_l
        told = {"all": config.levels, "first": 1, "none": 0}[config.location]
        self.levels = nn.ModuleList(
            convolution(inputs[level] + config.location_dim * (level < told), inputs[level + 1], 3, min(level, 1) + 1)
            for level in levels
        )
        self.laterals = nn.ModuleList(convolution(inputs[level + 1], config.pyramid_dim, 1) for level in levels)
        self.outputs = nn.ModuleList(convolution(config.pyramid_dim, config.pyramid_dim) for _ in levels)
        self.heads = Heads(config)
        most = *config.most_distance[: config.levels - 1], OPEN
        ranges = torch.tensor([*zip(config.least_distance[: config.levels], most, strict=True)])
        self.register_buffer("ranges", ranges, persistent=False)  # of the larger distance, by level
        self.register_buffer("stage", torch.tensor(3.0))  # of training: in the first û means nothing yet

    def encode_query(self, texts: TextBatch) -> Read:
        states, _ = self.lstm(self.dropout(self.words(texts.tokens)), texts.lengths.clamp(min=1))
        states = at_least_float32(states)
        summary = torch.cat([states[:, 0], last_state(states, texts.lengths)], dim=1)  # g
        asked = functional.relu(self.summary(summary))
        weights = [
            masked_softmax(self.weigh(states * command(asked)[:, None])[..., 0], texts.mask)
            for command in self.commands
        ]
        return Read(torch.stack(weights, dim=1), tuple(attended(own, states) for own in weights))

    def segments(
        self, videos: RegionBatch
    ) -> tuple[Float[Tensor, "text segment dim"], Float[Tensor, "text segment 2"]]:
        """x_s, pooled from the frames that lie in a segment (or from the nearest, if none does), and where it lies."""
        count, begin, end = self.config.segments, videos.boxes[..., 0], videos.boxes[..., 2]
        edges = torch.arange(count + 1, device=begin.device, dtype=begin.dtype) / count
        where = torch.stack([edges[:-1], edges[1:]], dim=1)
        apart = ((begin + end) / 2)[:, None] - where.mean(dim=1)[None, :, None]
        nearest = apart.abs().masked_fill(~videos.mask[:, None], torch.inf).argmin(dim=2)  # [text segment]
        real = videos.mask[:, None]
        first = ((end[:, None] <= edges[:-1, None] + SAME) & real).sum(dim=2)  # frames are in the order of time
        after = ((begin[:, None] < edges[1:, None] - SAME) & real).sum(dim=2)
        none = after <= first
        first, after = torch.where(none, nearest, first), torch.where(none, nearest + 1, after)
        pool = range_maximum if self.config.pool == "max" else range_mean
        return pool(videos.features, first, after), where.expand(len(begin), -1, -1)

    def interact(
        self, segments: Float[Tensor, "text segment dim"], where: Float[Tensor, "text segment 2"], read: Read
    ) -> list[Float[Tensor, "text dim cell"]]:
        """C_i."""
        maps, found = self.segment_map(self.dropout(segments)).mT, []
        for level, (ask, layer) in enumerate(zip(self.queries, self.levels, strict=True)):
            maps = maps * ask(read.queries[level])[..., None]
            if self.location_map is not None and (level == 0 or self.config.location == "all"):
                stride = where.shape[1] // maps.shape[2]
                begin, end = where[:, ::stride, 0], where[:, stride - 1 :: stride, 1]
                told = self.location_map(torch.stack([begin, end, end - begin], dim=2).to(segments.dtype))
                maps = torch.cat([maps, told.mT], dim=1)
            maps = layer(maps)
            found.append(maps)
        return found

    def pyramid(self, maps: list[Float[Tensor, "text dim cell"]]) -> list[Float[Tensor, "text dim cell"]]:
        """P_i."""
        found: list[Tensor] = []
        above: Tensor | None = None
        for own, lateral, output in reversed(list(zip(maps, self.laterals, self.outputs, strict=True))):
            inner = lateral(own)
            above = inner if above is None else inner + above.repeat_interleave(2, dim=2)
            found.insert(0, output(above))
        return found

    def cells(self, pyramid: list[Float[Tensor, "text dim cell"]], stage: Stage = 3) -> Cells:
        """What the heads say: in the first stage nothing of û, in the second û does not move what it is made of."""
        match, distances, quality, places = [], [], [], []
        for level, maps in enumerate(pyramid):
            with torch.set_grad_enabled(torch.is_grad_enabled() and stage != 2):
                of_match, of_location = self.heads.towers(maps)
                scaled = self.heads.scales[level] * at_least_float32(self.heads.location(of_location))
            match.append(at_least_float32(self.heads.match(of_match)[:, 0]))
            distances.append(scaled.exp().mT)
            rated = self.heads.rate(of_match, of_location) if stage != 1 else None
            quality += [rated] if rated is not None else []
            stride = 2**level
            places.append((torch.arange(maps.shape[2], device=maps.device) * stride + stride / 2).to(match[0].dtype))
        numbers = [torch.full_like(own, level, dtype=torch.long) for level, own in enumerate(places)]
        of_all = torch.cat(quality, dim=1) if quality else None
        return Cells(
            torch.cat(match, dim=1), torch.cat(distances, dim=1), of_all, torch.cat(places), torch.cat(numbers)
        )

    def predict_cells(self, videos: RegionBatch, texts: TextBatch) -> tuple[Cells, Read]:
        read = self.encode_query(texts)
        return self.cells(self.pyramid(self.interact(*self.segments(videos), read))), read

    def targets(
        self, spans: Float[Tensor, "text 2"], cells: Cells
    ) -> tuple[Bool[Tensor, "text cell"], Float[Tensor, "text cell 2"]]:
        """Which cells are positive, and d_t of all."""
        begin, end = (spans * self.config.segments).to(cells.places)[:, :, None].unbind(dim=1)
        distances = torch.stack([cells.places - begin, end - cells.places], dim=2)
        least, most = self.ranges.to(distances).unbind(dim=1)
        nearer, further = distances.amin(dim=2), distances.amax(dim=2)
        positive = (nearer > 0) & (further >= least[cells.level]) & (further <= most[cells.level])
        if self.config.positives == "boundary":
            positive = positive & (nearer <= 2.0**cells.level)
        return positive, distances

    def moments(self, cells: Cells) -> Float[Tensor, "text cell 2"]:
        """b̂_t, as shares of the video."""
        begin, end = cells.places - cells.distances[..., 0], cells.places + cells.distances[..., 1]
        return torch.stack([begin, end], dim=2) / float(self.config.segments)

    def location_loss(
        self, cells: Cells, positive: Bool[Tensor, "text cell"], wanted: Float[Tensor, "text cell 2"]
    ) -> Float[Tensor, ""]:
        """L_loc."""
        wanted = torch.where(positive[..., None], wanted, torch.ones_like(wanted))
        shared = torch.minimum(wanted, cells.distances).sum(dim=2)
        union = wanted.sum(dim=2) + cells.distances.sum(dim=2) - shared
        apart = -((shared + 1e-8) / (union + 1e-8)).log()
        return (apart * positive).sum() / positive.sum().clamp(min=1)

    def match_loss(self, cells: Cells, positive: Bool[Tensor, "text cell"]) -> Float[Tensor, ""]:
        """L_match."""
        each = focal_loss(cells.match, positive, self.config.focal_alpha, self.config.focal_gamma)
        more = len(positive) if self.config.match_divisor == "positives_and_texts" else 0
        return each.sum() / (positive.sum() + more).clamp(min=1)

    def quality_loss(
        self,
        cells: Cells,
        spans: Float[Tensor, "text 2"],
        positive: Bool[Tensor, "text cell"],
        wanted: Float[Tensor, "text cell 2"],
    ) -> Float[Tensor, ""]:
        """L_iou: of one text the sum over all cells, or the mean over those whose overlap is at least `iou_least`."""
        assert cells.quality is not None
        if self.config.quality == "centerness":
            known = torch.where(positive[..., None], wanted, torch.ones_like(wanted))
            central = (known.amin(dim=2) / known.amax(dim=2)).sqrt()
            each = functional.binary_cross_entropy_with_logits(cells.quality, central, reduction="none")
            return (each * positive).sum() / positive.sum().clamp(min=1)
        found = self.moments(cells)
        if self.config.clamp == "all":
            found = found.clamp(0, 1)
        else:
            found = torch.cat([found[:, :1].clamp(0, 1), found[:, 1:]], dim=1)
        overlap = span_overlap(found, spans[:, None].to(found))
        overlap = overlap.detach() if self.config.detach_iou else overlap
        each = functional.smooth_l1_loss(cells.quality.sigmoid(), overlap, reduction="none")
        if self.config.iou_least is None:
            return each.sum(dim=1).mean()
        there = overlap > float(self.config.iou_least)
        return (each * there).sum() / there.sum().clamp(min=1)

    def losses(self, videos: RegionBatch, texts: TextBatch, spans: Float[Tensor, "text 2"], stage: Stage = 3) -> Losses:
        if stage == 2 and self.heads.quality is None:
            stage = 1
        self.stage.fill_(float(stage))
        with torch.set_grad_enabled(torch.is_grad_enabled() and stage != 2):
            read = self.encode_query(texts)
            pyramid = self.pyramid(self.interact(*self.segments(videos), read))
        cells = self.cells(pyramid, stage)
        positive, wanted = self.targets(spans, cells)
        found: Losses = {}
        if stage != 2:
            found = {"match": self.match_loss(cells, positive), "location": self.location_loss(cells, positive, wanted)}
        if cells.quality is not None:
            found[self.config.quality] = self.quality_loss(cells, spans, positive, wanted)
        return found

    def scores(self, cells: Cells) -> Float[Tensor, "text cell"]:
        """√(m̂ û), in the first stage √m̂."""
        match = cells.match.sigmoid()
        if cells.quality is None or self.config.score == "match":
            return match.sqrt()
        quality = cells.quality.sigmoid()
        if self.config.score == "quality":
            return quality.sqrt()
        return torch.where(self.stage < 2, match, match * quality).sqrt()

    def proposals(self, cells: Cells) -> Bool[Tensor, "text cell"]:
        """Which cells propose a moment: those that match, and of each level the best."""
        proposing, scores = cells.match.sigmoid() > float(self.config.threshold), self.scores(cells)
        for level in range(self.config.levels):
            own = cells.level == level
            ranks = scores.masked_fill(~(proposing & own), -1).argsort(dim=1, descending=True).argsort(dim=1)
            proposing = proposing & (~own | (ranks < int(self.config.per_level)))
        return proposing

    def propose(self, videos: RegionBatch, texts: TextBatch) -> RankedMoments:
        cells, read = self.predict_cells(videos, texts)
        return replace(self.ranked(cells), weights=read.weights)

    def ranked(self, cells: Cells) -> RankedMoments:
        scores, spans, mask = self.scores(cells), self.moments(cells).clamp(0, 1), self.proposals(cells)
        alone = ~mask.any(dim=1)
        best = functional.one_hot(scores.argmax(dim=1), scores.shape[1]).bool()
        mask = mask | (alone[:, None] & best)
        if self.config.fallback == "whole":
            instead = alone[:, None] & best
            scores = scores.masked_fill(instead, 1.0)
            whole = torch.stack([torch.zeros_like(scores), torch.ones_like(scores)], dim=2)
            spans = torch.where(instead[..., None], whole, spans)
        order = scores.masked_fill(~mask, -1).argsort(dim=1, descending=True, stable=True)
        ranked = (values.gather(1, order) for values in (scores, mask))
        spans = spans.gather(1, order[..., None].expand(-1, -1, 2))
        found, there = ranked
        return RankedMoments(
            spans * there[..., None], found * there, there, self.scores(cells)[:, : self.config.segments]
        )
