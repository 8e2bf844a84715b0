"""Models of the Hugging Face hub by name, `OWNER/NAME`: asked once with a short timeout, never for what looks local."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from saccade.core.errors import SaccadeError

PREFIX = "hf:"
TIMEOUT = 5.0  # seconds for the hub to answer at all
FILES = (
    "*.json",
    "merges.txt",
    "README.md",
    "model.safetensors",
    "model-*.safetensors",
)  # no pickles, no weights of other tools

DUAL_ENCODERS = {  # of transformers, which are matchers here: what `model_type` says → the class
    "clip": "CLIPModel",
    "metaclip_2": "MetaClip2Model",
    "siglip": "SiglipModel",
    "siglip2": "Siglip2Model",
    "colpali": "ColPaliForRetrieval",
}


def is_dual(described: object) -> bool:
    """Whether a config.json is that of a dual encoder of transformers."""
    return isinstance(described, dict) and described.get("model_type") in list(DUAL_ENCODERS)


def looks_local(name: str) -> bool:
    """Whether a name is a path: it begins like one, is one or stands in a folder that is there, is in runs/, or is not
    of the form OWNER/NAME.
    """
    owner = name.partition("/")[0]
    return (
        name.startswith((".", "/", "~"))
        or re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", name) is None
        or owner == "runs"
        or Path(owner).exists()
    )


@cache
def hub_folder(name: str, **options: Any) -> Path:
    """The folder of the model OWNER/NAME in the hub's cache, fetched if it is not there; `options` are the hub's own.

    Raises: SaccadeError if the hub has none, or cannot be asked and none was fetched before.
    """
    from huggingface_hub import HfApi, snapshot_download  # its client takes long to import, and few models are there
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    if looks_local(name):
        raise SaccadeError(f'"{name}" is no name of the hub, OWNER/NAME was expected, or it is a folder here')
    why = ""
    if not options.get("local_files_only"):
        asked = {key: value for key, value in options.items() if key in ("revision", "token")}
        try:
            HfApi().model_info(name, timeout=TIMEOUT, **asked)  # one question: snapshot_download would ask six times
            return Path(snapshot_download(name, allow_patterns=list(FILES), **options))
        except (RepositoryNotFoundError, GatedRepoError) as error:
            raise SaccadeError(f'the model hub has no "{name}" that this machine may read') from error
        except Exception as error:  # the hub's errors are many
            why = f" ({first_line(error)})"
    try:
        return Path(snapshot_download(name, allow_patterns=list(FILES), **{**options, "local_files_only": True}))
    except Exception as error:
        raise SaccadeError(
            f'"{name}" was never fetched from the model hub, and the hub cannot be asked now{why}; '
            f"for a folder on this machine, give its path (./{name})"
        ) from error


def hub_name(folder: Path) -> str | None:
    """OWNER/NAME of a folder in the hub's cache; None if it is no such folder."""
    found = re.search(r"/models--([\w.-]+?)--([\w.-]+)/snapshots/[0-9a-f]+$", folder.absolute().as_posix())
    return f"{found[1]}/{found[2]}" if found else None


def model_folder(place: str) -> Path:
    """A folder on this machine by its path, or that of a model of the hub by its name.

    Raises: SaccadeError if there is neither.
    """
    folder = Path(place).expanduser()
    if folder.is_dir():
        return folder
    if looks_local(place):
        raise SaccadeError(f"there is no folder {folder}")
    return hub_folder(place)


def first_line(error: Exception) -> str:
    """The first line of what a library says, shortened."""
    text = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".:")
    return text if len(text) <= 160 else text[:160] + "…"
