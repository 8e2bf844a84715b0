"""What a user can get wrong: each is one sentence on standard error, exit code 2, and nothing half-written."""

from __future__ import annotations

import base64
import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import saccade.core.files
from saccade.cli import main
from saccade.language import Vocabulary
from saccade.models import Scan, ScanConfig, Vse, VseConfig

WORDS = ("<pad>", "<start>", "<end>", "<unk>", "a", "red", "cube")


@dataclass
class Place:
    """A folder with a good model, a good picture and good features, for spoiling."""

    folder: Path
    golden: Path

    @property
    def model(self) -> Path:
        return self.folder / "model"

    @property
    def picture(self) -> Path:
        return self.folder / "picture.png"

    @property
    def features(self) -> Path:
        return self.folder / "precomp"

    def explain(self, *changes: str) -> list[str]:
        return [
            "explain",
            str(self.picture),
            "a red cube",
            "--model",
            str(self.model),
            "-o",
            self.path("why.png"),
            *changes,
        ]

    def path(self, name: str) -> str:
        return str(self.folder / name)


@pytest.fixture
def place(tmp_path: Path, golden: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    here = Place(tmp_path, golden)
    Scan(ScanConfig(region_dim=256, word_dim=4, dim=8), Vocabulary(WORDS), "world").save_pretrained(here.model)
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)).save(here.picture)
    here.features.mkdir()
    for split in ("train", "dev"):
        np.save(here.features / f"{split}_ims.npy", np.random.default_rng(1).normal(size=(4, 3, 8)).astype(np.float32))
        (here.features / f"{split}_caps.txt").write_text("a red cube\n" * 8, encoding="utf-8")
    return here


Spoil = Callable[[Place], list[str]]
CASES: dict[str, tuple[str, Spoil]] = {}


def case(sentence: str) -> Callable[[Spoil], Spoil]:
    """Register a way to go wrong: it spoils the place and returns the command; the sentence must hold these words."""

    def add(spoil: Spoil) -> Spoil:
        CASES[spoil.__name__] = (sentence, spoil)
        return spoil

    return add


def train(place: Place, *words: str) -> list[str]:
    settings = ["epochs=1", "batch_size=4", "dim=8", "word_dim=4", "min_count=1", "accelerator=cpu"]
    return ["train", "scan", "data=precomp", f"root={place.features}", "-o", place.path("run"), *settings, *words]


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


@case("model.dim must be at least 1, not 0")
def vectors_without_numbers(place: Place) -> list[str]:
    return train(place, "dim=0")


@case("no word of the training captions occurs task.min_count=999 times")
def words_that_are_all_too_rare(place: Place) -> list[str]:
    return train(place, "min_count=999")


@case("nowhere.png does not exist")
def missing_picture(place: Place) -> list[str]:
    return ["explain", "nowhere.png", "a red cube", "--model", str(place.model)]


@case("damaged or cut-off picture")
def corrupt_picture(place: Place) -> list[str]:
    rewrite(place.picture, lambda b: b[: len(b) // 2])
    return place.explain()


@case("is not a picture")
def text_for_a_picture(place: Place) -> list[str]:
    place.picture.write_text("hello")
    return place.explain()


@case("is empty")
def empty_picture(place: Place) -> list[str]:
    place.picture.write_bytes(b"")
    return place.explain()


@case("the text is empty")
def empty_caption(place: Place) -> list[str]:
    return ["explain", str(place.picture), "  ", "--model", str(place.model)]


@case('knows none of the words of "zebra okapi"')
def unknown_words_only(place: Place) -> list[str]:
    return ["score", str(place.picture), "-t", "zebra okapi", "--model", str(place.model)]


@case("is no model folder")
def missing_model(place: Place) -> list[str]:
    return place.explain("--model", place.path("nothing"))


@case("is not for this scan configuration")
def weights_of_another_model(place: Place) -> list[str]:
    Vse(VseConfig(256, 4, 9), Vocabulary(WORDS)).save_pretrained(place.path("vse"))
    shutil.copy(place.path("vse") + "/model.safetensors", place.model / "model.safetensors")
    return place.explain()


@case("damaged or cut short")
def weights_cut_short(place: Place) -> list[str]:
    rewrite(place.model / "model.safetensors", lambda b: b[:-50])
    return place.explain()


@case("is not valid JSON")
def broken_config_json(place: Place) -> list[str]:
    (place.model / "config.json").write_text("{")
    return place.explain()


@case("features whose maker is not known")
def model_without_an_extractor(place: Place) -> list[str]:
    shutil.rmtree(place.model)
    Scan(ScanConfig(256, 4, 8), Vocabulary(WORDS)).save_pretrained(place.model)
    return place.explain()


@case("an explanation is saved as one of .png")
def unknown_picture_format(place: Place) -> list[str]:
    return place.explain("-o", place.path("why.txt"))


@case('no model "scna"; did you mean "scan"?')
def misspelt_model(place: Place) -> list[str]:
    return ["train", "scna"]


@case('did you mean "epochs"?')
def misspelt_setting(place: Place) -> list[str]:
    return train(place, "epoch=3")


@case("must be a whole number")
def setting_of_the_wrong_type(place: Place) -> list[str]:
    return train(place, "dim=wide")


@case("must be one of logsumexp, mean, max, sum")
def setting_that_is_no_choice(place: Place) -> list[str]:
    return train(place, "pool=median")


@case("not valid YAML")
def broken_yaml(place: Place) -> list[str]:
    (place.folder / "settings.yaml").write_text("model: {dim: [")
    return train(place, "--config", place.path("settings.yaml"))


@case('no data set "wrold"; did you mean "world"?')
def misspelt_data_set(place: Place) -> list[str]:
    return ["train", "scan", "data=wrold"]


@case("train_ims.npy")
def missing_features(place: Place) -> list[str]:
    (place.features / "train_ims.npy").unlink()
    return train(place)


@case("train_ims.npy")
def truncated_npy(place: Place) -> list[str]:
    rewrite(place.features / "train_ims.npy", lambda b: b[:-100])
    return train(place)


@case("train_ims.npy")
def features_of_the_wrong_shape(place: Place) -> list[str]:
    np.save(place.features / "train_ims.npy", np.zeros((4, 8), np.float32))
    return train(place)


@case("train_ims.npy")
def nan_features(place: Place) -> list[str]:
    features = np.load(place.features / "train_ims.npy")
    features[2, 1, 3] = np.nan
    np.save(place.features / "train_ims.npy", features)
    return train(place)


@case("train_ims.npy")
def pickled_npy(place: Place) -> list[str]:
    np.save(place.features / "train_ims.npy", np.array([{}], dtype=object), allow_pickle=True)
    return train(place)


@case("not UTF-8")
def captions_in_another_encoding(place: Place) -> list[str]:
    (place.features / "train_caps.txt").write_bytes("ein grüner Würfel\n".encode("latin-1") * 8)
    return train(place)


@case("train_caps.txt")
def captions_that_do_not_divide(place: Place) -> list[str]:
    (place.features / "train_caps.txt").write_text("a red cube\n" * 7)
    return train(place)


@case("text is empty")
def empty_caption_in_training(place: Place) -> list[str]:
    (place.features / "train_caps.txt").write_text("a red cube\n" * 7 + "   \n")
    return train(place)


@case("line 1")
def broken_base64(place: Place) -> list[str]:
    row = ["7", "640", "480", "1", "!!!!", base64.b64encode(b"\0" * 16).decode()]
    (place.folder / "x.tsv").write_text("\t".join(row) + "\r\n")
    return ["data", "convert", place.path("x.tsv"), place.path("store")]


@case("already holds a run")
def a_run_over_a_run(place: Place) -> list[str]:
    (place.folder / "run" / "best").mkdir(parents=True)
    return train(place)


@case("is no run folder")
def resume_of_nothing(place: Place) -> list[str]:
    return ["train", "--resume", place.path("nothing")]


@case("is a run of scan, not of imram")
def resuming_a_run_of_another_system(place: Place) -> list[str]:
    assert run(train(place)) == 0
    return ["train", "imram", "--resume", place.path("run")]


@case("last.ckpt")
def resume_from_a_checkpoint_cut_short(place: Place) -> list[str]:
    assert run(train(place)) == 0
    rewrite(place.folder / "run" / "last.ckpt", lambda b: b[: len(b) // 2])
    return ["train", "--resume", place.path("run")]


@case("reads features of 8 numbers")
def evaluation_on_other_features(place: Place) -> list[str]:
    Scan(ScanConfig(8, 4, 8), Vocabulary(WORDS)).save_pretrained(place.path("small"))
    np.save(place.features / "test_ims.npy", np.zeros((4, 3, 9), np.float32))
    (place.features / "test_caps.txt").write_text("a red cube\n" * 4)
    return ["eval", place.path("small"), "data=precomp", f"root={place.features}"]


@case("it wants to run")
def harmful_checkpoint(place: Place) -> list[str]:
    class Harm:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, ("harm",)

    torch.save(Harm(), place.path("evil.pth.tar"))
    shutil.copy(place.golden / "scan" / "vocab.json", place.folder)
    return ["import", "scan", place.path("evil.pth.tar"), "-o", place.path("imported")]


@case("is no PyTorch checkpoint")
def checkpoint_cut_short(place: Place) -> list[str]:
    shutil.copy(place.golden / "scan" / "vocab.json", place.folder)
    (place.folder / "cut.pth.tar").write_bytes((place.golden / "scan" / "bigru.pth.tar").read_bytes()[:3000])
    return ["import", "scan", place.path("cut.pth.tar"), "-o", place.path("imported")]


@case('"model" is a list, not a Mapping')
def checkpoint_of_another_system(place: Place) -> list[str]:
    camp = place.golden / "camp"
    checkpoint, words = camp / "gate_fusion_new.pth.tar", camp / "vocab.pkl"
    return ["import", "imram", str(checkpoint), "--vocabulary", str(words), "-o", place.path("imported")]


@case("needs its vocabulary")
def checkpoint_without_a_vocabulary(place: Place) -> list[str]:
    shutil.copy(place.golden / "scan" / "bigru.pth.tar", place.folder)
    return ["import", "scan", place.path("bigru.pth.tar"), "-o", place.path("imported")]


@case('no importer for "vse"')
def importer_that_is_not_there(place: Place) -> list[str]:
    return ["import", "vse", "x.pth.tar", "-o", "y"]


@case("holds no runs of camp-gate with these settings")
def report_on_claims_never_trained(place: Place) -> list[str]:
    return ["claims", "camp-gate", "--report", "--runs", place.path("none"), "--out", place.path("imported")]


@case('no claim "camp-gat"; did you mean "camp-gate"?')
def claim_that_is_not_there(place: Place) -> list[str]:
    return ["claims", "camp-gat"]


@case("line 1: 3 columns, CoNLL-U has 10")
def broken_line_of_conllu(place: Place) -> list[str]:
    (place.folder / "broken.conllu").write_text("1\tdogs\tdog\n\n", encoding="utf-8")
    return ["parse", "dogs", "--parser", f"file:{place.path('broken.conllu')}"]


@case('spaCy could not load the model "nope"')
def spacy_model_not_installed(place: Place) -> list[str]:
    return ["parse", "a red cube", "--parser", "spacy:nope"]


@case('no parser "spacyy"; did you mean "spacy"?')
def training_with_an_unknown_parser(place: Place) -> list[str]:
    return ["train", "gsmn", *train(place, "blocks=2", "parser=spacyy")[2:]]


@case("not a folder of golden cases")
def nothing_to_verify(place: Place) -> list[str]:
    return ["verify", "scan", place.path("nothing")]


@case("the world has no split")
def split_that_is_not_there(place: Place) -> list[str]:
    return ["eval", str(place.model), "data=world", "--split", "tset"]


NOWHERE = {  # a command on a device that is not here; none gets as far as its files
    "score": ["score", "picture.png", "-t", "a red cube"],
    "explain": ["explain", "picture.png", "a red cube"],
    "eval": ["eval", "model"],
    "detect": ["detect", "picture.png"],
    "caption": ["caption", "picture.png"],
    "extract": ["extract", "picture.png"],
}


@pytest.mark.parametrize("name", ["cdua", "cuda:99", "meta", ""])
@pytest.mark.parametrize("verb", NOWHERE)
def test_a_device_that_is_not_here(verb: str, name: str, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*NOWHERE[verb], "--device", name]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f'error: there is no device "{name}" here (')
    assert told.endswith("): try --device cpu\n")
    assert told.count("\n") == 1


def run(words: list[str]) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["saccade", *words])
        try:
            main()
        except SystemExit as stop:
            return int(stop.code or 0)
    return 0


def files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*")}


@pytest.mark.parametrize("name", CASES)
def test_one_sentence_and_exit_code_2(name: str, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    sentence, spoil = CASES[name]
    words = spoil(place)
    before = files(place.folder)
    capsys.readouterr()
    assert run(words) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    assert sentence in lines[0]
    left = {
        f for f in files(place.folder) - before if f.endswith((".part", ".old")) or f in ("why.png", "imported", "harm")
    }
    assert not left


def test_there_are_at_least_25_kinds() -> None:
    assert len(CASES) >= 25


@pytest.mark.parametrize("verb", ["explain", "import", "train"])
def test_a_full_disk(
    verb: str, place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(place.golden / "scan" / "vocab.json", place.folder)
    words = {
        "explain": place.explain(),
        "import": ["import", "scan", str(place.golden / "scan" / "bigru.pth.tar"), "-o", place.path("imported")],
        "train": train(place),
    }[verb]
    before = files(place.folder)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(saccade.core.files.os, "fsync", full)
    assert run(words) == 2
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith("error: the disk is full")
    assert {f for f in files(place.folder) - before if not f.startswith("run")} == set()
    assert not [f for f in files(place.folder) if f.endswith((".part", ".old"))]


def test_a_word_nobody_knows_is_reported_but_no_error(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["score", str(place.picture), "-t", "a red okapi", "--model", str(place.model)]) == 0
    assert 'does not know "okapi"' in capsys.readouterr().err


def test_brackets_in_a_name_or_a_sentence_are_shown(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    picture = place.picture.with_name("a [red] one.png")
    picture.write_bytes(place.picture.read_bytes())
    assert run(["score", str(picture), "-t", "a [red] cube", "--model", str(place.model)]) == 0
    printed = capsys.readouterr().out
    assert str(picture) in printed
    assert "a [red] cube" in printed
