"""Who takes part: runs of the same settings are one contender with several seeds, named by what sets it apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from saccade.core.errors import SaccadeError
from saccade.data import DataConfig
from saccade.lab.claims.plan import settings_that_matter
from saccade.models import Matcher, find_model
from saccade.training.run import CONFIG, load_run_config, run_config


@dataclass(frozen=True)
class Contender:
    """One row of the table."""

    system: str
    variant: str  # what sets it apart from the system's recipe (`pool=mean`), or the name it was given; may be empty
    folders: tuple[str, ...]  # one a seed

    @property
    def name(self) -> str:
        return f"{self.system} ({self.variant})" if self.variant else self.system


@dataclass(frozen=True)
class Entered:
    """Who takes part, on which data, and how many runs below the folders do not, since theirs are other data."""

    contenders: tuple[Contender, ...]
    data: DataConfig
    left_out: int


def choose_contenders(
    folders: Sequence[str], named: Mapping[str, Sequence[str]], below: Sequence[Path], data_name: str | None
) -> Entered:
    """Models by their folders, groups with a name of their own, and every finished run below some folders.

    Raises: SaccadeError if one is no matcher, if those that were named learned from different data and `data_name` does
    not say which to take, or if there is none at all.
    """
    chosen = [*folders, *(member for members in named.values() for member in members)]
    for folder in folders:
        find_model(folder, Matcher)
    for name, members in named.items():
        for folder in members:
            try:
                find_model(folder, Matcher)
            except SaccadeError as error:
                raise SaccadeError(f"{name}={','.join(members)} sets nothing of the data, and {error}") from error
    data = check_same_data(chosen) if data_name is None else None
    found = [run for folder in below for run in finished_runs(folder)]
    kept, shared = share_data(found, data_name or (data.name if data else None))
    if not kept and not chosen:
        what = f" on {data_name}" if data_name else ""
        raise SaccadeError(
            f"there is no finished run of a matching model{what} below {', '.join(map(str, below)) or 'runs'}: train "
            "one (`saccade train scan data=world`), or name run or model folders"
        )
    contenders = group_runs([*folders, *kept], named)
    return Entered(tuple(contenders), data or shared or DataConfig(), len(found) - len(kept))


def finished_runs(folder: Path | str) -> list[str]:
    """Every run of a matcher below a folder that was trained to its end and kept its best model, in order of name."""
    if not Path(folder).is_dir():
        raise SaccadeError(f"{folder} is not a folder of runs")
    found = []
    for path in sorted(Path(folder).rglob(CONFIG)):
        run = path.parent
        trained = (run / "last").exists() or not (run / "last.ckpt").exists()
        if trained and (run / "best").is_dir() and _is_matcher(run):
            found.append(str(run))
    return found


def _is_matcher(run: Path) -> bool:
    try:
        find_model(run, Matcher)
    except SaccadeError:
        return False
    return True


def share_data(runs: Sequence[str], name: str | None) -> tuple[list[str], DataConfig | None]:
    """The runs trained on the same data: those called `name`, else those that most of them were trained on."""
    by_run = {run: load_run_config(run).data for run in runs}
    known = Counter(_data_key(data) for data in by_run.values() if name in (None, data.name))
    if not known:
        return [], None
    key = known.most_common(1)[0][0]
    kept = [run for run in runs if _data_key(by_run[run]) == key]
    return kept, by_run[kept[0]]


def check_same_data(folders: Sequence[str]) -> DataConfig | None:
    """The data of the runs among these folders, which must be the same; models that are no runs do not say theirs."""
    runs = [folder for folder in folders if (Path(folder) / CONFIG).exists()]
    configs = [load_run_config(run).data for run in runs]
    for run, data in zip(runs, configs, strict=True):
        if _data_key(data) != _data_key(configs[0]):
            raise SaccadeError(
                f"{run} was trained on {_describe(data)}, {runs[0]} on {_describe(configs[0])}: give data=… (and "
                "root=…) to compare them all on one data set"
            )
    return configs[0] if configs else None


def _data_key(data: DataConfig) -> DataConfig:
    """What makes data the same for a comparison: not where they lie, who saw them, or how many were trained on."""
    plain = DataConfig()
    return replace(
        data,
        root=None,
        extractor=plain.extractor,
        limit=None,
        train_split=plain.train_split,
        dev_split=plain.dev_split,
        test_split=plain.test_split,
    )


def _describe(data: DataConfig) -> str:
    return f"{data.name} (pictures={data.pictures} seed={data.seed})" if data.name == "world" else data.name


def group_runs(folders: Sequence[str], named: Mapping[str, Sequence[str]] | None = None) -> list[Contender]:
    """Runs that differ by their seed alone together, models that are no runs each alone, named groups as given.

    A variant's name gives the settings in which it is not its system's recipe, but none that all its kin share.
    """
    runs = [folder for folder in dict.fromkeys(folders) if (Path(folder) / CONFIG).exists()]
    settings = {run: _dotted(settings_that_matter(load_run_config(run))) for run in runs}
    groups: dict[str, list[str]] = {}
    for run in runs:
        groups.setdefault(repr(settings[run]), []).append(run)
    contenders = []
    for members in groups.values():
        own = settings[members[0]]
        kin = [other for other in settings.values() if other["system"] == own["system"]]
        apart = {key: value for key, value in _changes(own).items() if any(s.get(key) != value for s in kin)}
        contenders.append(Contender(str(own["system"]), _words(apart), tuple(members)))
    for folder in dict.fromkeys(folders):
        if folder not in settings:
            contenders.append(Contender(find_model(folder, Matcher)[1].name, folder, (folder,)))
    for label, given in (named or {}).items():
        systems = dict.fromkeys(find_model(folder, Matcher)[1].name for folder in given)
        if len(systems) > 1:
            raise SaccadeError(f"{label}={','.join(given)} holds models of several systems ({', '.join(systems)})")
        contenders.append(Contender(next(iter(systems)), label, tuple(dict.fromkeys(given))))
    return contenders


def _changes(settings: Mapping[str, Any]) -> dict[str, Any]:
    """In what a run is not its system's recipe for the data."""
    recipe = _dotted(settings_that_matter(run_config(settings["system"], [f"data={settings['data.name']}"])))
    return {key: value for key, value in settings.items() if recipe.get(key) != value}


def _dotted(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"model": {"pool": "mean"}} as {"model.pool": "mean"}."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _dotted(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _words(changes: Mapping[str, Any]) -> str:
    return " ".join(f"{key.rpartition('.')[2]}={_value(value)}" for key, value in changes.items())


def _value(value: Any) -> str:
    """As a user would write it: true, none, 0.2."""
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
