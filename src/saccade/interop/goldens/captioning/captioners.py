"""Captioners of ImageCaptioning.pytorch and its kin, in double precision.

Up-Down and adaptive attention: teacher forcing, attention, cross-entropy and its gradients, greedy and beam search with
all stored options, self-critical training. A case is NAME_io.npz with NAME_model.pth and NAME_infos.pkl.

SGAE: nodes of both graphs, both dictionary readings, and all three modes of use. Modes 0 and 1 reconstruct sentences
from their graphs, without and with the dictionary; 2 captions pictures, of which `rela0` and `rela1` are without and
with the pictures' graphs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.batch import PAD, START, UNKNOWN, CaptionState, RegionBatch, SceneGraphBatch, TeacherForced, TextBatch
from saccade.core.arrays import read_npz
from saccade.core.errors import SaccadeError
from saccade.decoding import DecodedCaptions, DecodingConfig, beam_search, diverse_beam_search, greedy
from saccade.interop.harness import Case, Difference, Excuse, Golden, Table, fitted, gradient_norms, memo
from saccade.interop.importer import Imported, Importer
from saccade.interop.importers.captioning import ADAPTIVE, DICTIONARY, SGAE, UPDOWN
from saccade.metrics.captions.cider import DocumentFrequencies
from saccade.metrics.captions.reward import SelfCriticalReward
from saccade.models import Sgae
from saccade.models.sgae import GraphContext, GraphNodes, PlainPictureGraph
from saccade.tasks.captioning.task import mean_of_others, policy_loss

LOG_PROBABILITY, METRIC, LOSS = 1e-5, 1e-6, 1e-5  # allowed of float32 outputs, computed in float64 here
DOCUMENT_FREQUENCIES = "scst_df.p"
SEARCH_OPTIONS: dict[str, dict[str, Any]] = {  # the endings of stored beam searches
    "dc": {"no_immediate_repeat": True},
    "nobad": {"no_bad_endings": True},
    "unk": {"suppress_unk": True},
    "wu": {"length_penalty": "wu", "alpha": 0.9},
    "avg": {"length_penalty": "average"},
    "old": {},  # the reference's earlier implementation finds the same
}
NO_MASKS = Excuse("stored empty: the reference cannot normalise batches without masks")


class CaptionerCase:
    """Pictures and the captions of each, one after the other, with a model."""

    def __init__(self, case: Case, imported: Imported[Any], folder: Path, query_bias: str) -> None:
        self.case, self.imported, self.model, self.words = case, imported, imported.model, imported.words
        self.folder, self.query_bias = folder, query_bias
        features = case.tensor("att_feats").double()
        self.mask = torch.ones(features.shape[:2], dtype=torch.bool)
        if "att_masks" in case.stored:
            self.mask = case.tensor("att_masks") > 0
        regions = int(self.mask.sum(dim=1).max())  # the reference cuts off what is padding in all pictures
        boxes = torch.zeros(len(features), regions, 4).double()
        self.images = RegionBatch(features[:, :regions], self.mask[:, :regions], boxes)
        self.whole, self.labels = case.tensor("fc_feats").double(), case.tensor("labels")
        flat = self.labels.reshape(-1, self.labels.shape[-1])
        self.sentences = torch.cat([torch.full_like(flat[:, :1], START), self.words.sentences(flat[:, 1:])], dim=1)
        self.per_image = len(flat) // len(features)
        going_on = (flat[:, 1:-1] != 0).any(dim=0)
        self.steps = 1 + int(going_on.cumprod(dim=0).sum())  # the reference stops where all captions are over
        options = imported.source.options
        self.max_length = int(options.get("max_length", 20) or options("seq_length"))
        self.decoding: dict[str, Any] = {"max_length": self.max_length, "suppress_unk": False}

    @cached_property
    def state(self) -> CaptionState:
        state: CaptionState = self.model.start_from(self.images, self.whole)
        return state

    def force(self, masked: bool = True) -> TeacherForced:
        """Without masks, as the reference may run, padding is a region like others."""
        images = self.images
        if not masked:
            images = RegionBatch(images.features, torch.ones_like(images.mask), images.boxes)
        state = self.model.start_from(images, self.whole)
        forced: TeacherForced = self.model.teacher_force(state.repeat(self.per_image), self.sentences[:, :-1])
        return forced

    forced = memo(force)

    def keys(self) -> Tensor:
        """The query's bias is added to every region's key here; that of padding, never used, is the bias alone."""
        context: Any = self.state.context
        weights = self.imported.source.weights
        keys = context.keys - weights[self.query_bias].to(context.keys)
        return torch.where(context.mask[:, :, None], keys, weights["ctx2att.bias"].to(keys))

    def teacher_forced(self, what: str, ending: str) -> Tensor | Excuse:
        """The distribution after each word, or the attention; zeros where all captions are over."""
        stored = self.case.stored[f"{what}{ending}"]
        if ending and not self.case.stored.get("logprobs_tf_nomask", np.zeros(0)).size:
            return NO_MASKS
        forced = self.forced(not ending)
        value = self.words.columns(forced.log_probabilities)
        if what == "attn_tf":
            sentinel = [] if forced.sentinel is None else [forced.sentinel[:, :, None]]
            value = torch.cat([*sentinel, forced.weights], dim=2)
        value = value[:, : self.steps]
        return value if stored.shape[1:2] == (self.steps,) else fitted(value, (len(value), self.sentences.shape[1] - 1))

    @cached_property
    def cross_entropy(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, and its gradient for every official weight."""
        with torch.enable_grad():
            self.model.zero_grad()
            labels = self.sentences[:, 1:]
            wanted = labels != PAD
            loss = self.force().nll(labels, wanted).sum() / wanted.sum()
            loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach(), self.imported.gradients()

    def norms(self) -> dict[str, Difference] | None:
        known = "grad_names" in self.case.stored
        return gradient_norms(self.case, "grad_norms", "grad_names", self.cross_entropy[1]) if known else None

    @memo
    def greedy(self, unrepeated: bool = False) -> DecodedCaptions:
        config = DecodingConfig(**self.decoding, no_immediate_repeat=unrepeated)
        return greedy(self.model, self.state, config, distributions=True)

    def ids(self, decoded: DecodedCaptions) -> Int[Tensor, "row step"]:
        return self.filled(self.words.back(decoded.words))

    def filled(self, values: Tensor) -> Tensor:
        """Zeros up to the longest caption."""
        return fitted(values, (len(values), self.max_length))

    @memo
    def search(self, name: str) -> DecodedCaptions | None:
        """`beam3_wu` is beam search of three with the length penalty wu; `dbs_b4g2` is diverse, in two groups."""
        given = self.decoding | {"finished_beams": "keep_slot"}
        if name.startswith("dbs_b"):
            beam, groups = (int(part) for part in name.removeprefix("dbs_b").split("g"))
            config = DecodingConfig(strategy="diverse", num_beams=beam, num_beam_groups=groups, **given)
            return diverse_beam_search(self.model, self.state, config)
        width, *options = name.removeprefix("beam").split("_")
        if not all(word in SEARCH_OPTIONS for word in options):
            return None
        for word in options:
            given |= SEARCH_OPTIONS[word]
        if int(self.words.outputs[-1]) != UNKNOWN:  # the reference expects UNK to be the last word
            given["suppress_unk"] = False
        return beam_search(self.model, self.state, DecodingConfig(num_beams=int(width), **given))

    def searched(self, name: str, part: str) -> Tensor | None:
        if (decoded := self.search(name)) is None:
            return None
        rows = (-1, decoded.per_image)
        if part in ("lens", "scores"):
            return (decoded.lengths if part == "lens" else decoded.score).view(rows)
        ids = self.ids(decoded).view(*rows, self.max_length)
        return ids if part == "seqs" else ids[:, 0]

    @cached_property
    def sampled(self) -> dict[str, Tensor]:
        """Stored samples: their log-probabilities, what they and greedy captions earn, the losses of both baselines."""
        words = self.words.sentences(self.case.tensor("scst_samples"))
        wanted, per_image = words != PAD, len(words) // len(self.state)
        inputs = torch.cat([torch.full_like(words[:, :1], START), words[:, :-1]], dim=1)
        forced = self.model.teacher_force(self.state.repeat(per_image), inputs)
        chosen, owner = -forced.nll(words, wanted), np.arange(len(words)) // per_image
        baseline = self.words.sentences(self.case.tensor("greedy_seq"))
        reward = self._reward(lambda given: given(words, owner))
        earned, expected = torch.from_numpy(reward(words, owner)), torch.from_numpy(reward(baseline))
        ahead = earned - expected[owner]
        found = {
            "scst_sample_logprobs": self.words.columns(forced.log_probabilities).masked_fill(~wanted[:, :, None], 0),
            "scst_sample_ciderd": earned,
            "scst_greedy_ciderd": expected,
            "scst_reward": ahead[:, None].expand(chosen.shape),
            "scst_loss": policy_loss(chosen, ahead, wanted),
        }
        if per_image > 1:
            found["nsc_loss"] = policy_loss(chosen, earned - mean_of_others(earned, per_image), wanted)
        return found

    def _reward(self, earned: Callable[[SelfCriticalReward], np.ndarray]) -> SelfCriticalReward:
        """References have their <end> unless they are as long as a caption can be.

        Each case counted n-grams in its own captions, but the folder has one file for all, of the last of them:
        whichever of the two explains the stored rewards better was used.
        """
        captions = self.sentences[:, 1:-1].view(len(self.images), self.per_image, -1).tolist()
        rewards, file = [SelfCriticalReward(captions)], self.folder / DOCUMENT_FREQUENCIES
        if file.exists():
            known = {str(official): int(ours) for official, ours in enumerate(self.words.inputs)}
            counted = DocumentFrequencies.load(file).rename(lambda word: known.get(str(word), word))
            rewards.append(SelfCriticalReward(captions, counted))
        stored = self.case.stored.get("scst_sample_ciderd")
        if stored is None or stored.shape != earned(rewards[0]).shape:
            return rewards[-1]
        return min(rewards, key=lambda reward: float(np.abs(earned(reward) - stored).max()))


def opens(importer: Importer[Any], query_bias: str) -> Callable[[Path], Iterator[CaptionerCase]]:
    """`query_bias` is added to the state there, to every region's key here."""

    def cases(folder: Path) -> Iterator[CaptionerCase]:
        for path in sorted(folder.glob("*_io.npz")):
            name = path.name.removesuffix("_io.npz")
            imported = importer.read(folder / f"{name}_model.pth", dtype=torch.float64)
            yield CaptionerCase(Case(name, read_npz(path)), imported, folder, query_bias)

    return cases


SEARCHES = r"(beam\d+(?:_[a-z]+)*|dbs_b\d+g\d+)"
TABLE: Table = {
    "num_boxes": (lambda c: c.mask.sum(dim=1), 0.0),
    "label_masks": (lambda c: (c.sentences != PAD).view(c.labels.shape), 0.0),
    "fc_embed": (lambda c: c.state.context.whole, LOG_PROBABILITY),
    "att_embed": (lambda c: c.state.context.regions, LOG_PROBABILITY),
    "ctx2att": (CaptionerCase.keys, LOG_PROBABILITY),
    "(logprobs_tf|attn_tf)(|_nomask)": (CaptionerCase.teacher_forced, LOG_PROBABILITY),
    "xe_loss": (lambda c: c.cross_entropy[0], LOSS),
    "grad_norms": (CaptionerCase.norms, 0.0),
    "greedy_seq": (lambda c: c.ids(c.greedy()), 0.0),
    "greedy_constraint_seq": (lambda c: c.ids(c.greedy(True)), 0.0),
    "greedy_step_logprobs": (lambda c: c.filled(c.words.columns(c.greedy().distributions)), LOG_PROBABILITY),
    "greedy_token_logprob": (lambda c: c.filled(c.greedy().log_probabilities), LOG_PROBABILITY),
    rf"{SEARCHES}_(best|seqs|lens)": (CaptionerCase.searched, 0.0),
    rf"{SEARCHES}_(scores)": (CaptionerCase.searched, LOG_PROBABILITY),
    "(scst_sample_logprobs)": (lambda c, key: c.sampled[key], LOG_PROBABILITY),
    "(scst_sample_ciderd|scst_greedy_ciderd|scst_reward)": (lambda c, key: c.sampled[key], METRIC),
    "(scst_loss|nsc_loss)": (lambda c, key: c.sampled.get(key), LOSS),
}
UPDOWN_GOLDEN = Golden("updown", opens(UPDOWN, "core.attention.h2att.bias"), TABLE)
ADAPTIVE_GOLDEN = Golden("adaptive", opens(ADAPTIVE, "core.attention.ho_embed.bias"), TABLE)

MODE = r"(mode\d_(?:rela\d_)?)"
ATTENTION = {"attn_ssg": "nodes", "attn_rela": "nodes", "attn_mem": "reworded"}


class SgaeCase:
    """Pictures with their graphs, one sentence graph for each, and captions: several of each picture."""

    def __init__(self, case: Case, imported: Imported[Sgae]) -> None:
        self.case, self.imported, self.model, self.words = case, imported, imported.model, imported.words
        regions, related = self._mask("att_masks"), self._mask("rela_masks")
        attributes, there = case.tensor("attr_matrix").long(), self._mask("attr_masks")
        self.picture_graph = SceneGraphBatch(
            torch.zeros_like(regions, dtype=torch.long),
            regions,
            self._relations("rela_matrix", related),
            related,
            attributes[:, :, 0] * there[:, :, 0],  # a row is a box and its attributes, and the box counts in the mask
            self._ids(attributes[:, :, 1:]),
            there[:, :, 1:] & there[:, :, :1],
        )
        boxes = torch.zeros(*regions.shape, 4, dtype=torch.float64)
        self.images = RegionBatch(case.tensor("att_feats").double(), regions, boxes, graph=self.picture_graph)
        things, linked = self._mask("ssg_obj_masks"), self._mask("ssg_rela_masks")
        self.graph = SceneGraphBatch(  # of the sentences
            self._ids(case.tensor("ssg_obj")),
            things,
            self._relations("ssg_rela_matrix", linked),
            linked,
            torch.arange(things.shape[1]).expand_as(things),
            self._ids(case.tensor("ssg_attr")),
            self._mask("ssg_attr_masks") & things[:, :, None],
        )
        self.whole = case.tensor("fc_feats").double()
        self.labels, self.label_mask = case.tensor("labels"), case.tensor("label_masks").double()

    def _mask(self, key: str) -> Tensor:
        return self.case.tensor(key) > 0

    def _ids(self, official: Tensor) -> Tensor:
        return self.words.inputs[official.long().clamp(min=0)]

    def _relations(self, key: str, mask: Tensor) -> Tensor:
        table = self.case.tensor(key).long().clamp(min=0)
        return torch.cat([table[:, :, :2], self._ids(table[:, :, 2:])], dim=2) * mask[:, :, None]

    @cached_property
    def nodes(self) -> dict[str, Tensor]:
        """Nodes of both graphs, by their stored keys."""
        model, graph = self.imported.variant(relations=True), self.picture_graph
        assert isinstance(model.picture_graph, PlainPictureGraph)
        regions = model.regions(self.images.features, self.images.mask)
        picture = model.picture_graph(regions, graph, model.words, model.embed)
        sentence = model.read_graph(self.graph)
        merged, merged_sentence = (together(nodes.vectors, nodes.mask) for nodes in (picture, sentence))
        query = model.to_sentences(merged)  # of padding too, as it was stored
        things, relations, attributes = split(sentence, self.graph)
        attributed = self.graph.attribute_mask.any(dim=2)
        related = model.picture_graph.word(model.embed(graph.relations[:, :, 2])) * graph.relation_mask[:, :, None]
        return {
            "att_embed": regions,
            "rela_feats_in": related,
            **dict(zip(("gcn_att_feats", "gcn_rela_feats", "gcn_attr_feats"), split(picture, graph), strict=True)),
            "gcn_merged": merged,
            "gcn_merged_mask": counted(picture.mask),
            "img2sg": query,
            "mem_read_img": model.dictionary(query),
            "ssg_obj_feats": things,
            "ssg_rela_feats": relations,
            "ssg_attr_feats": together(attributes, attributed),
            "ssg_attr_masks_new": counted(attributed),
            "ssg_merged": merged_sentence,
            "ssg_merged_mask": counted(sentence.mask),
            "mem_read_ssg": model.dictionary(merged_sentence),
        }

    @memo
    def start(self, mode: str) -> tuple[Sgae, CaptionState]:
        kind, relations = re.fullmatch(r"mode(\d)_(?:rela(\d)_)?", mode).groups()  # type: ignore[union-attr]
        model = self.model if relations is None else self.imported.variant(relations=relations == "1")
        if kind == "2":
            return model, model.start_from(self.images, self.whole)
        if kind not in "01":
            raise SaccadeError(f"{self.case.name}: there is no mode {kind}, only 0, 1 and 2")
        tokens = torch.zeros(len(self.images), 0, dtype=torch.long)
        texts = TextBatch(tokens, tokens.bool(), graph=self.graph)
        return model, model.start_from_sentences(texts, self.images, kind == "1", self.whole)

    @memo
    def forced(self, mode: str) -> dict[str, Tensor]:
        """The official loop ends before the first column without a word: what it did not come to stays zero."""
        model, state = self.start(mode)
        state = state.repeat(len(self.labels) // len(self.images))
        words = self.words.inputs[self.labels[:, :-1]]
        words[:, 0] = START
        blank = (self.labels[:, 1:-1].sum(dim=0) == 0).nonzero().flatten()
        forced = model.teacher_force(state, words[:, : 1 + int(blank[0]) if len(blank) else None])
        labels, mask, context = self.labels[:, 1:], self.label_mask[:, 1:], state.context
        distributions = fitted(self.words.columns(forced.log_probabilities), labels.shape)
        nll = -(distributions.gather(2, labels[:, :, None])[:, :, 0] * mask).sum() / mask.sum()
        assert isinstance(context, GraphContext)
        found = {key: forced.extras[of] for key, of in ATTENTION.items() if of in forced.extras}
        attention = {key: together(weights.mT, context.mask).mT for key, weights in found.items()}
        return {"logprobs": distributions, "loss": nll, **attention}

    def attention(self, mode: str, key: str) -> Tensor:
        return fitted(self.forced(mode)[key], self.case.stored[f"{mode}{key}"].shape)

    @memo
    def greedy(self, mode: str) -> dict[str, Tensor]:
        """Log-probabilities are kept while any sentence goes on; those that ended are continued with 0."""
        (model, state), shape = self.start(mode), self.case.take(f"{mode}greedy").shape
        decoded = greedy(model, state, DecodingConfig(max_length=shape[1], suppress_unk=False))
        inputs, ended = torch.full((len(state),), START), torch.zeros(len(state), dtype=torch.bool)
        kept = [torch.zeros(len(state), 0, dtype=torch.float64)]
        for _ in range(shape[1]):
            log_probabilities, output = model.predict_next(inputs, state)
            chance, word = self.words.columns(log_probabilities).max(dim=1)
            ended |= word == 0
            if bool(ended.all()):
                break
            inputs, state = self.words.inputs[word * ~ended], output.state
            kept.append(chance[:, None])
        return {"": fitted(self.words.back(decoded.words), shape), "_logp": fitted(torch.cat(kept, dim=1), shape)}

    @memo
    def beam(self, mode: str, width: str) -> dict[str, Tensor]:
        """The last word is suppressed there: it was UNK once, before the words of scene graphs came behind it."""
        (model, state), shape = self.start(mode), self.case.take(f"{mode}beam{width}").shape
        last, size = int(self.words.outputs[-1]), int(width)
        config = DecodingConfig(max_length=shape[1], num_beams=size, suppress_unk=False, suppress_tokens=(last,))
        decoded = beam_search(model, state, config)
        ids = fitted(self.words.back(decoded.words), (len(decoded.words), shape[1])).view(-1, size, shape[1])
        return {
            "": ids[:, 0],
            "_seqs": ids,
            "_logp": fitted(decoded.best().log_probabilities, shape),
            "_scores": decoded.score.view(-1, size),
        }


def together(values: Float[Tensor, "row node dim"], mask: Bool[Tensor, "row node"]) -> Float[Tensor, "row found dim"]:
    """Nodes without gaps between things, relations and attributes, as the official code lays them out."""
    order = (~mask).to(torch.uint8).argsort(dim=1, stable=True)[:, : int(mask.sum(dim=1).max())]
    there = mask.gather(1, order)[:, :, None]
    return values.gather(1, order[:, :, None].expand(-1, -1, values.shape[2])) * there


def counted(mask: Bool[Tensor, "row node"]) -> Float[Tensor, "row found"]:
    return together(mask[:, :, None].double(), mask)[:, :, 0]


def split(nodes: GraphNodes, graph: SceneGraphBatch) -> tuple[Tensor, ...]:
    """Things, relations, attributes."""
    sizes = [part.shape[1] for part in (graph.objects, graph.relations, graph.described)]
    return torch.split(nodes.vectors, sizes, dim=1)


def opens_sgae(folder: Path) -> Iterator[SgaeCase]:
    for path in sorted(folder.glob("model*.pth")):
        imported = SGAE.read(path, dtype=torch.float64)
        yield SgaeCase(Case(path.stem, read_npz(folder / "io.npz")), imported)


NODES = (
    "att_embed|rela_feats_in|gcn_(?:att|rela|attr)_feats|gcn_merged(?:_mask)?|img2sg|mem_read_(?:img|ssg)"
    "|ssg_(?:obj|rela|attr)_feats|ssg_attr_masks_new|ssg_merged(?:_mask)?"
)
SGAE_GOLDEN = Golden(
    "sgae",
    opens_sgae,
    {
        DICTIONARY: (lambda c: c.model.dictionary.entries, 0.0),
        f"({NODES})": (lambda c, key: fitted(c.nodes[key], c.case.stored[key].shape), LOG_PROBABILITY),
        f"{MODE}(logprobs|loss)": (lambda c, mode, key: c.forced(mode)[key], LOG_PROBABILITY),
        f"{MODE}({'|'.join(ATTENTION)})": (SgaeCase.attention, LOG_PROBABILITY),
        f"{MODE}greedy()": (lambda c, mode, part: c.greedy(mode)[part], 0.0),
        f"{MODE}greedy(_logp)": (lambda c, mode, part: c.greedy(mode)[part], LOG_PROBABILITY),
        rf"{MODE}beam(\d+)(|_seqs)": (lambda c, mode, width, part: c.beam(mode, width)[part], 0.0),
        rf"{MODE}beam(\d+)(_logp|_scores)": (lambda c, mode, width, part: c.beam(mode, width)[part], LOG_PROBABILITY),
    },
    required=lambda case: (DICTIONARY,),
)
