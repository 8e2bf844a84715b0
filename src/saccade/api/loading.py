"""`saccade.load`: one door to all trained models."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar, overload

from saccade.api.captioning import PictureCaptioner
from saccade.api.looking import PictureModel
from saccade.api.matching import PictureMatcher
from saccade.errors import SaccadeError
from saccade.models import Captioner, Matcher, Model, load_model

DOORS: dict[type[Model], type[PictureModel[Any]]] = {Matcher: PictureMatcher, Captioner: PictureCaptioner}
ASK = {  # what a model does, and how else to ask it
    "matching": "matches pictures with sentences (`saccade score`, `saccade explain`)",
    "captioning": "captions pictures (`saccade caption`)",
    "unpaired_captioning": "captions pictures (`saccade caption`)",
    "dense_captioning": "describes parts of pictures (`saccade densecap`)",
}
P = TypeVar("P", bound="PictureModel[Any]")


@overload
def load(folder: Path | str, device: str = "cpu") -> Any: ...


@overload
def load(folder: Path | str, device: str = "cpu", *, kind: type[P]) -> P: ...


def load(folder: Path | str, device: str = "cpu", *, kind: type[PictureModel[Any]] = PictureModel) -> Any:
    """A run folder (its best model), a model folder, or the name of a model on the hub.

    A matcher becomes a `PictureMatcher`, a captioner a `PictureCaptioner`; with `kind` only one of them will do.
    """
    if Path(folder).exists() or str(folder).count("/") != 1 or str(folder).startswith((".", "/")):
        model: Model = load_model(folder)
    else:
        model = Model.from_pretrained(str(folder))
    door = next((door for wanted, door in DOORS.items() if isinstance(model, wanted)), None)
    if door is None or not issubclass(door, kind):
        raise SaccadeError(f"{folder} holds a {model.name} model, which {ASK.get(model.task, 'cannot be asked so')}")
    return door(model.to(device).eval())
