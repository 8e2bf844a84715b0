"""`saccade data check` on photo data sets, and the page on bringing one's own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from photo_samples import coco_folder, entities_published, flickr8k_tables, genome_folder, make_photo, write_rows
from typer.testing import CliRunner, Result

from saccade.cli.data import app
from saccade.core.errors import SaccadeError
from saccade.data.records import CaptionedPhotos
from saccade.data.registry import DATA_SETS, Annotation, DataConfig, imported, open_records, recognise

PAGE = Path(__file__).parents[2] / "docs" / "data" / "photos.md"


def check(*words: object) -> Result:
    result = CliRunner().invoke(app, ["check", *map(str, words)], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_whole_data_set_is_counted_and_held_back_captions_are_no_fault(tmp_path: Path) -> None:
    result = check(flickr8k_tables(tmp_path))
    assert result.exit_code == 0, result.output
    assert re.search(r"train\W+1\W+5\W", result.output)
    assert 'no captions of the split "test"' in result.output
    assert "not here" in result.output  # Entities and other languages, which are not needed
    assert "no problems" in result.output


def test_an_empty_folder_says_what_belongs_there_and_where_to_get_it(tmp_path: Path) -> None:
    for data_set in [row for row in DATA_SETS.values() if row.layouts]:
        result = check(tmp_path / "nothing", "--as", data_set.name)
        assert result.exit_code == 2
        output = " ".join(result.output.split())
        assert f"get it from {data_set.layouts[0][0].home or data_set.home}" in output
        assert data_set.licence in output
    with pytest.raises(SaccadeError, match='no photo data set "flicker8k"; did you mean "flickr8k"'):
        check(tmp_path, "--as", "flicker8k")


@pytest.mark.parametrize(
    ("name", "annotation"),
    [(row.name, kind) for row in DATA_SETS.values() if row.layouts for kind in row.readers if kind != "phrases"],
)
def test_opening_an_empty_folder_says_where_the_data_set_is_to_be_had(
    name: str, annotation: Annotation, tmp_path: Path
) -> None:
    homes = {DATA_SETS[name].home, *(part.home for layout in DATA_SETS[name].layouts for part in layout)} - {""}
    with pytest.raises(SaccadeError) as error:
        open_records(DataConfig(name, tmp_path), "train", annotation)
    assert any(home in str(error.value) for home in homes)


def test_each_data_set_is_recognised_by_its_files(tmp_path: Path, photos: list[Path]) -> None:
    for name, make in {"flickr8k": flickr8k_tables, "coco": coco_folder, "visual_genome": genome_folder}.items():
        found = recognise(make(tmp_path / name))
        assert found is not None
        assert found.name == name
        assert check(tmp_path / name).exit_code == 0
    assert check(photos[0].parent, "--photos").exit_code == 0
    root = entities_published(tmp_path / "flickr30k")
    write_rows(root / "results_20130124.token", ("a.jpg#0", "A dog ."))
    result = check(root)
    assert result.exit_code == 2
    assert "has no val.txt (split val): get it from Flickr30k Entities" in result.output
    assert recognise(tmp_path) is None


def test_boxes_without_captions_are_enough_for_coco(tmp_path: Path) -> None:
    """A detector learns from `annotations/instances_*.json` alone."""
    root = coco_folder(tmp_path / "coco")
    (root / "annotations" / "instances_val2017.json").write_bytes(
        (root / "annotations" / "instances_train2017.json").read_bytes()
    )
    make_photo(root / "images" / "val2017" / "000000000007.jpg")
    for unspoken in ("val", "train"):
        (root / "annotations" / f"captions_{unspoken}2017.json").unlink(missing_ok=True)
        result = check(root)
        assert result.exit_code == 0, result.output
        assert re.search(rf"{unspoken}2017\W+1\W+0\W+[1-9]", result.output)


def test_a_folder_of_no_known_kind_points_to_what_is_missing_of_one(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=r"a known set of photos \(`saccade data check FOLDER --as NAME`"):
        check(tmp_path)
    root = flickr8k_tables(tmp_path / "flickr8k")
    (root / "entities.jsonl").write_text("")
    (root / "images.tsv.gz").unlink()
    result = check(root)
    assert result.exit_code == 2
    assert "has no images.tsv.gz or images.tsv" in result.output


def test_faults_of_files_and_photos_are_listed(tmp_path: Path) -> None:
    root = flickr8k_tables(tmp_path)
    (root / "images" / "b.jpg").write_bytes(b"no photo")
    assert check(root).exit_code == 0
    result = check(root, "--photos")
    assert result.exit_code == 2
    assert "b.jpg is not a picture" in result.output
    (root / "images" / "b.jpg").unlink()
    result = check(root)
    assert result.exit_code == 2
    assert "b.jpg is missing" in result.output
    assert "1 problem" in result.output


def test_every_function_that_the_registry_names_is_there() -> None:
    for row in DATA_SETS.values():
        for name in (*row.readers.values(), row.splits, row.recognise):
            assert not isinstance(name, str) or not name or callable(imported(name))
        assert not row.layouts or (
            row.readers and row.splits and (row.signs or row.recognise) and row.home and row.licence
        )


def test_the_reader_of_the_page_works_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(DATA_SETS, "holidays", raising=False)
    code = next(
        block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "@reader" in block
    )
    assert len(code.splitlines()) <= 20
    names: dict[str, object] = {}
    exec(compile(code.replace("from __future__", "#"), str(PAGE), "exec"), names)
    make_photo(tmp_path / "photos" / "sea.jpg")
    rows = [("sea.jpg", "train", "The sea ."), ("sea.jpg", "train", "Waves .")]
    write_rows(tmp_path / "captions.tsv", ("photo", "split", "sentence"), *rows)
    data = DATA_SETS["holidays"].reader("captions")("train", tmp_path)
    assert isinstance(data, CaptionedPhotos)
    assert (data.ids, data.texts) == (("sea.jpg",), ("The sea .", "Waves ."))
    write_rows(tmp_path / "captions.tsv", ("photo", "split", "sentence"), ("lake.jpg", "train", "A lake ."))
    with pytest.raises(SaccadeError, match=r"lake.jpg is missing: .*captions.tsv names it"):
        DATA_SETS["holidays"].reader("captions")("train", tmp_path)
