"""Analogy: branches, losses and mixtures, the similarity tables, chosen sources, Γ, transferred vectors, gradients.

A case is a folder with model_*.pth.tar, config.json and io.npz, and grads.npz if gradients are stored. Sources of equal
similarity may come in any order: what is chosen is compared by its similarities, and Γ for the stored order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.core.errors import SaccadeError
from saccade.interop.goldens.vcml import relative
from saccade.interop.harness import Case, Difference, Golden, case_folders, gradient_difference, memo
from saccade.interop.importer import Imported
from saccade.interop.importers.relations import ANALOGY, branch_numbers, by_branch, counted_triplets, texts
from saccade.models import Analogy
from saccade.models.analogy import BRANCHES, union_coordinates
from saccade.models.base.relater import RegionPairs

FLOAT32 = 2e-5  # relative: official outputs in float32
SAME = 1e-6  # similarities that count as equal
GRADIENT = 1e-4  # relative to max(1, norm)
WORD_KEYS = "|".join(BRANCHES)


class AnalogyCase:
    def __init__(self, case: Case, imported: Imported[Analogy]) -> None:
        self.case, self.imported, self.model = case, imported, imported.model
        seen, boxes = case.tensor("in_precompappearance").double(), case.tensor("in_pair_objects").double()
        if seen.dim() != 3 or seen.shape[2] != self.model.config.region_dim or boxes.shape[:2] != seen.shape[:2]:
            raise SaccadeError(f"{case.name}: in_precompappearance does not fit the checkpoint or the boxes")
        self.pairs = RegionPairs(seen[:, 0], seen[:, 1], boxes[:, 0, :4], boxes[:, 1, :4])
        self.options = imported.source.options
        self.classes = len(self.model.config.classes)

    @memo
    def labels(self, branch: str) -> Tensor:
        return self.case.tensor(f"in_labels_{branch}").double()

    @memo
    def visual(self, branch: str) -> Tensor:
        return self.model.visual_vectors(self.pairs, branch)

    def language(self, branch: str) -> Tensor:
        return self.model.phrases(self.vocabulary("sro")) if branch == "sro" else self.model.unigrams(branch)

    def vocabulary(self, branch: str) -> Tensor:
        """The rows of a branch's vocabulary among all words."""
        if branch == "sro":
            return self.model._rows(self.model.triplets)
        first, count = (self.classes, len(self.model.config.predicates)) if branch == "r" else (0, self.classes)
        return torch.arange(first, first + count)[:, None]

    def raw(self, branch: str) -> Tensor:
        return self.model.logits(self.pairs, branch) / self.model.config.scale

    def probability(self, branch: str) -> Tensor:
        return self.model.logits(self.pairs, branch).sigmoid()

    def loss(self, branch: str) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.model.logits(self.pairs, branch), self.labels(branch))

    def place(self, branch: str) -> Tensor:
        """Of each phrase of the vocabulary, its word in a branch."""
        columns: dict[str, Tensor] = dict(zip(("s", "r", "o"), self.model.triplets.T, strict=True))
        return columns.get(branch, torch.arange(len(self.model.triplets)))

    def mixture(self, branches: str) -> Tensor:
        found = torch.ones(())
        for branch in branches.split("_"):
            found = found * self.probability(branch)[:, self.place(branch)]
        return found

    @cached_property
    def targets(self) -> Tensor:
        classes, predicates = texts(self.options, "classes"), texts(self.options, "predicates")
        rows = []
        for name in texts(self.options, "targets") if len(self.options("targets")) > 1 else self.options("targets"):
            parts = name.split("-")
            if len(parts) != 3 or not {parts[0], parts[2]} <= {*classes} or parts[1] not in predicates:
                raise SaccadeError(f'{self.options.path}: the target "{name}" has unknown words')
            rows.append((classes.index(parts[0]), predicates.index(parts[1]), classes.index(parts[2])))
        return torch.tensor(rows)

    def stored_sources(self, n: str) -> Tensor:
        """The sources of target n as places, in the stored order; none if one is no triplet."""
        found = self.case.tensor(f"out_src_triplets_{n}").long().view(-1, 3) - torch.tensor([0, self.classes, 0])
        sizes = torch.tensor([self.classes, len(self.model.config.predicates), self.classes])
        return found if bool(((found >= 0) & (found < sizes)).all()) else found[:0]

    def chosen(self, n: str) -> Difference:
        """Whether the stored sources are as similar as ours, and are what is stored as similar."""
        _, similarity, usable = self.model.choose(self.targets[int(n)][None])
        ours, theirs = similarity[usable], self.stored_similarities(n)
        if len(ours) != len(theirs):
            return Difference(float("inf"))
        apart = (ours.sort().values - theirs.sort().values).abs()
        return Difference(float(apart.max()) if len(apart) else 0.0)

    def stored_similarities(self, n: str) -> Tensor:
        """Ours, of the stored sources in their order; infinite of one that is no candidate."""
        known = [tuple(row) for row in self.model.candidates.tolist()]
        places = [known.index(tuple(row)) if tuple(row) in known else -1 for row in self.stored_sources(n).tolist()]
        every = self.model.similarities(self.targets[int(n)][None])[0]
        return torch.tensor([float(every[p]) if p >= 0 else float("inf") for p in places], dtype=torch.float64)

    def gamma(self, n: str) -> Tensor:
        return self.model.deformation(self.targets[int(n)][None], self.stored_sources(n)[None])[0]

    def source_phrases(self, n: str) -> Tensor:
        return self.model.phrases(self.model._rows(self.stored_sources(n)))

    def transferred(self, form: str | None = None) -> Tensor:
        model = self.model if form is None else self.imported.variant(gamma=form)
        return model.transferred(self.targets)

    def transferred_probability(self) -> Tensor:
        return self.model.phrase_probabilities(self.pairs, self.model.encode_triplets(self.targets, "all"))

    def target_score(self, branches: str) -> Tensor:
        model = self.imported.variant(mixture=branches.replace("_", "-"))
        return model.score(self.pairs, model.encode_triplets(self.targets, "all"))

    def positives(self) -> tuple[Tensor, Tensor]:
        """Every (subject, predicate, object) that the labels of a pair allow, and which pair has which."""
        found: dict[tuple[int, int, int], list[int]] = {}
        labels = [self.labels(branch) for branch in ("s", "r", "o")]
        for pair in range(len(labels[0])):
            s, r, o = (own[pair].nonzero()[:, 0].tolist() for own in labels)
            for subject in s:
                for object in o:
                    if subject and object:
                        for predicate in r:
                            if predicate:
                                found.setdefault((subject, predicate, object), []).append(pair)
        table = torch.zeros(len(labels[0]), len(found), dtype=torch.float64)
        for column, pairs in enumerate(found.values()):
            table[pairs, column] = 1
        return torch.tensor([*found]).view(-1, 3), table

    def query_rows(self) -> Tensor:
        return self.model._rows(self.positives()[0])

    def transfer_loss(self) -> Tensor:
        return self.model.transfer_loss(self.pairs, *self.positives())

    @memo
    def gradients(self, kind: str) -> dict[str, Tensor]:
        """Of the four branches' losses together, or of the transfer's, by official names without numbers."""
        with torch.enable_grad():
            self.model.zero_grad()
            if kind == "base":
                torch.stack([self.loss(branch) for branch in BRANCHES]).sum().backward()  # type: ignore[no-untyped-call]
            else:
                self.transfer_loss().backward()  # type: ignore[no-untyped-call]
        found = self.imported.gradients()
        self.model.zero_grad()
        return found

    def gradient(self, kind: str, name: str) -> Tensor | None:
        named = next(iter(by_branch({name: torch.zeros(())}, branch_numbers(self.options))))
        return self.gradients(kind).get(named)

    def full_gradient(self, kind: str, name: str) -> Difference | None:
        found, stored = self.gradient(kind, name), self.case.tensor(f"{kind}_full:{name}").double()
        if found is None:
            return None
        return gradient_difference(found, stored)

    def gradient_norm(self, kind: str, name: str) -> Difference | None:
        found, stored = self.gradient(kind, name), float(self.case.take(f"{kind}_norm:{name}"))
        return None if found is None else Difference(abs(float(found.norm()) - stored) / max(1.0, stored))


def opens(folder: Path) -> Iterator[AnalogyCase]:
    for place, stored, gradients in case_folders(folder):
        files = sorted(place.glob("*.pth.tar"))
        if not files:
            continue
        case = Case(place.name if place != folder else "analogy", stored | gradients)
        source = ANALOGY.reads(files[0], None, ANALOGY.title)
        counts, first = counted_triplets(source.options), len(texts(source.options, "classes"))
        rows = case.take("in_idx_to_vocab_sro").astype(np.int64) - np.array([0, first, 0])
        triplets = tuple((int(s), int(r), int(o)) for s, r, o in rows)
        imported = ANALOGY.read(
            files[0],
            dtype=torch.float64,
            triplets=triplets,
            occurrences=tuple(counts.get(triplet, 0.0) for triplet in triplets),
            normalise_regions=False,
        )
        yield AnalogyCase(case, imported)


def near(pattern: str, ours: Callable[..., Any], key: str, tolerance: float = FLOAT32) -> dict[str, Any]:
    """A row that compares relative to max(1, |stored|); `key` is the stored key, with the pattern's groups."""
    row = lambda c, *g: relative(ours(c, *g), c.case.stored[key.format(*g)])  # noqa: E731
    return {pattern: (row, tolerance)}


GOLDEN = Golden(
    "analogy",
    opens,
    {
        **near("in_word_embeddings", lambda c: c.model.names, "in_word_embeddings"),
        **near(f"in_idx_to_vocab_({WORD_KEYS})", AnalogyCase.vocabulary, "in_idx_to_vocab_{}", 0.0),
        **near(f"in_idx_sro_to_({WORD_KEYS})", AnalogyCase.place, "in_idx_sro_to_{}", 0.0),
        **near(f"out_vis_({WORD_KEYS})", AnalogyCase.visual, "out_vis_{}"),
        **near(f"out_lang_({WORD_KEYS})", AnalogyCase.language, "out_lang_{}"),
        **near(
            "out_spatial_coords",
            lambda c: union_coordinates(c.pairs.subject_boxes, c.pairs.object_boxes, c.model.config.pixel),
            "out_spatial_coords",
        ),
        **near(f"out_rawscore_({WORD_KEYS})", AnalogyCase.raw, "out_rawscore_{}"),
        **near(f"out_loss_({WORD_KEYS})", AnalogyCase.loss, "out_loss_{}"),
        **near(f"out_prob_({WORD_KEYS})", AnalogyCase.probability, "out_prob_{}"),
        **near(f"out_mix_((?:{WORD_KEYS})(?:_(?:{WORD_KEYS}))*)", AnalogyCase.mixture, "out_mix_{}"),
        **near("out_simtable_([sro])", lambda c, b: c.model.similarity_table(b), "out_simtable_{}"),
        **near("out_target_queries", lambda c: c.model._rows(c.targets), "out_target_queries", 0.0),
        **near("out_target_lang_sro", lambda c: c.model.phrases(c.model._rows(c.targets)), "out_target_lang_sro"),
        **near("out_source_candidates", lambda c: c.model._rows(c.model.candidates), "out_source_candidates", 0.0),
        r"out_src_triplets_(\d+)": (AnalogyCase.chosen, SAME),
        **near(r"out_src_sim_(\d+)", AnalogyCase.stored_similarities, "out_src_sim_{}"),
        **near(r"out_gamma_(\d+)", AnalogyCase.gamma, "out_gamma_{}"),
        **near(r"out_src_vp_(\d+)", AnalogyCase.source_phrases, "out_src_vp_{}"),
        **near("out_analogy_emb", AnalogyCase.transferred, "out_analogy_emb"),
        **near("out_analogy_emb_(hybrid|vp)", AnalogyCase.transferred, "out_analogy_emb_{}"),
        **near("out_analogy_prob_sro", AnalogyCase.transferred_probability, "out_analogy_prob_sro"),
        **near("out_target_score_(s_r_o|s_sro_o|s_r_o_sro)", AnalogyCase.target_score, "out_target_score_{}"),
        **near("out_val_loss_reg", AnalogyCase.transfer_loss, "out_val_loss_reg"),
        **near("out_val_loss_sro", lambda c: c.loss("sro"), "out_val_loss_sro"),
        **near("base_loss", lambda c: sum(c.loss(b) for b in BRANCHES), "base_loss"),
        **near("reg_loss", AnalogyCase.transfer_loss, "reg_loss"),
        **near("reg_queries", AnalogyCase.query_rows, "reg_queries", 0.0),
        **near("reg_labels", lambda c: c.positives()[1], "reg_labels", 0.0),
        "(base|reg)_norm:(.+)": (AnalogyCase.gradient_norm, GRADIENT),
        "(base|reg)_full:(.+)": (AnalogyCase.full_gradient, GRADIENT),
    },
    required=lambda case: ("out_analogy_emb", "out_mix_s_sro_o", "out_simtable_r", "in_labels_s", "in_labels_r"),
)
