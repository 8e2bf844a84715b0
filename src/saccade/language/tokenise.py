"""Sentences to words, as the Penn Treebank splits them: "the dog's ball isn't red." → the dog 's ball is n't red ."""

from __future__ import annotations

import re

# A word may hold inner apostrophes, hyphens and periods ("t-shirt", "u.s"); clitics are split off afterwards.
_TOKEN = re.compile(r"\d+(?:[.,:]\d+)*\w*|\w+(?:[-'’.]\w+)*|\.\.+|[^\w\s]", re.UNICODE)
_CLITIC = re.compile(r"^(.+?)(n't|n’t|['’](?:s|m|d|ll|re|ve))$")


def tokenise(text: str) -> list[str]:
    """Lower-cased words and punctuation marks, any script."""
    tokens: list[str] = []
    for token in _TOKEN.findall(text.lower()):
        split = _CLITIC.match(token)
        tokens += [*split.groups()] if split else [token]
    return tokens
