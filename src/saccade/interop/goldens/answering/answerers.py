"""Answerers, in double precision: Up-Down VQA as it is re-implemented, with one step of its optimiser; DCN with regions
and with several layers of a backbone; the hierarchical encoder, its heads, and the order in which tasks are trained.

A case is NAME_io.npz with NAME_model*.pth or NAME_ckpt.pth.tar; of the hierarchical model NAME.npz with config.json.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from saccade.batch import Answered, RegionBatch, TextBatch
from saccade.core.arrays import read_npz
from saccade.core.files import read_json
from saccade.interop.harness import Case, Difference, Golden, Table, difference, gradient_norms
from saccade.interop.importer import Imported, WeightMap, to
from saccade.interop.importers.answering import UPDOWN_VQA, dcn, numbered_answers
from saccade.interop.words import numbered_words
from saccade.models import Answerer, Dcn, Hierarchical, HierarchicalConfig, UpDownVqa
from saccade.nn.coattention import CoAttended, coattend
from saccade.tasks.schedule import curriculum_schedule, periodic_schedule

OUTPUT, LOSS = 1e-5, 1e-4  # allowed of float32 outputs, computed in float64 here
CLIP, RATE = 0.25, 2e-3  # of Up-Down's optimiser, Adamax
M = TypeVar("M", bound=Answerer)


class AnswererCase(Generic[M]):
    """Questions about pictures, a model, and what its loss and gradients are."""

    images: RegionBatch
    questions: TextBatch

    def __init__(self, case: Case, imported: Imported[M]) -> None:
        self.case, self.imported, self.model = case, imported, imported.model
        self.target = case.tensor("target").double()

    @cached_property
    def answered(self) -> Answered:
        return self.model.answer(self.images, self.questions)

    def summed_loss(self, logits: Tensor) -> Tensor:
        """Binary cross-entropy, summed over questions and answers."""
        return functional.binary_cross_entropy_with_logits(logits, self.target, reduction="sum")

    def loss(self) -> Tensor:
        return self.summed_loss(self.answered.logits)

    def right(self) -> Tensor:
        """The score of each question's likeliest answer."""
        return self.target.gather(1, self.answered.logits.argmax(dim=1, keepdim=True))[:, 0]

    @cached_property
    def gradients(self) -> dict[str, Tensor]:
        """Of `loss`, by official name; those of ours stay with the model."""
        with torch.enable_grad():
            self.model.zero_grad()
            self.scaled(self.summed_loss(self.model.answer(self.images, self.questions).logits)).backward()  # type: ignore[no-untyped-call]
        return self.imported.gradients()

    def scaled(self, loss: Tensor) -> Tensor:
        return loss

    def norms(self) -> dict[str, Difference]:
        return gradient_norms(self.case, "grad_norms", "grad_names", self.gradients)


class UpDownCase(AnswererCase[UpDownVqa]):
    def __init__(self, case: Case, imported: Imported[UpDownVqa]) -> None:
        super().__init__(case, imported)
        features = case.tensor("v").double()
        mask = torch.ones(features.shape[:2], dtype=torch.bool)
        case.take("b")  # read by the reference, and never used
        self.images = RegionBatch(features, mask, features.new_zeros(*mask.shape, 4))
        official = case.tensor("q")
        pad = len(imported.words) - 1
        rows = [[int(word) for word in imported.words.inputs[row[row != pad]]] for row in official]
        self.questions = TextBatch.of(rows)
        self.all_words = imported.words.inputs[official]

    def scaled(self, loss: Tensor) -> Tensor:
        return loss / len(self.target)

    def loss(self) -> Tensor:
        return self.scaled(super().loss())

    @cached_property
    def question(self) -> Tensor:
        return self.model.encode_questions(self.questions)

    def attention(self) -> Tensor:
        return self.model.attention_scores(self.images.features, self.question).mT

    def attended(self) -> Tensor:
        return torch.einsum("qr,qrd->qd", self.answered.weights, self.images.features)

    def total_norm(self) -> Tensor:
        return torch.cat([gradient.flatten() for gradient in self.gradients.values()]).square().sum().sqrt()

    @cached_property
    def stepped(self) -> Tensor:
        """The logits after one step; the model is then as it was."""
        before = {name: value.clone() for name, value in self.model.state_dict().items()}
        _ = self.gradients
        weights = list(self.model.parameters())
        torch.nn.utils.clip_grad_norm_(weights, CLIP)
        torch.optim.Adamax(weights, lr=RATE).step()
        logits = self.model.answer(self.images, self.questions).logits
        self.model.load_state_dict(before)
        return logits

    def loss_after(self) -> Tensor:
        return self.scaled(self.summed_loss(self.stepped))


def updown_cases(folder: Path) -> Iterator[UpDownCase]:
    for path in sorted(folder.glob("*_io.npz")):
        name = path.name.removesuffix("_io.npz")
        case = Case(name, read_npz(path))
        places = case.take("q").shape[1]
        files = sorted(folder.glob(f"{name}_model*.pth")) or [folder / f"{name}_model.pth"]
        imported = [UPDOWN_VQA.read(file, dtype=torch.float64, places=places) for file in files]
        first = imported[0].model.state_dict()
        for file, other in zip(files[1:], imported[1:], strict=True):
            apart = max(difference(value, first[key]) for key, value in other.model.state_dict().items())
            case.check(f"{file.name}: weights", apart, 0.0)
        yield UpDownCase(case, imported[0])


UPDOWN_TABLE: Table = {
    "w_emb": (lambda c: c.model.words(c.all_words), OUTPUT),
    "q_all": (lambda c: c.model.question_states(c.questions), OUTPUT),
    "q_emb": (lambda c: c.question, OUTPUT),
    "att_logits": (UpDownCase.attention, OUTPUT),
    "att": (lambda c: c.answered.weights[..., None], OUTPUT),
    "v_emb": (UpDownCase.attended, OUTPUT),
    "q_repr": (lambda c: c.model.question(c.question), OUTPUT),
    "v_repr": (lambda c: c.model.picture(c.attended()), OUTPUT),
    "logits": (lambda c: c.answered.logits, OUTPUT),
    "loss": (UpDownCase.loss, LOSS),
    "pred": (lambda c: c.answered.logits.argmax(dim=1), 0.0),
    "score": (UpDownCase.right, 0.0),
    "grad_norms": (UpDownCase.norms, 0.0),
    "total_grad_norm": (UpDownCase.total_norm, LOSS),
    "logits_after_step": (lambda c: c.stepped, LOSS),
    "loss_after_step": (UpDownCase.loss_after, LOSS),
}
UPDOWN_GOLDEN = Golden("updown_vqa", updown_cases, UPDOWN_TABLE)


class DcnCase(AnswererCase[Dcn]):
    def __init__(self, case: Case, imported: Imported[Dcn]) -> None:
        super().__init__(case, imported)
        mask = case.tensor("img_mask") > 0
        features = self.level_features() if imported.model.levels is not None else case.tensor("img").double()
        self.images = RegionBatch(features, mask, features.new_zeros(*mask.shape, 4))
        words = case.tensor("ques_mask") > 0
        tokens = imported.words.inputs[case.tensor("questions")]
        self.questions = TextBatch(tokens, words).trimmed()

    def level_features(self) -> Tensor:
        """The backbone's layers side by side, each brought to the last one's cells by its largest values."""
        maps = [self.case.tensor(f"feat{n}").double() for n in (1, 2, 3, 4)]
        pooled = [functional.adaptive_max_pool2d(one, maps[-1].shape[2:]) for one in maps]
        return torch.cat(pooled, dim=1).flatten(2).transpose(1, 2)

    @cached_property
    def encoded(self) -> tuple[Tensor, Tensor, Tensor]:
        """S_0, the LSTM's last states, and I_0."""
        words, final = self.model.encode_questions(self.questions)
        return words, final, self.model.encode_regions(self.images, final)

    @cached_property
    def layers(self) -> list[CoAttended]:
        words, _, regions = self.encoded
        return coattend(self.model.layers, regions, words, self.images.mask, self.questions.mask)

    def layer(self, number: str, part: str) -> Tensor | None:
        if int(number) >= len(self.layers):
            return None
        found, nowhere = self.layers[int(number)], self.model.config.nowhere
        parts = {
            "img": found.regions,
            "ques": found.words,
            "attn_over_img": found.over_regions[..., nowhere:],
            "attn_over_ques": found.over_words[..., nowhere:],
        }
        return parts.get(part)

    def summary(self, side: str) -> Any:
        last = self.layers[-1]
        if side == "img":
            return self.model.region_summary(last.regions, self.images.mask)[1]
        return self.model.word_summary(last.words, self.questions.mask)[1]

    def level_weights(self) -> Tensor | None:
        return None if self.model.levels is None else self.model.levels.weights(self.encoded[1])


def dcn_cases(folder: Path) -> Iterator[DcnCase]:
    for path in sorted(folder.glob("*_io.npz")):
        name = path.name.removesuffix("_io.npz")
        case = Case(name, read_npz(path))
        importer = dcn(case.tensor("word_vectors"))
        yield DcnCase(case, importer.read(folder / f"{name}_ckpt.pth.tar", dtype=torch.float64))


DCN_TABLE: Table = {
    "ques_feat": (lambda c: c.encoded[0], OUTPUT),
    "ques_vec": (lambda c: c.encoded[1], OUTPUT),
    "ques_mask_trim": (lambda c: c.questions.mask, 0.0),
    "img_feat": (lambda c: c.encoded[2], OUTPUT),
    "locate_attn": (DcnCase.level_weights, OUTPUT),
    r"layer(\d+)_(.+)": (DcnCase.layer, OUTPUT),
    "sum_attn_(img|ques)": (DcnCase.summary, OUTPUT),
    "logits": (lambda c: c.answered.logits, OUTPUT),
    "loss": (DcnCase.loss, LOSS),
    "batch_accuracy": (lambda c: 100 * c.right().mean(), LOSS),
    "grad_norms": (DcnCase.norms, 0.0),
}
DCN_GOLDEN = Golden("dcn", dcn_cases, DCN_TABLE)


WEIGHTS: dict[str, str] = {  # stored name → ours; * is the number of a layer
    "d*_nI": "layers.*.no_region",
    "d*_nQ": "layers.*.no_word",
    "d*_lI": "layers.*.region_key.weight",
    "d*_lQ": "layers.*.word_key.weight",
    "d*_fI": "layers.*.region_fusion.weight",
    "d*_fIb": "layers.*.region_fusion.bias",
    "d*_fQ": "layers.*.word_fusion.weight",
    "d*_fQb": "layers.*.word_fusion.bias",
    "W_ret": "retrieval_map.weight",
    "W_ans": "answer_map.weight",
    "W_vg": "grounding_map.weight",
    **{
        f"{task[0]}{side}{place}{kind[0]}": f"{task}.{ours}.score.{2 * place}.{kind}"
        for task in ("retrieval", "vqa")
        for side, ours in (("I", "regions"), ("S", "words"))
        for place in (0, 1)
        for kind in ("weight", "bias")
    },
    **{f"v{place}{kind[0]}": f"predict.{2 * place}.{kind}" for place in (0, 1) for kind in ("weight", "bias")},
}


class HierarchicalCase:
    """One picture with one text, given as I_0 and S_0."""

    def __init__(self, case: Case, facts: dict[str, Any]) -> None:
        self.case, self.facts = case, facts
        self.closed, self.open = self.build("closed"), self.build("open")
        regions, words = (case.tensor(f"in_{side}")[None] for side in ("img", "txt"))
        self.masks = tuple(case.tensor(f"in_{side}_mask")[None] > 0 for side in ("img", "txt"))
        self.layers = coattend(self.closed.layers, regions, words, *self.masks)

    def build(self, predict: Any) -> Hierarchical:
        facts, stored = self.facts, self.case.stored
        level, dim = facts["level"], int(facts["d"])
        config = HierarchicalConfig(
            answers=numbered_answers(int(facts["n_ans"])),
            region_dim=dim,
            word_dim=int(facts["da"]),
            dim=dim,
            lstm_dim=1,
            layers=int(facts["layers"]),
            heads=int(facts["heads"]),
            nowhere=int(facts["none"]),
            summaries=int(facts["K"]),
            retrieval_layer=int(level["retrieval"]),
            grounding_layer=int(level["grounding"]),
            answering_layer=int(level["vqa"]),
            predict=predict,
        )
        model = Hierarchical(config, numbered_words(5)).double().eval()
        table = {theirs: to(ours.replace("vqa.", "answering.")) for theirs, ours in WEIGHTS.items()}
        encoders = ("words.", "lstm.", "sentence.", "regions.")
        own = [name for name, _ in model.named_parameters() if name.startswith(encoders)]
        weights = {key.removeprefix("param_"): self.case.tensor(key) for key in stored if key.startswith("param_")}
        WeightMap(table, model, None, own).load(weights, self.case.name, "hierarchical", strict=False)
        return model

    def layer(self, part: str, number: str) -> Tensor | None:
        if not 1 <= int(number) <= len(self.layers):
            return None
        found = self.layers[int(number) - 1]
        parts = {
            "I": found.regions,
            "S": found.words,
            "attI": found.over_regions.mean(dim=1),
            "attQ": found.over_words.mean(dim=1),
        }
        return parts[part][0]

    def branch(self, task: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """v_I, v_S and the weights of both."""
        model = self.closed
        module, layer = (
            (model.retrieval, model.config.retrieval_layer)
            if task == "ret"
            else (model.answering, model.config.answering_layer)
        )
        found: tuple[Tensor, Tensor, Tensor, Tensor] = module(self.layers[layer - 1], *self.masks)
        return found

    def summary(self, task: str, part: str) -> Tensor:
        return self.branch(task)[("vI", "vS", "alphaI", "alphaS").index(part)][0]

    @cached_property
    def logits(self) -> dict[str, Tensor]:
        """Of every head."""
        pair, question = self.branch("ret")[:2], self.branch("vqa")[:2]
        return {
            "ret_score": self.closed.match_logits(*pair)[0],
            "vqa_score_closed": self.closed.answer_logits(*question)[0],
            "vqa_score_open": self.open.open_logits(*question, self.case.tensor("in_answers"))[0],
            "ground_score": self.closed.ground_logits(self.grounded, self.phrases)[0],
        }

    @cached_property
    def grounded(self) -> CoAttended:
        return self.layers[int(self.closed.config.grounding_layer) - 1]

    @cached_property
    def phrases(self) -> Tensor:
        """1 at the words of each phrase."""
        place = torch.arange(self.masks[1].shape[1])
        spans = self.case.tensor("in_phrases")
        return ((place >= spans[:, :1]) & (place < spans[:, 1:])).double()[None]

    def loss(self, task: str) -> Tensor:
        """Binary cross-entropy, summed; of grounding over the real regions."""
        name, target = {
            "ret_pos": ("ret_score", torch.ones(()).double()),
            "vqa": ("vqa_score_closed", self.case.tensor("in_vqa_target")),
            "vg": ("ground_score", self.case.tensor("in_vg_target")),
        }[task]
        each = functional.binary_cross_entropy_with_logits(self.logits[name], target, reduction="none")
        return (each * self.masks[0][0]).sum() if task == "vg" else each.sum()

    def check_schedules(self) -> None:
        facts = self.facts
        counts = [round(facts["C"] * alpha) for alpha in facts["alpha"]]
        for name, found in (
            ("schedule_periodic", periodic_schedule(facts["tasks"], counts, int(facts["cycles"]))),
            ("schedule_curriculum", curriculum_schedule(facts["tasks"], counts)),
        ):
            self.case.check(name, float(list(found) != facts[name]), 0.0)


def hierarchical_cases(folder: Path) -> Iterator[HierarchicalCase]:
    for path in sorted(folder.glob("*.npz")):
        opened = HierarchicalCase(Case(path.stem, read_npz(path)), read_json(folder / "config.json"))
        opened.check_schedules()
        yield opened


EXACT = 1e-9  # stored in float64
HIERARCHICAL_TABLE: Table = {
    r"out_(I|S|attI|attQ)(\d+)": (HierarchicalCase.layer, EXACT),
    "out_(ret|vqa)_(vI|vS|alphaI|alphaS)": (HierarchicalCase.summary, EXACT),
    "out_((?:ret|vqa|ground)_score(?:_closed|_open)?)": (lambda c, name: c.logits[name].sigmoid(), EXACT),
    "out_phrase_feat": (lambda c: c.closed.phrase_vectors(c.grounded, c.phrases)[0], EXACT),
    "out_ground_argmax": (
        lambda c: c.logits["ground_score"].masked_fill(~c.masks[0][0], -torch.inf).argmax(dim=1),
        0.0,
    ),
    "out_loss_(.+)": (HierarchicalCase.loss, EXACT),
}
HIERARCHICAL_GOLDEN = Golden("hierarchical", hierarchical_cases, HIERARCHICAL_TABLE)
