"""Where do words attend? The pointing game on Flickr8k's dev split: writes docs/results/pointing.{md,json}.

    python scripts/results_pointing.py MODEL … --root data/flickr8k [--photos 1000] [--device cpu]

For every phrase of Flickr30k Entities with a box, the last word of the phrase is looked up in the model's alignment:
the middle of the region it attends to most should lie in a box of the phrase. No model is trained with these boxes as
targets of its words; the detector behind some extractors was trained on boxes of the train split.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track

from saccade.core.files import write_json, write_text
from saccade.data.datasets.entities import EntityPhrase, EntitySentence, read_entities
from saccade.metrics.pointing import inside, pointing_chance, points_at
from saccade.tasks.predict import load

MIDDLE = np.array([0.5, 0.5])
console = Console()


def place(sentence: EntitySentence, phrase: EntityPhrase, tokens: tuple[str, ...]) -> int | None:
    """Where the last word of a phrase stands among the tokens; None where the tokeniser cut it otherwise."""
    words = [word.lower() for word in sentence.text.split()]
    last = phrase.first_word + len(phrase.words) - 1
    before = words[:last].count(words[last])
    found = [n for n, token in enumerate(tokens) if token == words[last]]
    return found[before] if before < len(found) else None


@torch.no_grad()
def measure(name: str, root: Path, photos: int, device: str) -> dict[str, float]:
    model = load(name, device)
    hits: list[bool] = []
    middle: list[bool] = []
    random: list[float] = []
    for picture in track(list(read_entities(root, "dev"))[:photos], name, console=console, transient=True):
        regions = model.extract([root / "images" / picture.id])
        code, boxes = model.model.encode_images(regions), regions.boxes[0].cpu().numpy()
        for sentence in picture.sentences:
            texts = model.read(sentence.text)
            weights = model.model.align(code, model.model.encode_texts(texts)).weights[0].cpu().numpy()
            for phrase in sentence.phrases:
                truth = np.asarray(picture.boxes.get(phrase.chain, ()))
                word = place(sentence, phrase, texts.words[0])
                if word is None or not len(truth):
                    continue
                hits.append(points_at(weights[word], boxes, truth))
                middle.append(inside(MIDDLE, truth))
                random.append(pointing_chance(boxes, truth))
    count = len(hits)
    return {
        "words": count,
        "hits": 100 * sum(hits) / count,
        "random": 100 * sum(random) / count,
        "middle": 100 * sum(middle) / count,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="run or model folders, or models of the package")
    parser.add_argument("--root", type=Path, default=Path("data/flickr8k"))
    parser.add_argument("--photos", type=int, default=1000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    arguments = parser.parse_args()
    found = {Path(m).name: measure(m, arguments.root, arguments.photos, arguments.device) for m in arguments.models}
    first = next(iter(found.values()))
    rows = [f"| {name} | {f['hits']:.1f} | {f['random']:.1f} |" for name, f in found.items()]
    command = f"python scripts/results_pointing.py {' '.join(found)} --photos {arguments.photos}"
    page = f"""# Where words attend

The pointing game on {arguments.photos:,} photos of Flickr8k's dev split: of the {first["words"]:,} phrases that have a
box, how many of their last words attend most to a region whose middle lies in a box of the phrase, in per cent. Beside
it a region of the same extractor drawn at random. Pointing at the middle of the photo finds {first["middle"]:.1f}.

| model | finds its thing | random region |
|---|---:|---:|
{chr(10).join(rows)}

The models were never given boxes of words: they learned from photos and captions alone. A grid that was trained along
(`scan-flickr8k`) matches well and points poorly: the receptive fields of its cells reach far beyond their borders, so
a word can match almost anywhere near its thing. Models on regions of the detector, each of which is a thing, remain to
be measured.

Made by `{command}`.
"""
    write_text(arguments.out / "pointing.md", page)
    write_json(arguments.out / "pointing.json", {"command": command, "results": found})
    console.print(page)


if __name__ == "__main__":
    main()
