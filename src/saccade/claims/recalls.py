"""Matchers: the rank of every query is kept, and a recall is a sum over pictures, each with its own captions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Float, Int

from saccade.claims.scores import Arrays, Scores
from saccade.claims.yardstick import SplitOf, Yardstick
from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.core.files import atomic_file
from saccade.metrics import CUTOFFS, WAYS, chance, ranks, summary
from saccade.models import Matcher, Model
from saccade.tasks import ensemble_of, similarity_table

if TYPE_CHECKING:
    from saccade.training.run import RunConfig

RECALLS = {f"{way}_r{k}": f"{name} R@{k}" for way, name in WAYS.items() for k in CUTOFFS}


@dataclass(frozen=True, eq=False)
class QueryRanks:
    """Where the first right answer of every query of a split stands (0: on top)."""

    image_to_text: Int[np.ndarray, " image"]
    text_to_image: Int[np.ndarray, " text"]
    image_of_text: Int[np.ndarray, " text"]

    def recalls(self) -> dict[str, float]:
        """The same figures as `saccade.metrics.recall`."""
        report = {f"i2t_{k}": v for k, v in summary(self.image_to_text).items()}
        report |= {f"t2i_{k}": v for k, v in summary(self.text_to_image).items()}
        return report | {"rsum": sum(value for key, value in report.items() if "_r" in key)}

    def contributions(self) -> dict[str, Float[np.ndarray, " image"]]:
        """Every recall as a sum over pictures: what a picture and its own captions, as queries, add to it."""
        images, texts = len(self.image_to_text), len(self.text_to_image)
        found: dict[str, np.ndarray] = {}
        for k in CUTOFFS:
            hits = np.bincount(self.image_of_text, weights=self.text_to_image < k, minlength=images)
            found[f"i2t_r{k}"] = 100.0 / images * (self.image_to_text < k)
            found[f"t2i_r{k}"] = 100.0 / texts * hits
        return found | {"rsum": np.sum(list(found.values()), axis=0)}

    def scores(self) -> Scores:
        counts = {"pictures": len(self.image_to_text), "texts": len(self.text_to_image)}
        at_random = chance(self.image_of_text, len(self.image_to_text))
        return Scores(self.recalls(), self.contributions(), counts, at_random)


def query_ranks(table: Float[np.ndarray, "image text"], image_of_text: Int[np.ndarray, " text"]) -> QueryRanks:
    found = ranks(table, image_of_text)
    return QueryRanks(found.image_to_text, found.text_to_image, image_of_text)


class Recalls(Yardstick):
    file = "ranks.npz"
    metrics: ClassVar = {"rsum": "rsum", **RECALLS}
    metric = "rsum"
    columns = ("i2t_r1", "t2i_r1", "rsum")
    unit = "Recall in per cent"

    def measure(
        self, model: Model, config: RunConfig, split: str, split_of: SplitOf, folder: Path, tables: bool
    ) -> Arrays:
        assert isinstance(model, Matcher)
        data = split_of(config.data, split).regions_for(model, folder)
        table = similarity_table(model, data)
        if tables:
            save_table(self.tables(folder, split), table)
        found = query_ranks(table, data.image_of_text)
        return {name: np.asarray(values, dtype=np.int32) for name, values in vars(found).items()}

    def scores(self, kept: Arrays) -> Scores:
        return QueryRanks(kept["image_to_text"], kept["text_to_image"], kept["image_of_text"]).scores()

    def tables(self, folder: Path, split: str) -> Path:
        return folder / f"similarity-{split}.npy"

    def ensemble(self, folders: Sequence[Path], split: str, kept: Arrays) -> Scores:
        tables = [load_table(self.tables(folder, split)) for folder in folders]
        return query_ranks(ensemble_of(tables), kept["image_of_text"]).scores()


def save_table(path: Path, table: Float[np.ndarray, "image text"]) -> None:
    """Similarities brought to zero mean and unit spread, which is what an ensemble averages, in half precision."""
    standard = (table - table.mean()) / max(float(table.std()), 1e-12)
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        np.save(file, standard.astype(np.float16))


def load_table(path: Path) -> Float[np.ndarray, "image text"]:
    try:
        with explain_os_errors(path, "read"):
            return np.asarray(np.load(path, allow_pickle=False), dtype=np.float32)
    except (ValueError, EOFError) as error:
        raise SaccadeError(f"{path} is damaged: remove it, and the run is measured again") from error
