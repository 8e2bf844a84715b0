"""GSMN: embeddings, both levels of matching, both graphs, losses, gradients.

Codes are computed in float32 and compared in float64: blocks of few numbers may nearly cancel and cost us digits.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from saccade.batch import TextCode
from saccade.interop.goldens.matching.matchers import EMBEDDINGS, SCORES, MatchingCase, doubled, gradients, opens
from saccade.interop.harness import LOSS, SIMILARITY, Case, Golden
from saccade.interop.importer import Imported
from saccade.interop.importers import matching as official
from saccade.models import Gsmn
from saccade.models.gsmn import block_cosines, likeness_weights, polar_coordinates
from saccade.ops.graph_matching import Nodes

ROUGH = 1e-4  # allowed between float32 and float64


class GsmnCase(MatchingCase[Gsmn]):
    def __init__(self, case: Case, imported: Imported[Gsmn]) -> None:
        super().__init__(case, imported)
        self.texts = replace(self.texts, links=self._links())
        self.exact = copy.deepcopy(self.model).double()
        with torch.no_grad():
            rough = float((self.model.similarity(*self.codes) - self.sims).abs().max())
        case.check("sims in float32", rough, ROUGH)

    def _links(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The stored dependencies as the official code uses them: without the root's, which is the first, and those
        beyond the end. Its indices count words from one, and so, with <start> at place 0, they are places."""
        if "depends" not in self.case.stored:
            return ()
        pairs, counts = self.case.take("depends"), self.case.take("depends_len")
        return tuple(
            tuple((int(a), int(b)) for a, b in of_text[1:count] if min(a, b) >= 0 and max(a, b) < length)
            for of_text, count, length in zip(pairs, counts, self.texts.lengths.tolist(), strict=True)
        )

    @cached_property
    def sims(self) -> Tensor:
        return self.exact.similarity(*self.doubles)

    @cached_property
    def batch_scores(self) -> Tensor:
        return self.exact.similarity(*doubled(self.batch_codes))

    def caption(self, number: str) -> TextCode:
        return replace(self.doubles[1], links=None).select([int(number)]).trimmed()

    def node_match(self, number: str, side: str) -> Tensor:
        """Node level, of all pictures with one caption: the cosines of its words, or of the regions, block by block."""
        images, text = self.doubles[0], self.caption(number)
        sides = {"regions": (images.regions, images.mask), "words": (text.words, text.mask)}
        nodes = {name: Nodes.of(*parts, self.model.config.blocks) for name, parts in sides.items()}
        queries, context = (nodes.pop(side), *nodes.values())
        cosines, _ = block_cosines(queries, context, self.exact.form)
        return cosines[0] if side == "regions" else cosines[:, 0]

    def likeness(self, number: str) -> Tensor:
        code = self.caption(number)
        weights = likeness_weights(code.words, code.mask, self.model.config.link_sharpness)
        return weights / weights.sum(dim=-1, keepdim=True)  # ours have rows of length one

    def adjacency(self, number: str) -> Tensor:
        edges = self.texts.adjacency() | torch.eye(self.texts.tokens.shape[1], dtype=torch.bool)
        length = self.caption(number).words.shape[1]
        return edges[int(number), :length, :length]

    def graph_sims(self, **settings: str) -> Tensor:
        """One graph alone, or the other text graph, with the same weights."""
        return self.imported.variant(**settings).double().similarity(*self.doubles)

    def other_text_graph(self) -> Tensor:
        other = "dense" if self.model.config.text_graph == "sparse" else "sparse"
        return self.graph_sims(graphs="textual", text_graph=other)

    def misaligned(self) -> Tensor:
        """Boxes that belong to other pictures, as in the official evaluation without folds."""
        images, texts = self.doubles
        assert images.boxes is not None
        owner = torch.arange(len(images)) // (len(texts) // len(images))
        return self.exact.similarity(replace(images, boxes=images.boxes[owner]), texts)


GOLDEN = Golden(
    "gsmn",
    opens(GsmnCase, official.GSMN),
    {
        **EMBEDDINGS,
        **SCORES,
        r"vnode_mvector__cap(\d+)": (lambda c, n: c.node_match(n, "regions"), SIMILARITY),
        r"tnode_mvector__cap(\d+)": (lambda c, n: c.node_match(n, "words"), SIMILARITY),
        r"adjacency__cap(\d+)": (GsmnCase.adjacency, SIMILARITY),
        r"word_intra_relation__cap(\d+)": (GsmnCase.likeness, SIMILARITY),
        "pseudo_coord": (lambda c: polar_coordinates(c.doubles[0].boxes), SIMILARITY),
        "gaussian_weights": (lambda c: c.exact.places(c.doubles[0].boxes, c.doubles[0].mask), SIMILARITY),
        "sims_visual_graph": (lambda c: c.graph_sims(graphs="visual"), SIMILARITY),
        "sims_text_graph": (lambda c: c.graph_sims(graphs="textual"), SIMILARITY),
        "sims_text_graph_other_mode": (GsmnCase.other_text_graph, SIMILARITY),
        "sims_misaligned_boxes": (GsmnCase.misaligned, SIMILARITY),
        "loss_(sum|max)": (lambda c, tag: c.gradients(tag)[0], LOSS),
        **gradients("sum|max"),
    },
)
