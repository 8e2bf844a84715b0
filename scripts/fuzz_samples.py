"""What `fuzz.py` damages: for every reader of files a tiny sound sample, and everything that can be read of it."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import zipfile
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image

from saccade.core.arrays import read_npz
from saccade.core.config import load_yaml, save_yaml
from saccade.core.files import write_json
from saccade.core.weights import read_paddle, read_state_dict, read_weights, write_weights
from saccade.data import Caption, DataConfig, FeatureStore, PictureRegions, StoreWriter, open_records, write_captions
from saccade.data.datasets.photos.karpathy import read_karpathy
from saccade.data.datasets.videos.frames import strip
from saccade.data.datasets.videos.msvd import msvd_splits
from saccade.data.formats.arrays import ArrayPictures, NpzFolder
from saccade.data.formats.captions import captions_of, read_caption_results
from saccade.data.formats.hdf5 import open_hdf5
from saccade.data.formats.lmdb import LmdbPictures
from saccade.data.formats.precomp import open_precomp
from saccade.data.formats.regions import read_boxes, read_sizes
from saccade.data.formats.tsv import BottomUpTsv, TsvRow, write_tsv
from saccade.data.records import RegionSource
from saccade.data.store.manifest import read_broken
from saccade.data.store.sources import open_store
from saccade.features.concepts import read_concepts
from saccade.interop.checkpoint import read_checkpoint, read_modules, read_plain_pickle
from saccade.interop.words import read_vocabulary
from saccade.language import Vocabulary, load_vectors
from saccade.language.parsing.foreign import read_conllu, read_corenlp
from saccade.metrics.captions.cider import DocumentFrequencies
from saccade.models import entry
from saccade.models.base.model import load_model
from saccade.tasks.matching.evaluate import load_table
from saccade.training.folder import Progress, load_checkpoint, save_checkpoint
from saccade.training.logs import MetricsFile
from saccade.training.run import load_run_config, run_config
from saccade.vision.detectors.world import load_world_extractor
from saccade.vision.pictures import as_array
from saccade.vision.videos import Sampling, read_frames, write_video
from saccade.world.store import WorldConfig, make_world, open_world

DIM = 3
IDS = ("12", "pâté", "a longer name")


@dataclass(frozen=True)
class Reader:
    name: str
    make: Callable[[Path], object]  # its files, in an empty folder
    read: Callable[[Path], object]


def pictures() -> list[PictureRegions]:
    draw = np.random.default_rng(0)
    found = []
    for count, id in enumerate(IDS, start=1):
        boxes = np.sort(draw.random((count, 2, 2)), axis=1).reshape(-1, 4).astype(np.float32)
        features = draw.standard_normal((count, DIM)).astype(np.float32)
        scores = draw.random(count).astype(np.float32) if count > 1 else None
        found.append(PictureRegions(id, features, boxes, 20, 10, scores))
    return found


def read_regions(source: RegionSource) -> None:
    list(source.ids)
    for n in range(len(source)):
        source.get(n)
    source.batch(range(len(source)))


def make_store(folder: Path) -> None:
    with StoreWriter(folder, DIM, shard_rows=2, extractor="grid", metadata={"a": 1}) as writer:
        for one in pictures():
            writer.append(one.id, one.features, one.boxes, one.width, one.height, one.scores)
    write_captions(folder / "captions.jsonl", [Caption(id, "a red cube", "train") for id in IDS])
    write_json(folder / "broken.json", [{"id": "x", "path": "x.jpg", "reason": "it is empty"}])


def read_store(folder: Path) -> None:
    store = FeatureStore.open(folder)
    read_broken(folder)
    store.captions()
    open_store("train", folder)
    read_regions(store)
    store.region_counts()
    list(store)
    store.verify()


def make_small_world(folder: Path) -> None:
    make_world(WorldConfig(pictures=10, size=32, captions=1, hard_groups=1, novel=1), folder / "world", workers=1)


def read_world(folder: Path) -> None:
    world = open_world(folder / "world")
    for name in world.splits:
        split = world.split(name)
        list(split.ids)
        list(split.groups)
        for n in range(min(len(split), 3)):
            split.scene(n), split.captions(n), split.image(n), split.boxes(n), split.masks(n), split.triplets(n)


def make_precomp(folder: Path) -> None:
    draw = np.random.default_rng(0)
    np.save(folder / "train_ims.npy", draw.random((3, 2, DIM), dtype=np.float32))
    np.save(folder / "train_boxes.npy", np.tile(np.float32([0, 0, 1, 1]), (3, 2, 1)))
    np.save(folder / "train_sizes.npy", np.full((3, 2), 9, np.int32))
    (folder / "train_caps.txt").write_text("a red cube\na blue ball\na cone\n")
    (folder / "train_ids.txt").write_text("a\nb\nc\n")


def make_npz(folder: Path) -> None:
    for n, one in enumerate(pictures()):
        arrays = {"x": one.features, "bbox": one.boxes * 10, "image_width": np.array(20), "image_height": np.array(10)}
        save: Any = np.savez_compressed if n else np.savez
        save(folder / f"{n}.npz", **arrays)
    np.save(folder / "3.npy", pictures()[1].features)


def read_arrays(source: ArrayPictures) -> None:
    list(source.ids)
    _ = source.boxes
    read_regions(source)


def make_hdf5_tables(folder: Path) -> None:
    with h5py.File(folder / "f.h5", "w") as file:
        file["image_features"] = np.random.default_rng(0).random((6, DIM), dtype=np.float32)
        file.create_dataset("spatial_features", data=np.tile(np.float32([0, 0, 1, 1]), (6, 1)), compression="gzip")
        file["pos_boxes"] = np.array([[0, 1], [1, 3], [3, 6]])
        file["image_id"] = [1, 2, 3]


def make_hdf5_pictures(folder: Path) -> None:
    with h5py.File(folder / "f.h5", "w") as file:
        for one in pictures():
            group = file.create_group(one.id)
            group.create_dataset("features", data=one.features, compression="gzip")
            group["norm_bb"] = one.boxes


def make_lmdb(folder: Path) -> None:
    database = lmdb.open(str(folder / "f.lmdb"), subdir=False, lock=False, map_size=1 << 20)
    with database, database.begin(write=True) as t:
        for one in pictures():
            stream = io.BytesIO()
            np.savez(stream, x=np.tile(one.features, 200), norm_bb=one.boxes)  # on pages of its own
            t.put(one.id.encode(), stream.getvalue())
        for n in range(9):  # small ones stand in leaves, of which there are then several
            stream = io.BytesIO()
            np.save(stream, np.zeros((1, 3 * 200), np.float16))
            t.put(f"small-{n}".encode(), stream.getvalue())


def make_model(folder: Path) -> None:
    config = replace(entry("scan").model.Config(), dim=4, word_dim=3, region_dim=DIM)
    model = entry("scan").model(config, Vocabulary.build(["a red cube", "the blue ball"], 1), "grid")
    model.save_pretrained(folder)
    write_json(folder / "calibration.json", {"slope": 1.0, "offset": 0.5})
    (folder / "README.md").unlink()


def make_detector(folder: Path) -> None:
    sizes = {"channels": (2, 2, 2, 2), "map_dim": 2, "roi_dim": 2, "hidden": 2, "dim": 12}
    labels = ("kinds", "colours", "sizes", "materials", "poses", "facings", "backgrounds", "lightings")
    config = replace(entry("world_extractor").model.Config(), **sizes, **dict.fromkeys(labels, ("a", "b")))
    entry("world_extractor").model(config).save_pretrained(folder)
    (folder / "README.md").unlink()


def make_weights(folder: Path) -> None:
    state = {"a": torch.randn(3, 4), "b": torch.randn(4), "n": torch.tensor(3)}
    for form in ("float32", "float16", "int8"):
        write_weights(folder / f"{form}.safetensors", state, form)  # type: ignore[arg-type]


def make_checkpoints(folder: Path) -> None:
    state = {"a.weight": torch.randn(3, 4), "b": torch.randn(4).half()}
    whole = {"model": [state], "opt": Namespace(dim=4, name="x"), "epoch": 3, "best": OrderedDict(rsum=1.5)}
    torch.save(whole, folder / "zip.pth")
    torch.save(whole, folder / "old.pth", _use_new_zipfile_serialization=False)


def read_checkpoints(folder: Path) -> None:
    for path in sorted(folder.glob("*.pth")):
        read_checkpoint(path)
        read_modules(path, ())


def make_state_dict(folder: Path) -> None:
    torch.save({"a": torch.randn(3, 4), "b": torch.randn(4)}, folder / "w.pth")


def make_run_checkpoint(folder: Path) -> None:
    contents = {"config": {}, "items": 3, "world_size": 1, "model": {"a": torch.randn(2)}}
    save_checkpoint(folder / "last.ckpt", {**contents, "optimiser": {}, "random": {}}, Progress())


def make_paddle(folder: Path) -> None:
    head = bytes([8, 5, 16, 2, 16, 3])
    one = bytes(16) + len(head).to_bytes(4, "little") + head + np.ones(6, "<f4").tobytes()
    (folder / "w.pdiparams").write_bytes(one * 2)


def make_pickles(folder: Path) -> None:
    (folder / "options.pkl").write_bytes(pickle.dumps({"opt": Namespace(dim=3), "words": ["a", "b"], "n": 1.5}, 2))
    counts = {"ref_len": 3.0, "document_frequency": {("a", "b"): 2.0, ("c",): 1.0}}
    (folder / "counts.p").write_bytes(pickle.dumps(counts))


def read_pickles(folder: Path) -> None:
    read_plain_pickle(folder / "options.pkl")
    DocumentFrequencies.load(folder / "counts.p")


def make_images(ending: str, mode: str = "RGB", **options: object) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        values = np.random.default_rng(0).integers(0, 255, (12, 16, 3), dtype=np.uint8)
        Image.fromarray(values).convert(mode).save(folder / f"photo.{ending}", **options)  # type: ignore[arg-type]

    return make


def read_images(folder: Path) -> None:
    for path in folder.iterdir():
        as_array(path)
        as_array(path, size=8)


def make_settings(folder: Path) -> None:
    save_yaml(run_config("scan", ["data=world"]), folder / "config.yaml")


def read_settings(folder: Path) -> None:
    load_yaml(folder / "config.yaml")
    load_run_config(folder)


def make_log(folder: Path) -> None:
    log = MetricsFile(folder / "metrics.csv")
    log.append({"step": 1, "epoch": 0, "split": "dev", "seconds": 1.0, "rsum": 100.0})


def make_json(folder: Path) -> None:
    write_json(folder / "vocabulary.json", Vocabulary.build(["a red cube"], 1).to_json())
    write_json(folder / "wordmap.json", {"<pad>": 0, "a": 1, "<unk>": 2, "<start>": 3, "<end>": 4})
    write_json(folder / "counts.json", {"pictures": 3, "document_frequencies": {"a b": 2}})
    tokens = [{"index": 1, "word": "a", "originalText": "a", "pos": "DT"}]
    links = [{"dep": "ROOT", "governor": 0, "dependent": 1}]
    write_json(folder / "parse.json", {"sentences": [{"tokens": tokens, "basicDependencies": links}]})
    (folder / "concepts.jsonl").write_text('{"image": "12", "concepts": {"dog": 0.9}}\n')


def read_json_files(folder: Path) -> None:
    read_vocabulary(folder / "vocabulary.json")
    read_vocabulary(folder / "wordmap.json")
    DocumentFrequencies.load(folder / "counts.json")
    list(read_corenlp(folder / "parse.json"))
    read_concepts(folder / "concepts.jsonl", IDS)


def make_captions(folder: Path) -> None:
    sentence = {"raw": "a red cube", "tokens": ["a", "red", "cube"], "sentid": 0, "imgid": 0}
    image = {"filename": "12", "split": "train", "imgid": 0, "sentids": [0], "sentences": [sentence], "cocoid": 12}
    karpathy = {"dataset": "toy", "images": [image]}
    coco = {"images": [{"id": 12, "file_name": "12", "width": 20, "height": 10}]}
    annotation = {"id": 1, "image_id": 12, "caption": "a red cube", "bbox": [1, 1, 5, 5], "category_id": 1}
    coco["annotations"] = [annotation]
    write_json(folder / "karpathy.json", karpathy)
    write_json(folder / "coco.json", coco)
    write_json(folder / "results.json", [{"image_id": 12, "caption": "a cube"}])
    (folder / "karpathy.json.gz").write_bytes(gzip.compress(json.dumps(karpathy).encode()))
    (folder / "captions.jsonl").write_text('{"image": "12", "text": "a cube", "split": "train"}\n' * 2)
    (folder / "coco_mini.jsonl").write_text('{"image": "12", "split": "train", "captions": ["a cube"], "width": 9}\n')
    (folder / "tokens.txt").write_text("12#0\ta red cube\n12#1\ta cube\n")
    (folder / "captions.tsv").write_text("image\tn\tcaption\n12\t0\ta red cube\n")


def read_caption_files(folder: Path) -> None:
    for name in ("karpathy.json", "karpathy.json.gz", "coco.json", "captions.jsonl", "tokens.txt"):
        captions_of(folder / name, ["12"])
    for name in ("results.json", "captions.tsv", "coco.json", "karpathy.json", "captions.jsonl", "coco_mini.jsonl"):
        read_caption_results(folder / name)
    read_karpathy(folder / "karpathy.json")


def make_boxes(folder: Path) -> None:
    write_json(folder / "boxes.json", {"unit": "pixel", "12": [[0, 0, 3, 4]]})
    coco = {"images": [{"id": 1, "file_name": "12", "width": 20, "height": 10}]}
    coco["annotations"] = [{"id": 1, "image_id": 1, "bbox": [1, 1, 5, 5]}]
    write_json(folder / "coco.json", coco)
    write_json(folder / "sizes.json", {"12": [20, 10]})
    (folder / "sizes.tsv").write_text("image\twidth\theight\n12\t20\t10\n13\t5\t5\n")


def read_box_files(folder: Path) -> None:
    for name in ("boxes.json", "coco.json"):
        read_boxes(folder / name)
    for name in ("sizes.json", "sizes.tsv"):
        read_sizes(folder / name)


def make_words(folder: Path) -> None:
    text = "a 0.5 1.5 -2\nred 1 2 3\ncube 1e-3 0 7\n"
    (folder / "v.txt").write_text(text)
    (folder / "v.vec.gz").write_bytes(gzip.compress(text.encode()))
    with zipfile.ZipFile(folder / "v.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("v.txt", text)
    (folder / "word_counts.txt").write_text("<S> 3\n</S> 3\na 2\n")
    row = "1\ta\t_\tDET\t_\t_\t0\troot\t_\t_\n"
    (folder / "p.conllu").write_text(f"# text = a\n{row}\n# text = a\n{row}\n")


def read_words(folder: Path) -> None:
    for name in ("v.txt", "v.vec.gz", "v.zip"):
        load_vectors(folder / name, ["red", "cube"])
    read_vocabulary(folder / "word_counts.txt")
    list(read_conllu(folder / "p.conllu"))


def make_arrays(folder: Path) -> None:
    np.savez_compressed(folder / "io.npz", a=np.ones((2, 3)), b=np.arange(4))
    np.save(folder / "table.npy", np.ones((3, 4), np.float16))


def read_array_files(folder: Path) -> None:
    read_npz(folder / "io.npz")
    load_table(folder / "table.npy")


def make_video_store(folder: Path) -> None:
    with StoreWriter(folder, DIM, shard_rows=2, extractor="frames:grid") as writer:
        for one in pictures():
            writer.append(one.id, one.features, strip(len(one.features)), 20, 10, seconds=2.5)


def read_video_store(folder: Path) -> None:
    store = FeatureStore.open(folder)
    read_regions(store)
    store.verify()


def make_moments(folder: Path) -> None:
    (folder / "charades_sta_train.txt").write_text("AAAAA 0.5 2.5##a person opens a door.\n" * 3)
    write_json(folder / "charades_durations.json", {"AAAAA": 20.5})
    timed = {"duration": 20.5, "timestamps": [[0, 2.5], [3, 20]], "sentences": ["one.", "two."]}
    write_json(folder / "activitynet_train.json", {"v_1": timed})
    write_json(folder / "tacos_train.json", {"s1.avi": {**timed, "fps": 25, "num_frames": 500}})
    line = {"qid": 1, "query": "a cat", "vid": "x", "duration": 150, "relevant_windows": [[0, 10], [40, 60]]}
    (folder / "qvhighlights_train.jsonl").write_text(json.dumps(line) + "\n")
    (folder / "captions.tsv").write_text("split\tclip\tstart_s\tend_s\tn\tcaption\ntrain\ta_0_4\t0\t4\t0\ta cat\n")
    video = {"video_id": "video0", "split": "train", "start time": 0.5, "end time": 9.5}
    sentence = {"video_id": "video0", "caption": "a cat"}
    write_json(folder / "MSRVTT_data.json", {"videos": [video], "sentences": [sentence]})


def read_moments(folder: Path) -> None:
    for name in ("charades_sta", "activitynet", "tacos", "qvhighlights"):
        open_records(DataConfig(name, folder), "train", "moments")
    open_records(DataConfig("msvd", folder), "train+dev" if "dev" in msvd_splits(folder)["captions"] else "train")
    open_records(DataConfig("msrvtt", folder), "train")


def make_video(ending: str, codec: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        frames = np.random.default_rng(0).integers(0, 255, (6, 16, 16, 3), np.uint8)
        write_video(folder / f"video.{ending}", frames, 4, codec)

    return make


def read_video(folder: Path) -> None:
    for path in folder.iterdir():
        read_frames(path, Sampling(rate=4))


def make_behaviours(folder: Path) -> None:
    items = {"item": ["a", "b"], "title": ["red mug", None], "image": [[1.0, 2.0], None], "price": [1.5, 2.5]}
    pq.write_table(pa.table(items), folder / "items.parquet")
    history: dict[str, list[object]] = {
        "history": [["b"], []],
        "history_kinds": [["view"], []],
        "history_times": [[1], []],
    }
    log = {"user": ["u", "v"], "item": ["a", "b"], "clicked": [1, 0], "time": [5, 6], **history}
    pq.write_table(pa.table(log), folder / "train.parquet", row_group_size=1)
    (folder / "dev.csv").write_text("user,item,clicked,time,history\nu,a,1,5,b a\nv,b,0,6,\n")


def read_behaviours(folder: Path) -> None:
    for split in ("train", "dev"):
        data = open_records(DataConfig("clicks", folder), split, "clicks")
        data.impressions.rows(np.arange(len(data)), 3)
        list(data.catalogue.titles)


READERS = [
    Reader("behaviour log (Parquet, CSV)", make_behaviours, read_behaviours),
    Reader("feature store", make_store, read_store),
    Reader("feature store of videos", make_video_store, read_video_store),
    Reader("annotations of videos (JSON, text)", make_moments, read_moments),
    Reader("MP4", make_video("mp4", "libx264"), read_video),
    Reader("MKV", make_video("mkv", "mpeg4"), read_video),
    Reader("world", make_small_world, read_world),
    Reader("precomputed .npy", make_precomp, lambda f: read_regions(open_precomp("train", f).regions)),
    Reader(".npz and .npy folder", make_npz, lambda f: read_arrays(NpzFolder(f, {"3": (20, 10)}))),
    Reader("HDF5 tables", make_hdf5_tables, lambda f: read_arrays(open_hdf5(f / "f.h5"))),
    Reader("HDF5 groups", make_hdf5_pictures, lambda f: read_arrays(open_hdf5(f / "f.h5"))),
    Reader("LMDB", make_lmdb, lambda f: read_arrays(LmdbPictures(f / "f.lmdb"))),
    Reader(
        "bottom-up TSV",
        lambda f: write_tsv(f / "f.tsv", map(TsvRow.of, pictures())),
        lambda f: read_regions(BottomUpTsv(f / "f.tsv")),
    ),
    Reader("model folder", make_model, load_model),
    Reader("detector folder", make_detector, load_world_extractor),
    Reader("weights (.safetensors)", make_weights, lambda f: [read_weights(path) for path in f.iterdir()]),
    Reader("official checkpoints", make_checkpoints, read_checkpoints),
    Reader("PyTorch weights", make_state_dict, lambda f: read_state_dict(f / "w.pth")),
    Reader("checkpoint of a run", make_run_checkpoint, lambda f: load_checkpoint(f / "last.ckpt")),
    Reader("Paddle weights", make_paddle, lambda f: read_paddle(f / "w.pdiparams")),
    Reader("pickles", make_pickles, read_pickles),
    Reader("PNG", make_images("png"), read_images),
    Reader("PNG, palette", make_images("png", "P"), read_images),
    Reader("JPEG", make_images("jpg"), read_images),
    Reader("GIF", make_images("gif", "P"), read_images),
    Reader("WebP", make_images("webp"), read_images),
    Reader("TIFF", make_images("tiff", compression="tiff_lzw"), read_images),
    Reader("BMP", make_images("bmp"), read_images),
    Reader("settings of a run (YAML)", make_settings, read_settings),
    Reader("log of a run (CSV)", make_log, lambda f: MetricsFile(f / "metrics.csv", step=1)),
    Reader("arrays of a run (.npz, .npy)", make_arrays, read_array_files),
    Reader("vocabularies and tables (JSON)", make_json, read_json_files),
    Reader("captions (JSON, text, gzip)", make_captions, read_caption_files),
    Reader("boxes and sizes (JSON, TSV)", make_boxes, read_box_files),
    Reader("word vectors and parses (text, gzip, zip)", make_words, read_words),
]
