"""HGR: role graphs, both encoders stage by stage, the three levels of matching, losses, gradients, and its figures.

A case is a folder of model.th, model.json, captions.json (role graphs, words, right answers), io.npz and grads.npz: the
folder itself, or folders in it. Video p goes with sentence p. Outputs are float32; ours are computed in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from saccade.batch import END, START, ImageCode, RegionBatch, TextBatch, TextCode
from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.interop.harness import Case, Difference, Golden, case_folders, difference
from saccade.interop.importers.hgr import HGR, official_words, settings_of
from saccade.language.parsing.roles import RoleGraph
from saccade.language.roles import ROLES, listed_role_graphs, role_tables
from saccade.metrics.recall import CUTOFFS
from saccade.models.hgr import Hgr, evenly_taken
from saccade.nn import Ways, triplet_loss
from saccade.nn.attention import masked_softmax

WAYS: dict[str, Ways] = {"bi": "both", "i2t": "texts", "t2i": "images"}
LEVELS = {"sent": "event", "verb": "action", "noun": "entity"}


def of_output(stored: np.ndarray) -> float:
    """2e-5 of float32 outputs, relative where they are large."""
    return 2e-5 * max(1.0, float(np.abs(stored[np.abs(stored) < 1e8]).max(initial=0)))


def of_gradient(stored: np.ndarray) -> float:
    return 1e-4 * max(1.0, float(np.linalg.norm(stored)))


class HgrCase:
    def __init__(self, case: Case, folder: Path) -> None:
        self.case = case
        captions = read_json(folder / "captions.json")
        table = captions.get("word2int") if isinstance(captions, dict) else None
        if not isinstance(table, dict) or not isinstance(captions.get("captions"), list):
            raise SaccadeError(f'{folder / "captions.json"} needs "captions" with their graphs and "word2int"')
        if captions.get("roles", list(ROLES)) != list(ROLES):
            raise SaccadeError(f"{folder / 'captions.json'}: the roles are not those of the released code")
        self.table, self.right = table, captions.get("metric_gts", [])
        listed = listed_role_graphs(captions, folder / "captions.json")
        self.sentences: list[list[str]] = [sentence.split() for sentence, _ in listed]
        self.graphs: list[RoleGraph] = [graph for _, graph in listed]
        imported = HGR.read(folder / "model.th", dtype=torch.float64)
        count = len(imported.source.weights["text_encoder.embedding.we.weight"])
        self.words = official_words(count, table, folder / "captions.json")
        self.imported, self.model, self.options = imported, imported.model, imported.source.options
        features, lengths = case.tensor("in_attn_fts"), case.tensor("in_attn_lens")
        mask = torch.arange(features.shape[1]) < lengths[:, None]
        self.videos = RegionBatch(features.double(), mask, torch.zeros(*mask.shape, 4))
        self.texts = self.model.with_roles(self._tokens(), self.graphs)
        if (folder / "config.json").is_file():  # the same settings once more
            own, other = (settings_of(folder / name) for name in ("model.json", "config.json"))
            case.check("config", float(sum(own.get(name, value) != value for name, value in other.items())), 0.0)

    def _tokens(self) -> TextBatch:
        ids, lengths = self.case.tensor("in_sent_ids"), self.case.take("in_sent_lens").tolist()
        rows = [[START, *self.words.inputs[own[:size]].tolist(), END] for own, size in zip(ids, lengths, strict=True)]
        return TextBatch.of(rows)

    @property
    def width(self) -> int:
        return int(self.case.stored["in_sent_ids"].shape[1])

    # What the official reader makes of captions and frames

    def token_ids(self) -> Tensor:
        most = self.model.config.max_words
        rows = [[self.table.get(word, 2) for word in words][:most] for words in self.sentences]
        return torch.tensor([row[: self.width] + [1] * (self.width - len(row)) for row in rows])

    def sentence_lengths(self) -> list[int]:
        return [min(len(words), self.model.config.max_words) for words in self.sentences]

    def masks(self, first: int, count: int) -> Tensor:
        """The words of some phrases, as the official code lays them out: without <start>."""
        config = self.model.config
        sizes = config.actions, config.entities, self.width + 1, config.max_words
        return role_tables(self.graphs, *sizes).role_words[:, first : first + count, 1:] > 0

    @cached_property
    def taken(self) -> list[Tensor]:
        """The frames that are read of every video, all of which are stored."""
        found = []
        for number in range(len(self.videos)):
            frames = self.case.tensor(f"raw_frames_{number}")
            kept = evenly_taken(torch.ones(1, len(frames), dtype=torch.bool), self.model.config.max_frames)[0]
            found.append(frames[kept])
        return found

    def frames(self) -> Tensor:
        return torch.nn.utils.rnn.pad_sequence(self.taken, batch_first=True)

    # Encoders

    @cached_property
    def states(self) -> tuple[Tensor, Tensor]:
        return self.model.states(self.texts)

    def word_weights(self) -> Tensor:
        return masked_softmax(self.model.attend_words(self.states[0])[..., 0], self.states[1])[:, 1 : self.width + 1]

    @cached_property
    def codes(self) -> tuple[ImageCode, TextCode]:
        return self.model.encode_images(self.videos), self.model.encode_texts(self.texts)

    def map(self, level: str) -> Tensor:
        place = self.model.config.levels.index(LEVELS[level])
        found: Tensor = torch.split(self.codes[0].regions, self.model.config.dim, dim=2)[place]
        return found

    def event_of_video(self) -> Tensor:
        frames = self.map("sent")
        weights = masked_softmax(self.model.focus(frames)[..., 0], self.videos.mask)
        return torch.bmm(weights[:, None], frames)[:, 0]

    def real_frames(self, level: str) -> Difference:
        """The official code encodes padding too; nothing reads it."""
        stored = self.case.take(f"out_vid_{level}_embeds")
        mask = self.videos.mask
        return Difference(difference(self.map(level)[mask], stored[mask.numpy()]))

    def real_phrases(self, key: str, level: str, nodes: Tensor) -> Difference:
        """An empty slot of the official code holds what came of −1e10."""
        config, stored = self.model.config, self.case.take(key)
        place = slice(config.actions) if level == "verb" else slice(config.actions, None)
        found, there = nodes[:, place], (self.texts.role_words[:, place].sum(dim=2) > 0)  # type: ignore[index]
        if found.shape != stored.shape:
            return Difference(float("inf"))
        return Difference(difference(found[there], stored[there.numpy()]))

    @cached_property
    def nodes(self) -> Tensor:
        texts = self.texts
        assert texts.role_words is not None
        assert texts.roles is not None
        return self.model.phrase_nodes(self.states[0], texts.role_words, texts.roles)

    # Matching

    @cached_property
    def tables(self) -> dict[str, Tensor]:
        found = self.model.level_tables(*self.codes)
        by_level = dict(zip(self.model.config.levels, found, strict=True))
        named = {name: by_level[level] for name, level in LEVELS.items()}
        return named | {"fused": self.model.similarity(*self.codes)}

    def by_scores(self, level: str) -> Tensor:
        """The other fusion, with the same weights."""
        other = self.imported.variant(fusion="scores")
        table: Tensor = other.level_tables(*self.codes)[other.config.levels.index(LEVELS[level])]
        return table

    def criterion(self, table: Tensor, hardest: bool | None = None, direction: str | None = None) -> Tensor:
        """The official mean over a batch, of our sum."""
        options, size = self.options, len(table)
        hardest = bool(options("max_violation")) if hardest is None else hardest
        ways = WAYS[direction or options("loss_direction")]
        margin = float(options("margin"))
        if not hardest:
            return triplet_loss(table, margin, "all", ways=ways) / (size * (size - 1))
        return triplet_loss(table, margin, hardest=int(options("hard_topk")), ways=ways) / size

    def loss_of(self, model: Hgr) -> Tensor:
        codes = model.encode_images(self.videos), model.encode_texts(self.texts)
        tables = model.ranked(*codes)
        weights = model.ranking_weights or (1.0,)
        return torch.stack([w * self.criterion(table) for w, table in zip(weights, tables, strict=True)]).sum()

    @cached_property
    def gradients(self) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.enable_grad():
            self.model.zero_grad()
            loss = self.loss_of(self.model)
            loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach(), self.imported.gradients()

    def gradient(self, name: str) -> Tensor:
        """Of the words as the official table has them: a row that stands twice there is one of ours."""
        return self.gradients[1][name]

    def figures(self) -> list[float]:
        """r1, r5, r10, median and mean rank of the best of several right answers."""
        scores = self.case.take("metric_scores")
        if len(self.right) != len(scores):
            raise SaccadeError(
                f"{self.case.name}: captions.json has {len(self.right)} metric_gts for {len(scores)} rows"
            )
        found = np.array([(row > row[own].max()).sum() for row, own in zip(scores, self.right, strict=True)])
        return [*(100.0 * float((found < k).mean()) for k in CUTOFFS), np.median(found) + 1, found.mean() + 1]


def hgr_cases(folder: Path) -> Iterator[HgrCase]:
    for own, stored, gradients in case_folders(folder):
        yield HgrCase(Case(own.name, stored | {f"grad {key}": value for key, value in gradients.items()}), own)


GOLDEN = Golden(
    "hgr",
    hgr_cases,
    {
        "in_attn_fts": (lambda c: c.frames(), 0.0),
        "in_attn_lens": (lambda c: torch.tensor([len(frames) for frames in c.taken]), 0.0),
        "in_sent_ids": (HgrCase.token_ids, 0.0),
        "in_sent_lens": (HgrCase.sentence_lengths, 0.0),
        "in_verb_masks": (lambda c: c.masks(0, c.model.config.actions), 0.0),
        "in_noun_masks": (lambda c: c.masks(c.model.config.actions, c.model.config.entities), 0.0),
        "in_node_roles": (lambda c: c.texts.roles, 0.0),
        "in_rel_edges": (lambda c: c.texts.edges, 1e-7),
        "out_word_hidden": (lambda c: c.states[0][:, 1 : c.width + 1], of_output),
        "out_word_attn": (HgrCase.word_weights, of_output),
        "out_sent_init": (lambda c: c.model.event_node(*c.states), of_output),
        "out_(verb|noun)_init": (lambda c, level: c.real_phrases(f"out_{level}_init", level, c.nodes), of_output),
        "out_vid_sent_embeds": (HgrCase.event_of_video, of_output),
        "out_vid_(verb|noun)_embeds": (HgrCase.real_frames, of_output),
        "out_sent_embeds": (lambda c: c.codes[1].pooled, of_output),
        "out_(verb|noun)_embeds": (
            lambda c, level: c.real_phrases(f"out_{level}_embeds", level, c.codes[1].nodes),
            of_output,
        ),
        "out_verb_lens": (lambda c: c.texts.role_words[:, : c.model.config.actions].sum(dim=2), 0.0),
        "out_noun_lens": (lambda c: c.texts.role_words[:, c.model.config.actions :].sum(dim=2), 0.0),
        "out_score_(sent|verb|noun|fused)": (lambda c, level: c.tables[level], of_output),
        "out_simfusion_score_(verb|noun)": (HgrCase.by_scores, of_output),
        "out_loss_(sent|verb|noun|fused)": (lambda c, level: c.criterion(c.tables[level]), of_output),
        "out_loss_total": (lambda c: c.gradients[0], of_output),
        "out_lossvar_avgviol": (lambda c: c.criterion(c.tables["fused"], hardest=False, direction="bi"), of_output),
        "out_lossvar_(i2t|t2i)": (lambda c, way: c.criterion(c.tables["fused"], direction=way), of_output),
        "metric_q2m": (HgrCase.figures, 1e-9),
        "grad loss": (lambda c: c.gradients[0], of_output),
        "grad full:(.+)": (HgrCase.gradient, of_gradient),
        "grad norm:(.+)": (lambda c, name: c.gradient(name).norm(), of_gradient),
    },
    lambda case: ("in_attn_fts", "in_sent_ids", "out_score_fused", "out_loss_total"),
)
