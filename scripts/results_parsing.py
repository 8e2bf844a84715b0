"""How well are captions parsed? Flickr8k's dev split against Flickr30k Entities: writes docs/results/parsing.{md,json}.

    python scripts/results_parsing.py [PARSER …] --root data/flickr8k [--photos 1000]

People marked the noun phrases of these captions. A parser finds things: (a) is its noun the noun of a marked phrase,
(b) are its words exactly the marked words? The rules were written with captions of the train split in view.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console

from saccade.core.files import write_json, write_text
from saccade.data.datasets.photos.entities import EntitySentence, read_entities
from saccade.language import Parse, load_parser, tokenise
from saccade.language.caption_words import ADJECTIVES, BEFORE_NOUN_ONLY, OWNERS, PRONOUNS, RELATIVES
from saccade.language.parsing.scene_graph import FRAMES
from saccade.language.phrases import AFTER_NOUN, ENDS_NOUN

console = Console()
NO_NOUN = (
    PRONOUNS
    | OWNERS
    | RELATIVES
    | {"there", "one", "other", "another", "two", "three", "each", "both", "all", "some", "many", "few", "himself"}
)
Marked = tuple[tuple[str, ...], set[int], set[tuple[int, int]]]  # tokens, places of nouns, spans of phrases


def nouns(words: Sequence[str]) -> list[int]:
    """Where the nouns of a marked phrase stand: the last word before what follows a noun, of each part of "and".

    Of "a group of people" it is "people", of "a glass of water" it is "glass"; a phrase of pronouns has none.
    """
    start, stop = 0, len(words)
    while "of" in words[start:stop]:
        place = start + list(words[start:stop]).index("of")
        if place == start or words[place - 1] not in FRAMES:
            stop = place
        else:
            start = place + 1
    stop = next((n for n in range(start + 1, stop) if words[n] in ENDS_NOUN), stop)
    while stop > start + 1 and words[stop - 1] in AFTER_NOUN:  # "its mouth open"
        stop -= 1
    ends = [n for n in range(start, stop) if n + 1 == stop or words[n + 1] in ("and", "or", ",")]
    found = [n for n in ends if words[n] not in NO_NOUN and any(map(str.isalpha, words[n]))]
    last = found[-1:] if found and found[-1] == stop - 1 else []
    return last + [n for n in found if n not in last and words[n] not in ADJECTIVES - BEFORE_NOUN_ONLY]


def read_marked(sentence: EntitySentence) -> Marked | None:
    """Places among our tokens; None where they do not follow the blanks of the text."""
    parts = [tokenise(word) for word in sentence.text.split()]
    tokens = tuple(token for part in parts for token in part)
    if tokens != tuple(tokenise(sentence.text)):
        return None
    first = [0]
    for part in parts:
        first.append(first[-1] + len(part))
    heads: set[int] = set()
    spans = set()
    for phrase in sentence.phrases:
        start, end = first[phrase.first_word], first[phrase.first_word + len(phrase.words)]
        found = [start + n for n in nouns(tokens[start:end])]
        if found:
            heads |= set(found)
            spans.add((start, end))
    return tokens, heads, spans


class Count:
    """How many were marked, found, and both."""

    def __init__(self) -> None:
        self.marked = self.found = self.both = 0

    def add(self, marked: set[object], found: set[object]) -> None:
        self.marked, self.found = self.marked + len(marked), self.found + len(found)
        self.both += len(marked & found)

    def figures(self) -> dict[str, float]:
        precision, recall = self.both / max(self.found, 1), self.both / max(self.marked, 1)
        return {"precision": precision, "recall": recall, "f1": 2 * precision * recall / max(precision + recall, 1e-9)}


def links(parse: Parse) -> set[object]:
    """Joined words, whichever is the head; marks of punctuation left out."""
    return {
        frozenset(pair) for pair in parse.links if "PUNCT" not in (parse.tags[pair[0] - 1], parse.tags[pair[1] - 1])
    }


def measure(name: str, texts: Sequence[str], marked: Sequence[Marked]) -> tuple[dict[str, object], list[Parse]]:
    parser = load_parser(name)
    parser.parse(["a dog"])  # whatever is loaded late
    start = time.process_time()
    parses = parser.parse(texts)
    seconds = time.process_time() - start
    things, phrases = Count(), Count()
    for parse, (tokens, heads, spans) in zip(parses, marked, strict=True):
        assert parse.tokens == tokens
        things.add(set(heads), {o.place for o in parse.objects})
        phrases.add(set(spans), {(o.start, o.end) for o in parse.objects})
    rate = len(texts) / seconds
    return {
        "parser": parser.name,
        "nouns": things.figures(),
        "phrases": phrases.figures(),
        "captions_per_second": rate,
    }, parses


def agreement(first: Iterable[Parse], second: Iterable[Parse]) -> float:
    """Of the joined words of two parsers, in per cent, how many they have in common (F1)."""
    count = Count()
    for one, other in zip(first, second, strict=True):
        count.add(links(one), links(other))
    return 100 * count.figures()["f1"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parsers", nargs="*", default=["rules", "spacy"], help="as for `saccade parse --parser`")
    parser.add_argument("--root", type=Path, default=Path("data/flickr8k"))
    parser.add_argument("--split", default="dev")
    parser.add_argument("--photos", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    arguments = parser.parse_args()
    sentences = [
        s for p in list(read_entities(arguments.root, arguments.split))[: arguments.photos] for s in p.sentences
    ]
    read = [(s.text, read_marked(s)) for s in sentences]
    texts = [text for text, marked in read if marked is not None]
    marked = [m for _, m in read if m is not None]
    results, parsed = [], []
    for name in arguments.parsers:
        found, parses = measure(name, texts, marked)
        results.append(found)
        parsed.append(parses)
    shared = {
        f"{results[i]['parser']} and {results[j]['parser']}": agreement(parsed[i], parsed[j])
        for i in range(len(parsed))
        for j in range(i)
    }
    command = f"python scripts/results_parsing.py {' '.join(arguments.parsers)} --photos {arguments.photos}"
    text = page(results, shared, len(texts), sum(len(h) for _, h, _ in marked), command, arguments.split)
    console.print(text)
    write_text(arguments.out / "parsing.md", text)
    write_json(
        arguments.out / "parsing.json",
        {"command": command, "captions": len(texts), "results": results, "links_in_common": shared},
    )


def page(
    results: list[dict[str, object]], shared: dict[str, float], captions: int, count: int, command: str, split: str
) -> str:
    def cells(figures: object) -> str:
        assert isinstance(figures, dict)
        return " | ".join(f"{100 * figures[key]:.1f}" for key in ("precision", "recall", "f1"))

    rows = [
        f"| `{r['parser']}` | {cells(r['nouns'])} | {cells(r['phrases'])} | {r['captions_per_second']:,.0f} |"
        for r in results
    ]
    common = [f"- {names}: {value:.1f} %" for names, value in shared.items()]
    return f"""# Parsing captions

Flickr8k's {split} split, {captions:,} captions, against the noun phrases that people marked in them (Flickr30k
Entities): precision, recall and F1 in per cent of

- **nouns**: things found whose noun is the noun of a marked phrase ({count:,} of them; pronouns are left out),
- **phrases**: things found whose words are exactly those marked.

| parser | nouns: P | R | F1 | phrases: P | R | F1 | captions a second |
|---|---:|---:|---:|---:|---:|---:|---:|
{chr(10).join(rows)}

Captions a second are of processor time on one core, each caption parsed for the first time; reading the scene graph
off the tree is not counted in.

Joined words that two parsers have in common, whichever is the head and without punctuation (F1):

{chr(10).join(common)}

The rules were written with captions of the train split in view and with spaCy's trees beside them; these captions were
only measured. Which word of a marked phrase is its noun ("people" in "a group of people") is decided by a rule,
the same for every parser. Where parsers join words differently it is most often the place of a preposition: "sits on a
bench near a tree" puts the bench or the sitter near the tree, and "in front of" is one preposition only to the rules.
[Parsing](../parsing.md) says what the parsers are.

Made by `{command}`.
"""


if __name__ == "__main__":
    main()
