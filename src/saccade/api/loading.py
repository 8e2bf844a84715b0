"""`saccade.load`: one door to all trained models."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar, overload

from saccade.api.captioning import PictureCaptioner
from saccade.api.looking import PictureModel
from saccade.api.matching import PictureMatcher
from saccade.core.errors import SaccadeError
from saccade.models import Captioner, Matcher, Model, find_model, load_model

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
    if _may_be_on_the_hub(str(folder)):
        model: Model = Model.from_pretrained(str(folder))
        door = _door(type(model), folder, kind)
    else:
        door = _door(find_model(folder)[1], folder, kind)  # told before the weights are read
        model = load_model(folder)
    return door(model.to(device).eval())


def _may_be_on_the_hub(name: str) -> bool:
    """Names of the hub are OWNER/NAME; so are folders, and one in runs/ or beside others is a folder, there or not."""
    owner = name.partition("/")[0]
    return name.count("/") == 1 and not name.startswith((".", "/")) and owner != "runs" and not Path(owner).exists()


def _door(model: type[Model], folder: Path | str, kind: type[PictureModel[Any]]) -> type[PictureModel[Any]]:
    door = next((door for wanted, door in DOORS.items() if issubclass(model, wanted)), None)
    if door is None or not issubclass(door, kind):
        raise SaccadeError(f"{folder} holds a model of {model.name}, which {ASK.get(model.task, 'cannot be asked so')}")
    return door
