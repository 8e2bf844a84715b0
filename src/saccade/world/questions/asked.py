"""The questions of a split, asked once: a picture's take a hundredth of a second, and every run wants those of all.

They are kept in the cache by what they hang on: the world, the split, and the world's code and tables.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from saccade.batch.programs import Step
from saccade.core.cache import cached, close_to_others
from saccade.core.files import only_one, read_json, write_text
from saccade.world.questions.make import Question, ask, foils
from saccade.world.sample import Wish
from saccade.world.scene import Scene
from saccade.world.store import Split, WorldConfig, in_processes

CHUNK = 50  # pictures that a process is given at once


def ask_all(part: Split, config: WorldConfig) -> list[tuple[Question, ...]]:
    """The questions on each picture of a split of this world."""
    key = hashlib.sha256(f"{config.digest()} {part.name} {_code()}".encode()).hexdigest()[:16]
    path = cached("world", "questions", f"{key}.json")
    with only_one(path):
        if not path.exists():
            wish = config.wish(part.name)
            foils(wish)  # drawn here, once, before there are other processes
            jobs = [
                ([part.scene(i) for i in range(n, min(n + CHUNK, len(part)))], wish) for n in range(0, len(part), CHUNK)
            ]
            write_text(path, json.dumps([own for some in in_processes(ask_some, jobs) for own in some]))
            close_to_others(path)
    return [tuple(_question(*one) for one in own) for own in read_json(path)]


def ask_some(scenes: Sequence[Scene], wish: Wish) -> list[tuple[Question, ...]]:
    return [ask(scene, wish) for scene in scenes]


def _question(kind: str, text: str, program: list[tuple[str, list[int], str]], answer: str) -> Question:
    return Question(kind, text, tuple(Step(op, tuple(inputs), word) for op, inputs, word in program), answer)


@cache
def _code() -> str:
    own = Path(__file__).parent
    files = sorted(path for folder in (own.parent, own) for path in folder.iterdir() if path.suffix in (".py", ".yaml"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
