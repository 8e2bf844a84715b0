from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from saccade.tasks.matching.task import MatchingConfig
from saccade.training import TrainerConfig
from saccade.training.config import MAY_CHANGE
from saccade.training.run import BackboneConfig, run_config
from saccade.vision.augment import AugmentConfig
from saccade.vision.backbones.base import load_backbone

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")


SHOWN = {"None": "none", "True": "true", "False": "false", "0.0": "0"}


def rows(section: str) -> dict[str, str]:
    """The defaults that the tables of one section of the page give."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## )", PAGE, flags=re.MULTILINE | re.DOTALL)
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", text, flags=re.MULTILINE))


def defaults(*settings: type) -> dict[str, str]:
    plain = [f for s in settings for f in dataclasses.fields(s) if f.default is not dataclasses.MISSING]
    return {f.name: SHOWN.get(str(f.default), str(f.default)) for f in plain}


def test_the_page_has_every_setting_with_its_default() -> None:
    assert rows("Settings") == defaults(TrainerConfig)
    assert rows("From photos, the extractor included") == defaults(BackboneConfig, AugmentConfig, MatchingConfig)
    for name in MAY_CHANGE:
        assert f"`{name}`" in PAGE.split("Exempt are")[1].split("(With")[0]


def test_the_commands_on_photos_are_settings_that_hold() -> None:
    """Every `saccade train … data=flickr8k` of the page can be told, and says what the text says of it."""
    commands = re.findall(r"^saccade train (\w+) (data=flickr8k[^#\n]*)", PAGE, flags=re.MULTILINE)
    assert len(commands) >= 3
    runs = [run_config(system, words.split(" --out")[0].split()) for system, words in commands]
    assert [run.backbone.train for run in runs] == ["backbone.train=false" not in words for _, words in commands]
    for run in runs:
        assert run.task.items == "pictures"
        assert run.task.hard_negative_ramp_steps or run.task.loss == "contrastive"
        assert run.model.dropout
        assert run.trainer.average


def test_the_page_counts_the_parts_of_backbones() -> None:
    counts = {"efficientnet-lite0": 9, "efficientnet-lite2": 9, "mobilenet-v2": 9}
    counts |= {"dinov2-s": 14, "pplcnetv2": 5, "world": 6}
    for name, count in counts.items():
        assert len(load_backbone(name, pretrained=False).parts) == count
    side = load_backbone("efficientnet-lite0", pretrained=False).size
    assert f"{side * side * 3 / 1000:.0f} kB" == "151 kB"
    assert "151 kB each at 224" in " ".join(PAGE.split())


def test_the_example_of_a_task_works_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(compile(example, "docs/training.md", "exec"), {"__name__": "example"})
    assert "{'accuracy': 1.0}" in capsys.readouterr().out
    assert (tmp_path / "runs/line/best/model.pt").exists()
