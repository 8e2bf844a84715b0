"""`saccade caption`: photos, folders and stores to captions, files and pictures, and a sentence for each mistake."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.core.errors import SaccadeError
from saccade.data import FeatureStore, StoreWriter
from saccade.decoding import DecodingConfig
from saccade.language import Vocabulary
from saccade.models import Adaptive, AdaptiveConfig, Scan, ScanConfig
from saccade.tasks.captioning import LengthPenalty, Strategy, chosen_decoding
from saccade.tasks.captioning.predict import PictureCaptioner, coco_id
from saccade.tasks.predict import load
from toy_runs import saccade_command


@pytest.fixture
def place(vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a captioner that knows the world's extractor, three photos and a store of what it saw of them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    model = Adaptive(AdaptiveConfig(256, 8, 16, 6), vocabulary, "world")
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(0.7 * torch.randn_like(weight))
        model.out.bias[2] = -50.0  # never <end> before the longest length: something to draw
    model.save_pretrained("model")
    Path("photos/more").mkdir(parents=True)
    for name in ("000000000007.jpg", "b.png", "more/b.png"):
        seed = sum(map(ord, name))
        Image.fromarray(np.random.default_rng(seed).integers(0, 255, (60, 80, 3), np.uint8)).save(f"photos/{name}")
    return tmp_path


NAMES = ["000000000007.jpg", "b.png", "more/b.png"]


def captioner() -> PictureCaptioner:
    return load("model", kind=PictureCaptioner)


def run(*words: object) -> int:
    return saccade_command("caption", *words, "--model", "model", "--max-length", 6)


def test_a_folder_becomes_a_table_and_cocos_results(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("photos", "--json", "said.json") == 0
    printed = capsys.readouterr().out
    wanted = [said.text for said in captioner().caption([place / "photos" / name for name in NAMES], max_length=6)]
    found = json.loads(Path("said.json").read_text())
    assert found == [{"image_id": i, "caption": c} for i, c in zip([7, *NAMES[1:]], wanted, strict=True)]
    assert all(name in printed for name in NAMES)
    assert all(text in printed for text in wanted)
    assert "said.json" in printed


def test_a_photo_is_captioned_as_decoding_asks(place: Path) -> None:
    photo = place / "photos" / "b.png"
    for options, settings in (
        (["--strategy", "greedy"], {"strategy": "greedy"}),
        (["--num-beams", "2", "--no-repeat-ngram-size", "1"], {"num_beams": 2, "no_repeat_ngram_size": 1}),
        (["--num-beams", "3", "--length-penalty", "average"], {"num_beams": 3, "length_penalty": "average"}),
    ):
        assert run(photo, "--json", "said.json", *options) == 0
        wanted = captioner().caption(photo, max_length=6, **settings)[0].text
        assert json.loads(Path("said.json").read_text()) == [{"image_id": "b.png", "caption": wanted}]


def test_samples_are_several_and_the_same_for_the_same_seed(place: Path) -> None:
    found = []
    for seed in (1, 1, 2):
        assert run("photos/b.png", "-n", 4, "--top-p", 0.9, "--seed", seed, "--json", "said.json") == 0
        found.append(json.loads(Path("said.json").read_text()))
    assert [row["image_id"] for row in found[0]] == ["b.png"] * 4
    assert found[0] == found[1] != found[2]
    assert run("photos/b.png", "--strategy", "diverse", "--num-beams", 3, "--json", "said.json") == 0
    diverse = [row["caption"] for row in json.loads(Path("said.json").read_text())]
    assert len(diverse) == 3
    assert len(set(diverse)) > 1


def test_a_store_says_what_its_photos_say(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [place / "photos" / name for name in NAMES]
    seen = captioner().extract(paths)
    with StoreWriter(Path("store"), 256, "float32", "world") as writer:
        for row, name in enumerate(NAMES):
            real = seen.mask[row]
            writer.append(name, seen.features[row][real].numpy(), seen.boxes[row][real].numpy())
    assert len(FeatureStore.open("store")) == 3
    assert run("store", "--json", "store.json") == 0
    assert run("photos", "--json", "photos.json") == 0
    assert Path("store.json").read_text() == Path("photos.json").read_text()
    capsys.readouterr()
    assert run("store", "photos") == 2
    assert 'two of the pictures have the name "000000000007.jpg"' in capsys.readouterr().err
    assert run("store", "--attention", "why") == 2
    assert "store holds none: give the photos" in capsys.readouterr().err


def test_attention_is_one_file_a_folder_or_a_page(place: Path) -> None:
    assert run("photos/b.png", "--attention", "why.png") == 0
    assert Image.open("why.png").width > 500
    assert run("photos", "--attention", "strips") == 0
    assert sorted(path.name for path in Path("strips").iterdir()) == ["000000000007.png", "b.png", "more-b.png"]
    assert run("photos", "--attention", "why.html") == 0
    page = Path("why.html").read_text()
    assert all(name in page for name in NAMES)
    assert "sentinel: the share of the attention" in page
    assert "the surer the captioner was" in page


def test_a_broken_photo_is_told_and_the_others_go_on(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = Path("photos/b.png").read_bytes()
    Path("photos/cut.png").write_bytes(good[: len(good) // 2])
    Path("photos/words.jpg").write_text("not a picture")
    assert run("photos", "--json", "said.json", "--attention", "strips") == 2
    told = capsys.readouterr()
    assert [row["image_id"] for row in json.loads(Path("said.json").read_text())] == [7, *NAMES[1:]]
    assert len(list(Path("strips").iterdir())) == 3
    assert "error: photos/cut.png is a damaged or cut-off picture" in told.err
    assert "error: photos/words.jpg is not a picture" in told.err
    assert "2 of 5 pictures could not be read" in told.err
    assert run("photos/words.jpg", "--json", "none.json") == 2
    told = capsys.readouterr()
    assert told.err.count("\n") == 1
    assert not told.out
    assert not Path("none.json").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["gone.jpg"], "gone.jpg does not exist"),
        (["photos/b.png", "--model", "nothing"], "nothing is no model folder"),
        (["photos/b.png", "--model", "scan"], "scan holds a model of scan, which matches pictures with sentences"),
        (["photos", "--attention", "why.png"], "why.png is one file for 3 photos: name a folder, or a page (why.html)"),
        (["photos", "--attention", "why.pdf"], "a folder, or a file that ends in one of .png"),
        (["photos/b.png", "--strategy", "beam", "--top-k", "3"], "--top-k goes with --strategy sample"),
        (["photos/b.png", "--top-p", "1.5"], "top_p must be above 0 and at most 1"),
        (
            ["photos/b.png", "--num-return-sequences", "2", "--num-beams", "3"],
            "--num-beams goes with --strategy beam or diverse",
        ),
        (["photos/b.png", "--strategy", "greedy", "--num-return-sequences", "2"], "has one caption a picture"),
        (
            ["photos/b.png", "--strategy", "beam", "--num-return-sequences", "9"],
            "--num-return-sequences 9 of 5 beams: give --num-beams 9",
        ),
        (["photos/b.png", "--temperature", "nan"], "temperature must be above 0, not nan"),
        (["photos/b.png", "--temperature", "inf"], "temperature must be above 0, not inf"),
        (["photos/b.png", "--model", "runs/typo"], "runs/typo is no model folder"),
        (["photos/b.png", "--json", "photos"], "photos is a folder, a file was expected"),
        (["photos/b.png", "--json", "photos/b.png/x.json"], "could not write photos/b.png/x.json: Not a directory"),
        (["empty"], "empty holds no pictures to caption"),
        (["other"], "reads features of 256 numbers, other has 9"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    words: list[str], sentence: str, place: Path, vocabulary: Vocabulary, capsys: pytest.CaptureFixture[str]
) -> None:
    Scan(ScanConfig(256, 4, 8), vocabulary, "world").save_pretrained("scan")
    with StoreWriter(Path("empty"), 256, "float32", "world"):
        pass
    with StoreWriter(Path("other"), 9, "float32") as writer:
        writer.append("x", np.zeros((1, 9), np.float32), np.array([[0, 0, 1, 1]], np.float32))
    model = [] if "--model" in words else ["--model", "model"]
    assert saccade_command("caption", *words, *model) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert sentence in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("words", [("--seed", "9" * 30), ("--num-beams", "100000"), ("--num-return-sequences", "0")])
def test_absurd_numbers_are_refused_before_the_memory_is_full(words: tuple[str, str], place: Path) -> None:
    assert run("photos/b.png", *words) == 2


def test_a_file_that_cannot_be_written_is_told_before_the_first_caption(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PictureCaptioner, "caption_places", lambda *_: pytest.fail("captioning began"))
    assert run("photos", "--json", "photos/b.png/said.json") == 2
    assert capsys.readouterr().err.startswith("error: could not write photos/b.png/said.json: ")


def test_a_captioner_explains_its_own_caption_or_a_given_one(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert saccade_command("explain", "photos/b.png", "--model", "model", "-o", "own.png") == 0
    own = captioner().caption("photos/b.png")[0]
    assert (
        f"{own.text}\nlog-probability {own.log_probability:.2f}; the picture is in own.png" in capsys.readouterr().out
    )
    assert saccade_command("explain", "photos/b.png", "a red zebra", "--model", "model", "-o", "given.png") == 0
    told = capsys.readouterr()
    assert "zebra" in told.err
    assert "zebra" not in told.out
    assert Image.open("given.png").size[0] > 500


def test_a_matcher_needs_a_sentence_and_captioners_do_not_score(
    place: Path, vocabulary: Vocabulary, capsys: pytest.CaptureFixture[str]
) -> None:
    Scan(ScanConfig(256, 4, 8), vocabulary, "world").save_pretrained("scan")
    assert saccade_command("explain", "photos/b.png", "--model", "scan") == 2
    assert "give one after the picture" in capsys.readouterr().err
    assert saccade_command("score", "photos/b.png", "-t", "a red cube", "--model", "model") == 2
    assert "which captions pictures (`saccade caption`)" in capsys.readouterr().err


def test_the_way_of_decoding_follows_from_the_options() -> None:
    base = DecodingConfig(strategy="greedy", num_beams=5)
    assert chosen_decoding(base) == DecodingConfig(strategy="greedy", num_beams=5, num_beam_groups=1)
    assert chosen_decoding(base, num_beams=3).strategy == "beam"
    assert chosen_decoding(base, num_beams=1).strategy == "greedy"
    assert chosen_decoding(base, length_penalty=LengthPenalty.wu).length_penalty == "wu"
    assert chosen_decoding(base, top_p=0.9).strategy == "sample"
    assert chosen_decoding(base, top_p=0.9).num_return_sequences == 5
    diverse = chosen_decoding(base, strategy=Strategy.diverse, num_beams=4)
    assert (diverse.strategy, diverse.num_beams, diverse.num_beam_groups) == ("diverse", 4, 4)
    with pytest.raises(SaccadeError, match="--length-penalty goes with --strategy beam or diverse"):
        chosen_decoding(base, strategy=Strategy.sample, length_penalty=LengthPenalty.wu)


def test_cocos_pictures_are_known_by_their_numbers() -> None:
    assert coco_id("COCO_val2014_000000391895.jpg") == 391895
    assert coco_id("val2017/000000000139.jpg") == 139
    assert coco_id("1000268201_693b08cb0e.jpg") == "1000268201_693b08cb0e.jpg"
