"""VCML: half-spaces, concepts, metaconcepts and programs, and the NS-CL executor it builds on.

Three cases in a folder: checkpoint.tar with io.npz, exact_meta.npz and config.json (the release's values, on its grid,
and exact ones); halfspace.npz (volumes by quadratures and by sampling); nscl_reasoning.pth with nscl_io.npz and
nscl_config.json (every step of programs, in training and in evaluation).

A conditional probability near one has a logit that rests on digits which float32, or a difference in float64, does not
have: where it is above `SATURATED` the probabilities are compared, and nothing that is computed from the logit.
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

from saccade.batch import Program, RegionBatch, Step
from saccade.core.arrays import read_npz
from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.interop.harness import Case, Difference, Golden, memo, unmasked
from saccade.interop.importer import Imported
from saccade.interop.importers.concepts import NSCL, VCML
from saccade.models import Nscl, Vcml
from saccade.models.nscl import NsclScene
from saccade.nn.halfspaces import LARGEST, LnVolumes, Volumes, lengths_and_gap, ln_below_coarse, volumes
from saccade.nn.programs import Execution

FLOAT32 = 2e-5  # relative: official outputs in float32
RELEASE = 1e-3  # relative: the release's sums over a grid, in float32
EXACT = 1e-8
GRADIENT = 1e-4  # relative to the gradient's norm
SATURATED = 0.999  # a probability whose logit is not compared
DEVIATIONS = 5.0  # of a sampled value


def relative(found: Any, stored: np.ndarray, where: Tensor | None = None) -> Difference:
    """The largest |ours − stored| / max(1, |stored|), of the entries that count."""
    ours, theirs = torch.as_tensor(found).detach().double(), torch.as_tensor(stored).double()
    if ours.shape != theirs.shape:
        return Difference(float("inf"))
    apart = (ours - theirs).abs() / theirs.abs().clamp(min=1)
    if where is not None:
        apart = apart[where]
    return Difference(float(apart.max()) if apart.numel() else 0.0)


def logits(found: Tensor, stored: np.ndarray) -> Difference:
    """Relative where the stored probability is not saturated; else the probabilities must agree."""
    if found.shape != stored.shape:
        return Difference(float("inf"))
    theirs = torch.from_numpy(stored).double()
    certain = theirs.sigmoid() >= SATURATED
    saturated = (found.detach().double().sigmoid() - theirs.sigmoid()).abs()[certain]
    worst = max([relative(found, stored, ~certain).value, *saturated.tolist()])
    return Difference(worst)


OFFICIAL_METACONCEPTS = {"isinstanceof": "instance_of", "samekind": "same_kind"}


class VcmlCase:
    def __init__(self, case: Case, imported: Imported[Vcml], settings: dict[str, Any]) -> None:
        self.case, self.imported, self.model, self.settings = case, imported, imported.model, settings
        self.features = case.tensor("in_obj_feat").double()
        if self.features.dim() != 2 or self.features.shape[1] != self.model.config.region_dim:
            raise SaccadeError(f"{case.name}: in_obj_feat does not fit the checkpoint's {self.model.config.region_dim}")
        self.rounded = torch.from_numpy(case.stored["out_objects"]).double() if "out_objects" in case.stored else None
        self.vectors = self.model.concept_vectors.weight.detach()
        self.all = torch.arange(len(self.vectors))

    @cached_property
    def objects(self) -> Tensor:
        return self.model.encode_scene(self.regions).objects[0]

    @property
    def regions(self) -> RegionBatch:
        return unmasked(self.features[None])

    @memo
    def between(self, method: str) -> Volumes:
        """Concepts with concepts."""
        grid = (self.model.config.grid_points, self.model.config.grid_end)
        return volumes(*lengths_and_gap(self.vectors[:, None], self.vectors), method, grid)  # type: ignore[arg-type]

    @cached_property
    def exact_objects(self) -> Volumes:
        """Of the objects as stored, which were rounded to float32."""
        objects = self.objects if self.rounded is None else self.rounded
        return volumes(*lengths_and_gap(objects[:, None], self.vectors))

    @cached_property
    def object_logits(self) -> Tensor:
        rows = len(self.vectors)
        return self.model.encode_scene(self.regions).concepts(torch.zeros(rows, dtype=torch.long), self.all).T

    @cached_property
    def plain(self) -> Tensor:
        """Pairs of concepts none of which nearly implies the other."""
        found = self.between("exact")
        return (found.y_given_x.sigmoid() < SATURATED) & (found.x_given_y.sigmoid() < SATURATED)

    @memo
    def exact_model(self, form: str) -> Vcml:
        third = {"code": "logit", "paper": "ratio"}[form]
        return self.imported.variant(volume="exact", third_input=third)

    def meta_inputs(self, form: str) -> Tensor:
        return self.exact_model(form).metaconcept_inputs(*self.pairs)

    @property
    def pairs(self) -> tuple[Tensor, Tensor]:
        return self.all[:, None].expand(len(self.all), -1), self.all.expand(len(self.all), -1)

    @cached_property
    def program_logits(self) -> Tensor:
        found = [self._answer([tuple(step) for step in program]) for program in self.settings["programs"]]
        return torch.stack(found)

    def _answer(self, program: list[tuple[str, str]]) -> Tensor:
        """select_object, filter …, exist; or select_concept and a metaconcept, without <END>."""
        steps = [step for step in program if step[0] != "<END>"]
        if steps[0][0] == "select_concept":
            ((_, first), (kind, second)) = steps
            return self.model.metaconcept(OFFICIAL_METACONCEPTS.get(kind, kind), first, second)
        names = {"select_object": "scene"}
        ours: Program = tuple(
            Step(names.get(op, op), (n - 1,) if n else (), word) for n, (op, word) in enumerate(steps)
        )
        return self.model.execute(self.regions, [ours]).values[0]

    def program_losses(self) -> Tensor:
        signs = torch.tensor([1.0 if answer == "yes" else -1.0 for answer in self.settings["answers"]])
        return F.softplus(-signs * self.program_logits)

    def gradient(self) -> Tensor:
        """Of all metaconcepts' logits, summed over pairs."""
        pairs = self.case.tensor("out_grad_pairs").long()
        with torch.enable_grad():
            self.model.zero_grad()
            self.model.metaconcepts(pairs[:, 0], pairs[:, 1]).sum().backward()  # type: ignore[no-untyped-call]
        gradient = self.imported.gradients()["embedding.concept_embedding.weight"]
        self.model.zero_grad()
        return gradient

    def classification_loss(self) -> Tensor:
        target = self.case.tensor("in_cls_target").double()
        return F.binary_cross_entropy_with_logits(self.object_logits.double(), target, reduction="none")


class HalfspaceCase:
    def __init__(self, case: Case) -> None:
        self.case = case
        x, y = case.tensor("in_A").double(), case.tensor("in_B").double()
        self.a, self.b, self.gap = lengths_and_gap(x, y)
        self.found = volumes(self.a, self.b, self.gap)
        self.samples = int(case.take("mc_n"))

    def derivative(self, number: int) -> Tensor:
        """Of ln Pr(x, y) by ‖x‖ or by c."""
        with torch.enable_grad():
            given = [value.clone().requires_grad_() for value in (self.a, self.b, self.gap)]
            LnVolumes.apply(*given)[0].sum().backward()  # type: ignore[no-untyped-call]
        gradient = given[number].grad
        assert gradient is not None
        return gradient if number < 2 else -gradient

    def limited(self, key: str, found: Tensor) -> Difference:
        """What is infinite is stored as ±1e308 and is ±`LARGEST` here."""
        return logits(found, self.case.stored[key].clip(-LARGEST, LARGEST))

    def sampled(self, key: str, ln_probability: Tensor) -> Difference:
        """In standard deviations of the mean of so many samples."""
        p = ln_probability.exp()
        deviation = (p * (1 - p) / self.samples).sqrt().clamp(min=1 / self.samples)
        return Difference(float(((torch.from_numpy(self.case.stored[key]) - p).abs() / deviation).max()))

    def deviations(self) -> np.ndarray:
        joint = self.found.both.exp().numpy()
        return np.asarray(np.sqrt(np.maximum(joint * (1 - joint), 1e-12) / self.samples))


OFFICIAL_OPS = {
    "relate_attribute_equal": "same",
    "query_attribute_equal": "equal",
    "count_greater": "more",
    "count_less": "fewer",
    "count_equal": "as_many",
}
WORDS = ("concept", "relational_concept", "attribute")


def official_step(step: dict[str, Any]) -> Step:
    """A step of NS-CL's programs: its word is one of a list, by place."""
    word = next((step[f"{kind}_values"][step[f"{kind}_idx"]] for kind in WORDS if f"{kind}_idx" in step), "")
    return Step(OFFICIAL_OPS.get(step["op"], step["op"]), tuple(step["inputs"]), word)


class NsclCase:
    def __init__(self, case: Case, imported: Imported[Nscl], settings: dict[str, Any]) -> None:
        self.case, self.model, self.settings = case, imported.model, settings
        self.lexicon = self.model.lexicon
        self.regions = unmasked(case.tensor("in_obj").double()[None])
        self.programs = [tuple(official_step(step) for step in program) for program in settings["programs"]]

    def scene(self, mode: str) -> NsclScene:
        self.model.train(mode == "train")
        scene = self.model.encode_scene(self.regions)
        if "in_rel" in self.case.stored:
            scene.pairs = self.case.tensor("in_rel").double()[None]
        self.model.eval()
        return scene

    @memo
    def execution(self, mode: str) -> Execution:
        return self.model.execute(self.scene(mode), self.programs, [0] * len(self.programs))

    def answer(self, mode: str, number: str) -> Tensor:
        execution = self.execution(mode)
        return execution.steps(int(number))[-1]

    def step(self, mode: str, number: str, step: str) -> Tensor:
        return self.execution(mode).steps(int(number))[int(step)]

    def losses(self, mode: str) -> Tensor:
        answers = self.settings["answers"]
        words = [("no", "yes")[answer] if isinstance(answer, bool) else str(answer) for answer in answers]
        return self.execution(mode).losses(words)

    def ask(self, kind: str, words: str, word: str) -> Tensor | None:
        """One picture, one word: what the model says of its regions."""
        if word not in self.lexicon.places[words]:
            return None
        place = torch.tensor([self.lexicon.place(words, word)])
        found: Tensor = getattr(self.scene("eval"), kind)(torch.tensor([0]), place)[0]
        return found


def opens(folder: Path) -> Iterator[VcmlCase | HalfspaceCase | NsclCase]:
    def beside(name: str, of: str) -> Path:
        if not (folder / name).exists():
            raise SaccadeError(f"{folder / of} has no {name} beside it")
        return folder / name

    def settings(name: str, of: str) -> dict[str, Any]:
        found = read_json(beside(name, of))
        for key in ("programs", "answers"):
            if not isinstance(found, dict) or not isinstance(found.get(key), list):
                raise SaccadeError(f'{folder / name} has no list of "{key}"')
        return dict(found)

    if (folder / "io.npz").exists():
        stored = read_npz(folder / "io.npz")
        if (folder / "exact_meta.npz").exists():
            stored |= read_npz(folder / "exact_meta.npz")
        imported = VCML.read(beside("checkpoint.tar", "io.npz"), dtype=torch.float64)
        yield VcmlCase(Case("vcml", stored), imported, settings("config.json", "io.npz"))
    if (folder / "halfspace.npz").exists():
        yield HalfspaceCase(Case("halfspace", read_npz(folder / "halfspace.npz")))
    if (folder / "nscl_io.npz").exists():
        reasoning = NSCL.read(beside("nscl_reasoning.pth", "nscl_io.npz"), dtype=torch.float64)
        case = Case("nscl", read_npz(folder / "nscl_io.npz"))
        yield NsclCase(case, reasoning, settings("nscl_config.json", "nscl_io.npz"))


Row = tuple[Callable[..., Any], float]


def near(key: str, expression: Callable[[Any], Any], tolerance: float) -> dict[str, Row]:
    return {key: (lambda c: relative(expression(c), c.case.stored[key]), tolerance)}


def plain(key: str, expression: Callable[[VcmlCase], Tensor], tolerance: float) -> dict[str, Row]:
    """On pairs of concepts of which neither nearly implies the other."""
    return {key: (lambda c: relative(expression(c), c.case.stored[key], c.plain), tolerance)}


def as_logits(key: str, expression: Callable[[VcmlCase], Tensor], tolerance: float) -> dict[str, Row]:
    return {key: (lambda c: logits(expression(c), c.case.stored[key]), tolerance)}


def nscl_rows() -> dict[str, Row]:
    def stage_rows(pattern: str, expression: Callable[..., Tensor | None], name: str) -> dict[str, Row]:
        def row(c: NsclCase, *groups: str) -> Difference | None:
            found = expression(c, *groups)
            return None if found is None else relative(found, c.case.stored[name.format(*groups)])

        return {pattern: (row, FLOAT32)}

    return {
        **stage_rows("out_sim_(.+)", lambda c, word: c.ask("concepts", "concepts", word), "out_sim_{}"),
        **stage_rows("out_relsim_(.+)", lambda c, word: c.ask("relations", "relations", word), "out_relsim_{}"),
        **stage_rows("out_cross_(.+)", lambda c, word: c.ask("same", "attributes", word), "out_cross_{}"),
        **stage_rows("out_query_(.+)", lambda c, word: c.ask("query", "attributes", word), "out_query_{}"),
        **stage_rows(r"out_(train|eval)_prog(\d+)", NsclCase.answer, "out_{}_prog{}"),
        **stage_rows(r"out_(train|eval)_prog(\d+)_step(\d+)", NsclCase.step, "out_{}_prog{}_step{}"),
        **stage_rows("out_(train|eval)_qa_loss", NsclCase.losses, "out_{}_qa_loss"),
    }


GOLDEN = Golden(
    "vcml",
    opens,
    {
        **near("out_objects", lambda c: c.objects, FLOAT32),
        **near("out_norm", lambda c: c.vectors.norm(dim=1), FLOAT32),
        **near("out_cos", lambda c: 1 - lengths_and_gap(c.vectors[:, None], c.vectors)[2], FLOAT32),
        **near("out_ln_pr", lambda c: c.between("grid").x[:, 0], RELEASE),
        **near("out_ln_cdf_formula", lambda c: ln_below_coarse(-c.vectors.norm(dim=1)), FLOAT32),
        **near("out_ln_cond_AB", lambda c: c.between("grid").both - c.between("grid").x, RELEASE),
        **as_logits("out_logit_cond_AB", lambda c: c.between("grid").y_given_x, RELEASE),
        **near("out_ln_lambda", lambda c: c.between("grid").ratio, RELEASE),
        **plain("out_logit_lambda", lambda c: c.model.metaconcept_inputs(*c.pairs)[..., 2], RELEASE),
        **plain("out_meta_logits", lambda c: c.model.metaconcepts(*c.pairs), RELEASE),
        **as_logits("out_object_concept_logit", lambda c: c.object_logits, RELEASE),
        **near("out_penalty", lambda c: c.model.own_losses().get("metaconcept_penalty", torch.zeros(())), FLOAT32),
        **near("out_prog_yes_prob", lambda c: c.program_logits.sigmoid(), RELEASE),
        **near("out_prog_loss", VcmlCase.program_losses, RELEASE),
        **near("out_cls_loss", VcmlCase.classification_loss, RELEASE),
        "out_grad_concept_embedding": (
            lambda c: Difference(
                float((c.gradient() - c.case.tensor("out_grad_concept_embedding")).norm())
                / max(1.0, float(c.case.tensor("out_grad_concept_embedding").norm()))
            ),
            GRADIENT,
        ),
        "out_exact_p[AB]": (lambda c: c.between("exact").x[:, 0].exp(), EXACT),
        "out_exact_cos": (lambda c: 1 - lengths_and_gap(c.vectors[:, None], c.vectors)[2], EXACT),
        "out_exact_joint": (lambda c: c.between("exact").both.exp(), EXACT),
        "out_exact_cond": (lambda c: c.between("exact").y_given_x.sigmoid(), EXACT),
        **as_logits("out_exact_logit_cond", lambda c: c.between("exact").y_given_x, EXACT),
        **near("out_exact_ln_lambda", lambda c: c.between("exact").ratio, EXACT),
        "out_exact_obj_cond": (lambda c: c.exact_objects.y_given_x.sigmoid(), EXACT),
        **as_logits("out_exact_obj_logit", lambda c: c.exact_objects.y_given_x, EXACT),
        "unsaturated": (lambda c: c.plain, 0.0),
        **plain("feat_code", lambda c: c.meta_inputs("code"), EXACT),
        **plain("feat_paper", lambda c: c.meta_inputs("paper"), EXACT),
        **plain("meta_logits_code", lambda c: c.exact_model("code").metaconcepts(*c.pairs), EXACT),
        **plain("meta_logits_paper", lambda c: c.exact_model("paper").metaconcepts(*c.pairs), EXACT),
        "norm_(a|b)": (lambda c, which: {"a": c.a, "b": c.b}[which], EXACT),
        "cos": (lambda c: 1 - c.gap, EXACT),
        "pr_(a|b)": (lambda c, which: {"a": c.found.x, "b": c.found.y}[which].exp(), EXACT),
        "joint|joint_plackett": (lambda c: c.found.both.exp(), EXACT),
        "pr_a_given_b": (lambda c: c.found.x_given_y.sigmoid(), EXACT),
        "pr_b_given_a": (lambda c: c.found.y_given_x.sigmoid(), EXACT),
        "g1_ab": (lambda c: c.limited("g1_ab", c.found.x_given_y), EXACT),
        "g1_ba": (lambda c: c.limited("g1_ba", c.found.y_given_x), EXACT),
        "g2": (lambda c: relative(c.found.ratio, c.case.stored["g2"].clip(-LARGEST, LARGEST)), EXACT),
        **near("dlnJ_dx", lambda c: c.derivative(0), EXACT),
        **near("dlnJ_dc", lambda c: c.derivative(2), EXACT),
        "mc_joint": (lambda c: c.sampled("mc_joint", c.found.both), DEVIATIONS),
        "mc_pr_a": (lambda c: c.sampled("mc_pr_a", c.found.x), DEVIATIONS),
        "mc_pr_b": (lambda c: c.sampled("mc_pr_b", c.found.y), DEVIATIONS),
        "mc_stderr": (lambda c: Difference(float(np.abs(c.deviations() / c.case.stored["mc_stderr"] - 1).max())), 0.1),
        **nscl_rows(),
    },
    required=lambda case: {
        "vcml": ("out_objects", "out_meta_logits", "out_exact_joint", "out_object_concept_logit"),
        "halfspace": ("joint", "g1_ab", "g2"),
        "nscl": ("out_train_qa_loss", "out_eval_qa_loss"),
    }[case.name],
)
