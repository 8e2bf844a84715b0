"""`saccade.load`: a trained model with pictures and sentences instead of tensors.

>>> import saccade
>>> model = saccade.load("runs/scan")
>>> model.score(["a.png", "b.png"], ["a red cube left of a blue ball"])
>>> model.explain("a.png", "a red cube left of a blue ball").save("why.png")
>>> saccade.load("runs/updown").caption("a.png")[0].text
>>> saccade.load("runs/densecap").describe("a.png")[0]
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar, overload

import numpy as np
import torch

from saccade.batch import RegionBatch
from saccade.core.errors import SaccadeError
from saccade.data import FeatureStore
from saccade.data.store.manifest import Broken
from saccade.explain import Explanation
from saccade.features.decoding import Opened, Opener, open_ahead
from saccade.models import Model, find_model, load_model
from saccade.tasks import find_task
from saccade.tasks.evaluator import check_features
from saccade.tasks.uses import Line, Outcome, Use
from saccade.vision.extractors import bfloat16_digest
from saccade.vision.grid import grid_config
from saccade.vision.pictures import Picture

if TYPE_CHECKING:
    from saccade.vision import RegionExtractor

M = TypeVar("M", bound=Model)
P = TypeVar("P", bound="Predictor[Any]")
Result = TypeVar("Result")
Images: TypeAlias = "Picture | Iterable[Picture] | RegionBatch | FeatureStore"
Photo: TypeAlias = tuple[str, Path]  # what it is called, and its file


class Predictor(Generic[M]):
    """A trained model with pictures and texts instead of tensors; each task adds its own methods."""

    uses: ClassVar[tuple[Use, ...]] = ()  # what it does with one picture and one text, for the service and its page

    def __init__(self, model: M) -> None:
        self.model = model

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @classmethod
    def adopt(cls, model: Model) -> Predictor[Any] | None:
        """The predictor of this task for a model; None if the model cannot do it. Some models do other tasks too."""
        return cls(model) if find_task(model.task).predictor is cls else None  # type: ignore[arg-type]

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

    def batches(self, images: Images, size: int) -> Iterator[RegionBatch]:
        """The regions of one picture or of any number, `size` pictures at a time: no more are held than that."""
        if isinstance(images, RegionBatch):
            yield from (self.extract(images.select(slice(i, i + size))) for i in range(0, len(images), size))
        elif isinstance(images, FeatureStore):
            self.check_store(images)
            parts = (range(i, min(i + size, len(images))) for i in range(0, len(images), size))
            yield from (self.extract(images.batch(part)) for part in parts)
        else:
            yield from map(self.extract, in_batches(images, size))

    def over_places(
        self,
        photos: Sequence[Photo],
        stores: Sequence[FeatureStore],
        size: int,
        work: Callable[[RegionBatch], Iterable[Result]],
        name: object = "the model",
    ) -> Iterator[tuple[str, Path | None, Result] | Broken]:
        """What `work` makes of each photo file, opened ahead, then of each picture of the stores, `size` at a time.

        With it stand the picture's id and file. A photo that cannot be read comes back as broken.

        Raises: SaccadeError, before the first picture, if `name` cannot read the features of a store.
        """
        for store in stores:
            self.check_store(store, name)
        if photos:
            with closing(open_ahead(Opener(self.extractor, None, "fraction", {}), photos, None, size)) as opened:
                for start in range(0, len(photos), size):
                    part = photos[start : start + size]
                    batch = list(islice(opened, len(part)))
                    seen = [one.seen for one in batch if isinstance(one, Opened)]
                    found = iter(work(self.extract(seen)) if seen else ())
                    for (id, path), one in zip(part, batch, strict=True):
                        yield one if isinstance(one, Broken) else (id, path, next(found))
        for store in stores:
            ids = iter(store.ids)
            for regions in self.batches(store, size):
                yield from ((next(ids), None, result) for result in work(regions))

    def check_store(self, store: FeatureStore, name: object = "the model") -> None:
        """Raises: SaccadeError if the model cannot read the regions of a store."""
        if self.model.backbone is None:
            check_features(self.model, name, store.dim, store.extractor, store.folder)
            return
        own = self.extractor.digest
        if store.metadata.get("extractor_digest") not in (own, bfloat16_digest(own)):
            raise SaccadeError(
                f"{name} reads pixels with a backbone of its own, {store.folder} holds regions of another extractor: "
                "give it the photos, or a store that `saccade extract --model` made with it"
            )


@dataclass(frozen=True)
class Answer:
    """What a model says, how likely it is, and in which steps it was found if it was found in steps."""

    text: str
    probability: float
    steps: tuple[str, ...] = ()


class Drawing(Protocol):
    """Something that can be drawn into a file."""

    def save(self, path: Path | str) -> object: ...


def _answer(predictor: QuestionPredictor[Any], image: Any, text: str, top: int) -> Outcome:
    answers = predictor.ask(image, text, top)
    lines = tuple(Line(one.text, probability=one.probability, details=one.steps) for one in answers)
    why = None if image is None else predictor.why(image, text)
    return Outcome(lines, why if isinstance(why, Explanation) else None)


class QuestionPredictor(RegionPredictor[M]):
    """A trained model that answers questions: what `saccade ask` needs."""

    uses: ClassVar[tuple[Use, ...]] = (
        Use(
            "ask",
            "Answer a question about a picture",
            "picture",
            _answer,
            "question",
            "what is the dog doing?",
        ),
    )

    @abstractmethod
    def ask(self, image: Picture | RegionBatch | None, question: str, top: int = 5) -> list[Answer]:
        """The likeliest answers, best first; top=0 is all. Raises: SaccadeError if the question needs a picture."""

    @abstractmethod
    def why(self, image: Picture | None, question: str) -> Drawing:
        """What the answer came from: `.save("why.png")` draws it."""

    def use_parser(self, parser: Predictor[Any]) -> None:
        """Read questions by a trained parser. Raises: SaccadeError if the model has no use for programs."""
        raise SaccadeError(f"{self.model.name} reads the words of a question: only concept learners execute programs")


def given_picture(image: Any, question: str) -> Any:
    """Raises: SaccadeError if there is none."""
    if image is None:
        raise SaccadeError(
            f'the model answers "{question}" about a picture: give one before the question (vcml needs none for '
            "questions about two concepts)"
        )
    return image


def _is_one(images: Any) -> bool:
    return (
        isinstance(images, str | Path)
        or hasattr(images, "mode")
        or (isinstance(images, np.ndarray) and images.ndim == 3)
    )


def listed(images: Any) -> list[Any]:
    """One picture or several."""
    return [images] if _is_one(images) else list(images)


def in_batches(images: Any, size: int) -> Iterator[list[Any]]:
    """One picture or several, `size` at a time."""
    given = iter([images] if _is_one(images) else images)
    while batch := list(islice(given, size)):
        yield batch


def extractor_of(folder: Path | str) -> str:
    """The name of the extractor that a trained model reads pictures with; a detector is one itself.

    Raises: SaccadeError if there is no such model, or it has none.
    """
    place, kind = find_model(folder, Model)
    described = kind.described(place)
    if kind.task == "detection":
        return f"{kind.name.removesuffix('_extractor')}:{folder}"
    if (own := described.get("backbone")) is not None:
        argument = str(own).removeprefix("grid").removeprefix(":")
        return replace(grid_config(argument), backbone=f"tuned:{folder}").name
    if described.get("extractor") is None:
        raise SaccadeError(f"{folder} names no extractor: it reads pixels itself, or features whose maker is not known")
    return str(described["extractor"])


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
