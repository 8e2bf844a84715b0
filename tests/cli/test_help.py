"""`saccade VERB --help` says what verbs.txt says, brackets included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from saccade.cli import VERBS, load_verb

Saccade = Callable[..., tuple[int, str, str]]


def test_brackets_in_the_help_of_an_option_are_no_markup(saccade: Saccade, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for verb, shown in (("refer", '{"photo.jpg": [[x1, y1, x2, y2], …]}'), ("detect", "[default: regions.png, or no ")):
        code, out, _ = saccade(verb, "--help")
        assert code == 0
        assert shown in " ".join(out.replace("│", " ").split())


@pytest.mark.parametrize("verb", VERBS)
def test_usage_has_each_bracket_and_ellipsis_once(verb: str) -> None:
    def usages(command: Any) -> list[str]:
        pieces = command.collect_usage_pieces(command.make_context(verb, [], resilient_parsing=True))
        return [*pieces, *(piece for below in getattr(command, "commands", {}).values() for piece in usages(below))]

    for piece in usages(load_verb(verb)):
        assert "[[" not in piece
        assert "{[" not in piece
        assert not piece.removesuffix("...").endswith((".]", ".}", "…}", "…]")), piece
