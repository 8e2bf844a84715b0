"""`saccade.load`: a trained model with pictures and sentences instead of tensors.

>>> import saccade
>>> model = saccade.load("runs/scan")
>>> model.score(["a.png", "b.png"], ["a red cube left of a blue ball"])
>>> model.explain("a.png", "a red cube left of a blue ball").save("why.png")
>>> saccade.load("runs/updown").caption("a.png")[0].text
>>> saccade.load("runs/densecap").describe("a.png")[0]
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import numpy as np
import torch

from saccade.batch import RegionBatch
from saccade.core.errors import SaccadeError
from saccade.explain import Explanation
from saccade.models import Model, find_model, load_model
from saccade.tasks import find_task
from saccade.vision.pictures import Picture

if TYPE_CHECKING:
    from saccade.vision import RegionExtractor

M = TypeVar("M", bound=Model)
P = TypeVar("P", bound="Predictor[Any]")


class Predictor(Generic[M]):
    """A trained model with pictures and texts instead of tensors; each task adds its own methods."""

    def __init__(self, model: M) -> None:
        self.model = model

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def explain(self, image: Picture, text: str | None = None, *, title: str = "") -> Explanation:
        """Which regions each word of a sentence found, or came from: `.save("why.png")` draws it."""
        spec = find_task(self.model.task)
        raise SaccadeError(f"a {spec.noun} binds no words to regions: it {spec.does} ({spec.commands})")


class RegionPredictor(Predictor[M]):
    """A trained model with the extractor it was trained with."""

    def __init__(self, model: M, extractor: RegionExtractor | None = None) -> None:
        super().__init__(model)
        self._extractor = extractor

    @cached_property
    def extractor(self) -> RegionExtractor:
        from saccade.vision import load_extractor

        if self._extractor is not None:
            return self._extractor
        if self.model.backbone is not None:
            return self.model.backbone.as_extractor()
        if self.model.extractor is None:
            raise SaccadeError(
                "this model was trained on features whose maker is not known, so it cannot read pictures: "
                "give it regions (a RegionBatch) instead"
            )
        return load_extractor(self.model.extractor, device=self.device)

    def extract(self, images: Picture | Sequence[Picture] | RegionBatch) -> RegionBatch:
        """Regions of pictures (paths, Pillow images or arrays); a RegionBatch is taken as it is."""
        if isinstance(images, RegionBatch):
            return images.to(self.device)
        return self.extractor.extract(listed(images)).to(self.device)


def listed(images: Any) -> list[Any]:
    """One picture or several."""
    single = (
        isinstance(images, str | Path)
        or hasattr(images, "mode")
        or (isinstance(images, np.ndarray) and images.ndim == 3)
    )
    return [images] if single else list(images)


@overload
def load(folder: Path | str, device: str = "cpu") -> Any: ...


@overload
def load(folder: Path | str, device: str = "cpu", *, kind: type[P]) -> P: ...


def load(folder: Path | str, device: str = "cpu", *, kind: type[Predictor[Any]] = Predictor) -> Any:
    """A run folder (its best model), a model folder, one that comes with the package, or `hf:OWNER/NAME` of the hub.

    A matcher becomes a `PictureMatcher`, a captioner a `PictureCaptioner` and so on: the predictor of its task.

    Raises: SaccadeError if there is no such model, or its predictor is no `kind`.
    """
    predictor = _predictor(find_model(folder)[1], folder, kind)  # refused before the weights are read
    return predictor(load_model(folder).to(device).eval())


def _predictor(model: type[Model], folder: Path | str, kind: type[Predictor[Any]]) -> type[Predictor[Any]]:
    spec = find_task(model.task)
    if not issubclass(spec.predictor, kind):
        raise SaccadeError(f"{folder} holds a model of {model.name}, which {spec.does} ({spec.commands})")
    return spec.predictor
