"""Flickr8k in both layouts, in its languages, and spoiled."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from photo_samples import SENTENCES, flickr8k_tables, make_photo, write, write_rows

from saccade.core.errors import SaccadeError
from saccade.data.datasets.photos.flickr import open_flickr8k, read_photo_table
from saccade.data.datasets.photos.folder import NoCaptions


def test_a_split_of_the_tables_has_photos_sentences_and_original_sizes(tmp_path: Path) -> None:
    data = open_flickr8k("train", flickr8k_tables(tmp_path))
    assert data.ids == ("a.jpg",)
    assert data.paths == (tmp_path / "images" / "a.jpg",)
    assert len(data.texts) == 5
    assert data.texts[2] == 'A man holds up a sign that says " stop " a .'  # quotation marks mean themselves
    assert data.image_of_text.tolist() == [0] * 5
    assert data.sizes == ((40, 30),)


def test_splits_add_up_and_val_is_dev(tmp_path: Path) -> None:
    root = flickr8k_tables(tmp_path)
    data = open_flickr8k("train+extra", root)
    assert data.ids == ("a.jpg", "d.jpg")
    assert data.image_of_text.tolist() == [0] * 5 + [1] * 5
    assert open_flickr8k("val", root).ids == open_flickr8k("dev", root).ids == ("b.jpg",)


def test_test_captions_kept_aside_are_asked_for_and_read_where_they_are(tmp_path: Path) -> None:
    with pytest.raises(NoCaptions, match=r'captions.tsv.gz has no captions of the split "test"'):
        open_flickr8k("test", flickr8k_tables(tmp_path / "without"))
    with pytest.raises(NoCaptions):
        open_flickr8k("train+test", tmp_path / "without")
    assert open_flickr8k("test", flickr8k_tables(tmp_path / "with", captions_of_test=True)).ids == ("c.jpg",)


def test_other_languages_have_the_photos_described_in_them(tmp_path: Path) -> None:
    root = flickr8k_tables(tmp_path)
    columns = ("multi30k_split", "image", "en", "de", "fr", "cs")
    row = ("train", "a.jpg", "A dog.", "Ein Hund.", "Un chien à l’eau.", "Pes běží.")
    write_rows(root / "multi30k_en_de_fr_cs.tsv.gz", columns, row)
    make_photo(root / "images" / "e.jpg")
    photos = [(f"{name}.jpg", "train", 40, 30) for name in "abcde"]
    write_rows(root / "images.tsv.gz", ("image", "split", "orig_width", "orig_height"), *photos)
    assert open_flickr8k("train", root, "fr").ids == ("a.jpg",)
    assert open_flickr8k("train", root, "cs").texts == ("Pes běží.",)
    assert open_flickr8k("train", root, "de").texts == ("Ein Hund.",)  # the translation, while there is nothing better
    german = [("a.jpg", n, f"Satz {n} über Hunde") for n in range(1, 6)]
    write_rows(root / "multi30k_task2_german_5caps.tsv.gz", ("image", "n", "de"), *german)
    assert len(open_flickr8k("train", root, "de").texts) == 5
    assert open_flickr8k("train", root, "de1").texts == ("Ein Hund.",)
    with pytest.raises(SaccadeError, match='no language "es"'):
        open_flickr8k("train", root, "es")


def test_a_sentence_without_a_word_is_left_out(tmp_path: Path) -> None:
    root = flickr8k_tables(tmp_path)
    write_rows(root / "captions.tsv.gz", ("image", "n", "caption"), ("a.jpg", 0, "."), ("a.jpg", 1, "A"))
    assert open_flickr8k("train", root).texts == ("A",)
    write_rows(root / "captions.tsv.gz", ("image", "n", "caption"), ("a.jpg", 0, " ."), ("a.jpg", 1, ""))
    with pytest.raises(SaccadeError, match=r"no caption for 1 of 1 photos, for one a\.jpg"):
        open_flickr8k("train", root)


def published(root: Path) -> Path:
    names = {"train": ["a.jpg", "2258277193_586949ec62.jpg"], "dev": ["b.jpg"], "test": ["c.jpg"]}
    for split, listed in names.items():
        write(root / "Flickr8k_text" / f"Flickr_8k.{split}Images.txt", "\n".join(listed) + "\n")
    said = [f"{name}#{n}\t{text}" for name in ("a.jpg", "b.jpg", "c.jpg", "d.jpg") for n, text in enumerate(SENTENCES)]
    said.append("2258277193_586949ec62.jpg.1#0\tA photo that was never published .")
    write(root / "Flickr8k_text" / "Flickr8k.token.txt", "\n".join(said))
    for name in ("a.jpg", "b.jpg", "c.jpg", "d.jpg"):
        make_photo(root / "Flicker8k_Dataset" / name)
    return root


def test_the_published_layout_reads_the_same_way(tmp_path: Path) -> None:
    root = published(tmp_path)
    data = open_flickr8k("train", root)
    assert data.ids == ("a.jpg",)  # the list names one more, which nobody has
    assert data.texts == SENTENCES
    assert data.sizes == ()
    assert open_flickr8k("dev", root).ids == ("b.jpg",)
    assert open_flickr8k("test+extra", root).ids == ("c.jpg", "d.jpg")
    with pytest.raises(SaccadeError, match="is English"):
        open_flickr8k("train", root, "de")


def test_a_photo_that_is_not_there_is_named(tmp_path: Path) -> None:
    root = published(tmp_path)
    (root / "Flicker8k_Dataset" / "b.jpg").unlink()
    with pytest.raises(SaccadeError, match=r"b\.jpg is missing: .*Flickr8k.token.txt names it"):
        open_flickr8k("dev", root)


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("captions.tsv.gz", "image\tn\n", r"captions.tsv.gz, line 1: the columns are 'image\tn'"),
        ("captions.tsv.gz", "image\tn\tcaption\na.jpg\t0\n", "captions.tsv.gz, line 2: 2 columns, 3 were expected"),
        ("captions.tsv.gz", "image\tn\tcaption\nz.jpg\t0\tA dog\n", "line 2: the photo 'z.jpg' is not in images.tsv"),
        (
            "images.tsv.gz",
            "image\tsplit\torig_width\torig_height\na.jpg\ttrain\tx\t3\n",
            "line 2: the size is 'x' × '3'",
        ),
        (
            "images.tsv.gz",
            "image\tsplit\torig_width\torig_height\n" + "a.jpg\ttrain\t3\t3\n" * 2,
            "line 3: a.jpg occurs a second time",
        ),
    ],
)
def test_a_broken_table_is_named_by_file_and_line(tmp_path: Path, file: str, content: str, sentence: str) -> None:
    root = flickr8k_tables(tmp_path)
    write(root / file, content)
    with pytest.raises(SaccadeError) as error:
        open_flickr8k("train", root)
    assert sentence in str(error.value)


def test_a_damaged_or_missing_file_is_named(tmp_path: Path) -> None:
    root = flickr8k_tables(tmp_path)
    whole = (root / "captions.tsv.gz").read_bytes()
    for spoiled in (whole[:-9], b"not gzip at all", whole[:30] + b"????" + whole[34:]):
        (root / "captions.tsv.gz").write_bytes(spoiled)
        with pytest.raises(SaccadeError, match=r"captions.tsv.gz(, line \d+)? is not"):
            open_flickr8k("train", root)
    (root / "captions.tsv.gz").unlink()
    with pytest.raises(SaccadeError, match=r"captions.tsv.gz is missing: a Flickr8k folder holds images/"):
        open_flickr8k("train", root)
    with pytest.raises(SaccadeError, match=r"neither images.tsv.gz nor Flickr8k.token.txt"):
        open_flickr8k("train", root / "images")
    with pytest.raises(SaccadeError, match="needs a folder: give root=FOLDER"):
        open_flickr8k("train", None)


def test_split_names_are_helped(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match='no split "tain"; did you mean "train"'):
        open_flickr8k("tain", flickr8k_tables(tmp_path))


TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=30)


@settings(max_examples=30, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=5), st.tuples(st.integers(1, 10**5), st.integers(1, 10**5)))
def test_whatever_is_written_is_read_back(texts: list[str], size: tuple[int, int]) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder)
        make_photo(root / "images" / "a.jpg", 4, 4)
        write_rows(root / "images.tsv.gz", ("image", "split", "orig_width", "orig_height"), ("a.jpg", "train", *size))
        rows = [("a.jpg", n, text) for n, text in enumerate(["A dog.", *texts])]
        write_rows(root / "captions.tsv.gz", ("image", "n", "caption"), *rows)
        data = open_flickr8k("train", root)
        assert data.texts == ("A dog.", *(t for t in texts if any(letter.isalnum() for letter in t)))
        assert data.sizes == (size,)
        assert read_photo_table(root)[0].size == size
