"""Training in stages: a run that begins with another's weights (`start`), or trains a part of a model (`only`)."""

from __future__ import annotations

import shutil
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console
from toy_training import same_weights

from saccade.core.errors import SaccadeError
from saccade.features import open_split
from saccade.models import Matcher, load_model
from saccade.training.run import open_for_training, run_config, run_parts, train_run

SMALL = ["data=world", "pictures=40", "limit=20", "dim=8", "word_dim=6", "min_count=1", "accelerator=cpu"]
STEPS = ["steps=6", "batch_size=4", "all_negatives_steps=0", "warmup_steps=0", "schedule=constant"]


def parts(system: str, *words: str) -> tuple[Matcher, str]:
    """A model as a run would begin with it, and what the run says."""
    config = run_config(system, [*SMALL, *words])
    train, dev = (open_split(config.data, split) for split in ("train", "dev"))
    said = StringIO()
    return run_parts(config, train, dev, console=Console(file=said, width=500))[0], said.getvalue()


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """CAMP's attention, trained a little: the stage before the fusion."""
    words = [*SMALL, *STEPS, "fusion=false", "heads=0", "loss=triplet", "message_loss=0", "trainer.seed=5"]
    train_run(run_config("camp", words), tmp_path / "first", console=Console(file=StringIO()))
    return tmp_path / "first"


def test_weights_of_the_same_name_and_shape_are_taken_and_the_rest_stays_fresh(first: Path) -> None:
    theirs, (fresh, _) = load_model(first).state_dict(), parts("camp")
    model, said = parts("camp", f"start={first}")
    own, new = model.state_dict(), fresh.state_dict()
    assert same_weights({name: own[name] for name in theirs}, theirs)
    rest = own.keys() - theirs.keys()
    assert {name.split(".")[0] for name in rest} == {"fuse", "pool", "judge"}
    assert same_weights({name: own[name] for name in rest}, {name: new[name] for name in rest})
    assert f"{len(theirs)} of {len(own)} weights taken, fresh: pool.regions.hidden.weight" in said


def test_another_shape_is_not_taken(first: Path) -> None:
    model, said = parts("camp", f"start={first}", "word_dim=5")
    assert "words.embed.weight" in said.split("fresh:")[1]
    assert "words.rnn.weight_hh_l0," not in said.split("fresh:")[1]
    assert torch.equal(
        model.state_dict()["look.words_key.weight"], load_model(first).state_dict()["look.words_key.weight"]
    )


def test_words_are_taken_by_name(first: Path) -> None:
    """Where the other model knows fewer words its rows lie elsewhere; the words it does not know stay fresh."""
    few, _ = parts("scan", "min_count=6", "trainer.seed=5")
    few.save_pretrained(first / "few")
    fresh, _ = parts("scan")
    model, said = parts("scan", f"start={first / 'few'}")
    known = few.vocabulary.words
    own, new, theirs = (m.words.embed.weight for m in (model, fresh, few))  # type: ignore[union-attr]
    for n, word in enumerate(model.vocabulary.words):
        assert torch.equal(own[n], theirs[known.index(word)] if word in known else new[n])
    assert len(known) < len(own)
    assert f"{len(known)} of {len(own)} words known there" in said


def test_only_some_weights_are_trained(first: Path, tmp_path: Path) -> None:
    config = run_config("camp", [*SMALL, *STEPS, f"start={first}", "only=fuse,pool,judge", "message_loss=0"])
    before, said = parts("camp", f"start={first}", "only=fuse,pool,judge")
    assert "training 12 of" in said
    train_run(config, tmp_path / "second", console=Console(file=StringIO()))
    after, old = load_model(tmp_path / "second" / "last").state_dict(), before.state_dict()
    moved = {name for name in after if not torch.equal(after[name], old[name])}
    assert moved == {name for name in after if name.startswith(("fuse", "pool", "judge"))}


def test_a_staged_run_resumes_exactly_even_where_its_first_stage_is_gone(first: Path, tmp_path: Path) -> None:
    words = [*SMALL, *STEPS, f"start={first}", "only=fuse,pool.words,judge", "checkpoint_every=3"]
    train_run(run_config("camp", words), tmp_path / "straight", console=Console(file=StringIO()))
    train_run(run_config("camp", [*words, "steps=3"]), tmp_path / "broken", console=Console(file=StringIO()))
    shutil.rmtree(first)
    train_run(run_config("camp", words), tmp_path / "broken", resume=True, console=Console(file=StringIO()))
    ends = [load_model(tmp_path / name / "last").state_dict() for name in ("straight", "broken")]
    assert same_weights(*ends)
    with pytest.raises(SaccadeError, match="was started with another only"):
        train_run(run_config("camp", [*words, "only=judge"]), tmp_path / "broken", resume=True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["only=fsue"], 'no weight begins with "fsue"; did you mean "fuse"'),
        (["only=fuse,"], 'no weight begins with ""'),
        (["start=nowhere"], "nowhere is no model folder"),
    ],
)
def test_bad_stages_are_answered(words: list[str], sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        parts("camp", *words)


def test_a_model_with_nothing_in_common_is_refused(first: Path) -> None:
    shutil.copytree(first / "best", first / "odd")
    from saccade.core.weights import read_weights, write_weights

    weights = read_weights(first / "odd" / "model.safetensors")
    write_weights(first / "odd" / "model.safetensors", {f"other.{name}": value for name, value in weights.items()})
    with pytest.raises(SaccadeError, match="has no weight of the same name and shape as this camp"):
        parts("camp", f"start={first / 'odd'}")


def test_a_part_of_the_training_split_is_held_out_and_judges() -> None:
    """Every fourth picture is not learned from, keeps its sentences, and takes the place of the dev split."""
    whole, _ = open_for_training(run_config("scan", SMALL))
    train, judge = open_for_training(run_config("scan", [*SMALL, "held_out=4"]))
    assert judge.images.ids == whole.images.ids[::4]
    assert sorted((*train.images.ids, *judge.images.ids)) == sorted(whole.images.ids)
    for part in (train, judge):
        for n, id in enumerate(part.images.ids):
            own = whole.texts_of_image[whole.images.ids.index(id)]
            assert [part.texts[i] for i in part.texts_of_image[n]] == [whole.texts[i] for i in own]
            same = whole.images.batch([whole.images.ids.index(id)])
            assert torch.equal(part.images.batch([n]).features, same.features)


@pytest.mark.parametrize(("count", "sentence"), [(1, "0 .* or at least 2"), (30, "the training split has 20 pictures")])
def test_a_part_that_leaves_nothing_is_refused(count: int, sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        open_for_training(run_config("scan", [*SMALL, f"held_out={count}"]))


def test_epochs_asked_for_are_not_outdone_by_a_recipe_that_counts_steps() -> None:
    assert run_config("updown", ["data=store"]).trainer.steps == 60_000
    assert run_config("updown", ["data=store", "epochs=2"]).trainer.steps is None
    both = run_config("updown", ["data=store", "epochs=2", "trainer.steps=9"]).trainer
    assert (both.epochs, both.steps) == (2, 9)


def test_a_word_may_need_what_the_recipe_of_the_data_says() -> None:
    """`region_norm` goes with `embed_regions`, which Up-Down's recipe for Flickr8k sets and the paper's does not."""
    assert run_config("updown", ["data=flickr8k", "region_norm=around"]).model.region_norm == "around"


def test_missing_word_vectors_are_known_before_a_picture_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("saccade.training.run.open_for_training", lambda *_: pytest.fail("pictures were opened"))
    config = run_config("updown_vqa", ["data=world", f"task.vectors={tmp_path / 'gone.txt'}"])
    with pytest.raises(SaccadeError, match=r"gone.txt does not exist: a file of word vectors was expected"):
        train_run(config, tmp_path / "run", console=Console(file=StringIO()))
    assert not (tmp_path / "run").exists()
