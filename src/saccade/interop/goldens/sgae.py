"""SGAE: nodes of both graphs, both dictionary readings, and all three modes of use.

Modes 0 and 1 tell sentences from their graphs, without and with the dictionary; 2 tells of pictures, of which `rela0`
and `rela1` are without and with the pictures' graphs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from saccade.batch import START, CaptionState, RegionBatch, SceneGraphBatch, TextBatch
from saccade.core.errors import SaccadeError
from saccade.decoding import DecodingConfig, beam_search, greedy
from saccade.interop.checkpoint import load_arrays
from saccade.interop.harness import Case, Golden, fitted, memo
from saccade.interop.importer import Imported
from saccade.interop.importers.sgae import DICTIONARY, SGAE
from saccade.models import Sgae
from saccade.models.sgae import GraphContext, GraphNodes, PlainPictureGraph

TOLERANCE = 1e-5  # of float32 outputs, computed in float64 here
MODE = r"(mode\d_(?:rela\d_)?)"
LOOKED = {"attn_ssg": "nodes", "attn_rela": "nodes", "attn_mem": "reworded"}


class SgaeCase:
    """Pictures with their graphs, one sentence graph for each, and captions: several of each picture."""

    def __init__(self, case: Case, imported: Imported[Sgae]) -> None:
        assert imported.source.words is not None
        self.case, self.imported, self.model, self.words = case, imported, imported.model, imported.source.words
        regions, related = self._mask("att_masks"), self._mask("rela_masks")
        attributes, said = case.tensor("attr_matrix").long(), self._mask("attr_masks")
        seen = SceneGraphBatch(
            torch.zeros_like(regions, dtype=torch.long),
            regions,
            self._relations("rela_matrix", related),
            related,
            attributes[:, :, 0] * said[:, :, 0],  # a row is a box and its attributes, and the box counts in the mask
            self._ids(attributes[:, :, 1:]),
            said[:, :, 1:] & said[:, :, :1],
        )
        boxes = torch.zeros(*regions.shape, 4, dtype=torch.float64)
        self.images = RegionBatch(case.tensor("att_feats").double(), regions, boxes, graph=seen)
        self.seen_graph = seen
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
        return self.words.read[official.long().clamp(min=0)]

    def _relations(self, key: str, mask: Tensor) -> Tensor:
        table = self.case.tensor(key).long().clamp(min=0)
        return torch.cat([table[:, :, :2], self._ids(table[:, :, 2:])], dim=2) * mask[:, :, None]

    @cached_property
    def nodes(self) -> dict[str, Tensor]:
        """Nodes of both graphs, by their stored keys."""
        model, graph = self.imported.variant(relations=True), self.seen_graph
        assert isinstance(model.picture_graph, PlainPictureGraph)
        regions = model.regions(self.images.features, self.images.mask)
        seen = model.picture_graph(regions, graph, model.words, model.embed)
        read = model.read_graph(self.graph)
        merged, read_merged = (together(nodes.vectors, nodes.mask) for nodes in (seen, read))
        asked = model.to_sentences(merged)  # of padding too, as it was stored
        things, relations, attributes = split(read, self.graph)
        attributed = self.graph.attribute_mask.any(dim=2)
        related = model.picture_graph.word(model.embed(graph.relations[:, :, 2])) * graph.relation_mask[:, :, None]
        return {
            "att_embed": regions,
            "rela_feats_in": related,
            **dict(zip(("gcn_att_feats", "gcn_rela_feats", "gcn_attr_feats"), split(seen, graph), strict=True)),
            "gcn_merged": merged,
            "gcn_merged_mask": counted(seen.mask),
            "img2sg": asked,
            "mem_read_img": model.dictionary(asked),
            "ssg_obj_feats": things,
            "ssg_rela_feats": relations,
            "ssg_attr_feats": together(attributes, attributed),
            "ssg_attr_masks_new": counted(attributed),
            "ssg_merged": read_merged,
            "ssg_merged_mask": counted(read.mask),
            "mem_read_ssg": model.dictionary(read_merged),
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
    def taught(self, mode: str) -> dict[str, Tensor]:
        """The official loop ends before the first column without a word: what it did not come to stays zero."""
        model, state = self.start(mode)
        state = state.repeat(len(self.labels) // len(self.images))
        words = self.words.read[self.labels[:, :-1]]
        words[:, 0] = START
        blank = (self.labels[:, 1:-1].sum(dim=0) == 0).nonzero().flatten()
        forced = model.teacher_force(state, words[:, : 1 + int(blank[0]) if len(blank) else None])
        labels, mask, seen = self.labels[:, 1:], self.label_mask[:, 1:], state.context
        spoken = fitted(self.words.columns(forced.log_probabilities), labels.shape)
        nll = -(spoken.gather(2, labels[:, :, None])[:, :, 0] * mask).sum() / mask.sum()
        assert isinstance(seen, GraphContext)
        looked = {key: forced.extras[of] for key, of in LOOKED.items() if of in forced.extras}
        looks = {key: together(weights.mT, seen.mask).mT for key, weights in looked.items()}
        return {"logprobs": spoken, "loss": nll, **looks}

    def look(self, mode: str, key: str) -> Tensor:
        return fitted(self.taught(mode)[key], self.case.stored[f"{mode}{key}"].shape)

    @memo
    def greedy(self, mode: str) -> dict[str, Tensor]:
        """Log-probabilities are kept while any sentence goes on; those that ended hear 0 and still say something."""
        (model, state), shape = self.start(mode), self.case.take(f"{mode}greedy").shape
        said = self.words.back(greedy(model, state, DecodingConfig(max_length=shape[1], suppress_unk=False)).words)
        heard, ended = torch.full((len(state),), START), torch.zeros(len(state), dtype=torch.bool)
        kept = [torch.zeros(len(state), 0, dtype=torch.float64)]
        for _ in range(shape[1]):
            log_probabilities, output = model.predict_next(heard, state)
            chance, word = self.words.columns(log_probabilities).max(dim=1)
            ended |= word == 0
            if bool(ended.all()):
                break
            heard, state = self.words.read[word * ~ended], output.state
            kept.append(chance[:, None])
        return {"": fitted(said, shape), "_logp": fitted(torch.cat(kept, dim=1), shape)}

    @memo
    def beam(self, mode: str, width: str) -> dict[str, Tensor]:
        """The last word is never said there: it was UNK once, before the words of scene graphs came behind it."""
        (model, state), shape = self.start(mode), self.case.take(f"{mode}beam{width}").shape
        last, size = int(self.words.said[-1]), int(width)
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


def opens(folder: Path) -> Iterator[SgaeCase]:
    for path in sorted(folder.glob("model*.pth")):
        imported = SGAE.read(path)
        imported.model.double()
        yield SgaeCase(Case(path.stem, load_arrays(folder / "io.npz")), imported)


NODES = (
    "att_embed|rela_feats_in|gcn_(?:att|rela|attr)_feats|gcn_merged(?:_mask)?|img2sg|mem_read_(?:img|ssg)"
    "|ssg_(?:obj|rela|attr)_feats|ssg_attr_masks_new|ssg_merged(?:_mask)?"
)
GOLDEN = Golden(
    "sgae",
    opens,
    {
        DICTIONARY: (lambda c: c.model.dictionary.entries, 0.0),
        f"({NODES})": (lambda c, key: fitted(c.nodes[key], c.case.stored[key].shape), TOLERANCE),
        f"{MODE}(logprobs|loss)": (lambda c, mode, key: c.taught(mode)[key], TOLERANCE),
        f"{MODE}({'|'.join(LOOKED)})": (SgaeCase.look, TOLERANCE),
        f"{MODE}greedy()": (lambda c, mode, part: c.greedy(mode)[part], 0.0),
        f"{MODE}greedy(_logp)": (lambda c, mode, part: c.greedy(mode)[part], TOLERANCE),
        rf"{MODE}beam(\d+)(|_seqs)": (lambda c, mode, width, part: c.beam(mode, width)[part], 0.0),
        rf"{MODE}beam(\d+)(_logp|_scores)": (lambda c, mode, width, part: c.beam(mode, width)[part], TOLERANCE),
    },
    required=lambda case: (DICTIONARY,),
)
