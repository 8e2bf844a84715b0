"""Configurations: what is accepted, what is refused, and in which words."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from saccade.core.config import from_dict, load_yaml, override, save_yaml, to_dict, update
from saccade.core.errors import SaccadeError


@dataclass(frozen=True)
class Section:
    name: str = "scan"
    dim: int = 1024
    rate: float = 2e-4
    bidirectional: bool = True
    pool: Literal["logsumexp", "mean", "no"] = "mean"


@dataclass(frozen=True)
class Other:
    rate: float = 0.1
    root: Path = Path("photos")
    label: str | None = None
    limit: int | str = 5
    sizes: tuple[int, ...] = (1, 2)
    pair: tuple[int, float] = (1, 0.5)
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Whole:
    model: Section = field(default_factory=Section)
    other: Other = field(default_factory=Other)
    extra: Section | None = None
    seed: int = 0
    free: Any = None


def refused(words: list[str]) -> str:
    with pytest.raises(SaccadeError) as caught:
        override(Whole(), words)
    return str(caught.value)


@pytest.mark.parametrize(
    ("word", "path", "value"),
    [
        ("seed=7", "seed", 7),
        ("model.dim=256", "model.dim", 256),
        ("dim=256", "model.dim", 256),  # only one section has it
        ("model=vse", "model.name", "vse"),  # a section is chosen by its name
        ("model.rate=2e-4", "model.rate", 2e-4),  # YAML 1.1 reads this one as text
        ("model.rate=1", "model.rate", 1.0),
        ("bidirectional=false", "model.bidirectional", False),
        ("pool=logsumexp", "model.pool", "logsumexp"),
        ("pool=no", "model.pool", "no"),  # not False
        ("name=no", "model.name", "no"),
        ("name=007", "model.name", "007"),
        ("name=2020-01-01", "model.name", "2020-01-01"),
        ('name="two words"', "model.name", "two words"),
        ("name=", "model.name", ""),
        ("root=@home/a=b", "other.root", Path("@home/a=b")),
        ("root=12", "other.root", Path("12")),
        ("label=null", "other.label", None),
        ("label=left", "other.label", "left"),
        ("limit=9", "other.limit", 9),
        ("limit=none", "other.limit", "none"),
        ("sizes=[3, 4, 5]", "other.sizes", (3, 4, 5)),
        ("sizes=3", "other.sizes", (3,)),
        ("pair=[2, 3]", "other.pair", (2, 3.0)),
        ("tags=[a, b]", "other.tags", ("a", "b")),
        ("free={a: 1}", "free", {"a": 1}),
    ],
)
def test_a_word_sets_one_field_in_its_own_type(word: str, path: str, value: object) -> None:
    config: Any = override(Whole(), [word])
    for part in path.split("."):
        config = getattr(config, part)
    assert config == value
    assert type(config) is type(value)


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("dimm=3", 'there is no setting "dimm"; did you mean "dim"?'),
        ("model.dimm=3", 'there is no setting "model.dimm"; did you mean "model.dim"?'),
        ("zzzzzz=3", 'there is no setting "zzzzzz"'),
        ("rate=3", '"rate" is ambiguous: give one of model.rate, other.rate'),
        ("dim", '"dim" is not of the form key=value'),
        ("=3", '"=3" is not of the form key=value'),
        ("dim=[1", '"dim=[1": the value is not valid YAML'),
        ("dim=big", "model.dim must be a whole number, not 'big'"),
        ("dim=1.5", "model.dim must be a whole number, not 1.5"),
        ("dim=true", "model.dim must be a whole number, not True"),
        ("model.rate=fast", "model.rate must be a number, not 'fast'"),
        ("model.rate=true", "model.rate must be a number, not True"),
        ("bidirectional=1", "model.bidirectional must be true or false, not 1"),
        ("pool=maen", "model.pool must be one of logsumexp, mean, no, not 'maen'; did you mean \"mean\"?"),
        ("pair=[1, 2, 3]", "other.pair needs 2 values, not 3"),
        ("sizes=[1, x]", "other.sizes must be a whole number, not 'x'"),
        ("limit=[1]", "other.limit must be a whole number, not [1]"),
        ("other=5", "other must be a mapping of keys to values, not 5"),
    ],
)
def test_a_wrong_word_is_refused_in_one_sentence(word: str, sentence: str) -> None:
    assert refused([word]) == sentence


def test_words_apply_in_order_and_leave_the_original_alone() -> None:
    before = Whole()
    after = override(before, ["seed=1", "model=vse", "seed=2", "other.rate=0.5"])
    assert (after.seed, after.model.name, after.other.rate) == (2, "vse", 0.5)
    assert before == Whole()


def test_unknown_keys_of_a_mapping_are_named_with_their_path_and_the_nearest_name() -> None:
    with pytest.raises(SaccadeError, match=r'"model\.naem"; did you mean "name"\? \(there are: name, dim, rate'):
        from_dict(Whole, {"model": {"naem": "x"}})
    with pytest.raises(SaccadeError, match='there is no setting "3"'):
        from_dict(Whole, {3: "x"})  # type: ignore[dict-item]


@pytest.mark.parametrize("values", [None, [1], "scan"])
def test_something_that_is_no_mapping_is_refused(values: Any) -> None:
    with pytest.raises(SaccadeError, match="must be a mapping of keys to values"):
        from_dict(Whole, values)
    with pytest.raises(SaccadeError, match="model must be a mapping of keys to values"):
        update(Whole(), {"model": values})


def test_an_absent_section_can_be_filled() -> None:
    assert from_dict(Whole, {"extra": {"dim": 3}}).extra == Section(dim=3)
    assert update(Whole(extra=Section()), {"extra": None}).extra is None


def test_yaml_brings_back_the_same_configuration(tmp_path: Path) -> None:
    config = override(
        Whole(), ["name=Größe", "model.rate=1e-5", "root=a/b", "sizes=[]", "limit=none", "label=007", "seed=3"]
    )
    save_yaml(config, tmp_path / "config.yaml")
    assert from_dict(Whole, load_yaml(tmp_path / "config.yaml")) == config
    assert to_dict(config)["other"]["root"] == "a/b"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("seed: 1\nmodel: [", "is not valid YAML at line 2"),
        ("- 1\n- 2\n", "must hold a mapping of settings"),
        ("", "must hold a mapping of settings"),
    ],
)
def test_a_bad_yaml_file_is_named(tmp_path: Path, content: str, sentence: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(content)
    with pytest.raises(SaccadeError) as caught:
        load_yaml(path)
    assert str(caught.value) == f"{path} {sentence}"


def test_yaml_runs_no_code(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"seed: !!python/object/apply:os.mkdir ['{tmp_path}/made']\n")
    with pytest.raises(SaccadeError, match="is not valid YAML"):
        load_yaml(path)
    assert not (tmp_path / "made").exists()
