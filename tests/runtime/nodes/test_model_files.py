"""Promises of parcels and of a node's cache: a node gets what a worker needs, whole, or nothing."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from serving.runtime.nodes.model_cache import ModelCache, ParcelError
from serving.runtime.nodes.notes import Offer, ParcelFile
from serving.runtime.nodes.parcel import Parcel, parcel_of, placed
from serving.values.specs import ModelSpec, TensorSpec, VariantSpec
from serving.worker.frames.orders import LoadOrder


def written(path: Path, content: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


@pytest.fixture
def model(tmp_path: Path) -> ModelSpec:
    """Two variants with an artifact each in the folder, one with a file of weights beside it."""
    folder = tmp_path / "m"
    for name in (
        "model.yaml",
        "model.py",
        "words/a.txt",
        "a.onnx",
        "a.onnx.data",
        "b.onnx",
        "__pycache__/x.pyc",
    ):
        written(folder / name, name)
    variants = (VariantSpec("a", folder / "a.onnx"), VariantSpec("b", folder / "b.onnx"))
    tensors = (TensorSpec("X", "FP32", (-1, 1)),)
    return ModelSpec("m", folder, tensors, tensors, variants, "a", 0, 1)


def names(parcel: Parcel) -> list[str]:
    return [f"{each.place}/{each.name}" for each in parcel.files]


def moved(parcel: Parcel, cache: ModelCache) -> Path:
    """The parcel in the cache, as its contents come over the wire."""
    offer = Offer(parcel.digest, parcel.files)
    for blob in cache.wanted(offer):
        content = parcel.paths[blob].read_bytes()
        cache.take(blob, content[:1], False)
        cache.take(blob, content[1:], True)
    return cache.build(offer)


def test_a_parcel_has_the_folder_without_other_variants_artifacts(model: ModelSpec) -> None:
    parcel = parcel_of(LoadOrder.of(1, model, "a"), model)
    kept = ("a.onnx", "a.onnx.data", "model.py", "model.yaml", "words/a.txt")
    assert names(parcel) == [f"folder/{each}" for each in kept]


def test_code_and_artifact_elsewhere_come_too(model: ModelSpec, tmp_path: Path) -> None:
    written(tmp_path / "elsewhere" / "c.xml", "xml")
    written(tmp_path / "elsewhere" / "c.bin", "bin")
    code = written(tmp_path / "home" / "mine.py", "code")
    written(tmp_path / "home" / "helper.py", "help")
    written(tmp_path / "home" / "diary.txt", "private")
    variants = (VariantSpec("c", tmp_path / "elsewhere" / "c.xml"),)
    outside = replace(model, variants=variants, default_variant="c", code=code)
    order = LoadOrder.of(1, outside, "c")
    parcel = parcel_of(order, outside)
    elsewhere = [each for each in names(parcel) if not each.startswith("folder/")]
    assert elsewhere == ["artifact/c.bin", "artifact/c.xml", "code/helper.py", "code/mine.py"]
    there = placed(order, moved(parcel, ModelCache(tmp_path / "cache")))
    assert there.artifact is not None
    assert there.code is not None
    assert (there.artifact.read_text(), there.code.read_text()) == ("xml", "code")
    assert there.artifact.with_suffix(".bin").read_text() == "bin"


def test_a_worker_finds_each_file_at_its_place(model: ModelSpec, tmp_path: Path) -> None:
    order = LoadOrder.of(1, model, "a")
    there = placed(order, moved(parcel_of(order, model), ModelCache(tmp_path / "cache")))
    assert (there.folder / "words" / "a.txt").read_text() == "words/a.txt"
    assert there.artifact == there.folder / "a.onnx"
    assert there.artifact.read_text() == "a.onnx"


def test_what_is_there_is_not_wanted_again(model: ModelSpec, tmp_path: Path) -> None:
    cache = ModelCache(tmp_path / "cache")
    first = parcel_of(LoadOrder.of(1, model, "a"), model)
    moved(first, cache)
    assert cache.wanted(Offer(first.digest, first.files)) == ()
    second = parcel_of(LoadOrder.of(1, model, "b"), model)
    assert cache.wanted(Offer(second.digest, second.files)) == (sha256(b"b.onnx").hexdigest(),)


def test_another_content_makes_another_parcel(model: ModelSpec) -> None:
    before = parcel_of(LoadOrder.of(1, model, "a"), model).digest
    assert parcel_of(LoadOrder.of(2, model, "a"), model).digest == before
    written(model.folder / "model.py", "new code")
    assert parcel_of(LoadOrder.of(1, model, "a"), model).digest != before


def test_a_content_that_changed_on_its_way_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    cache = ModelCache(tmp_path)
    with pytest.raises(ParcelError, match="where 0000"):
        cache.take("0" * 64, b"other", True)
    assert not [*(tmp_path / "blobs").iterdir()]


@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "a/../../b", "", "a\0b"])
def test_no_name_leaves_the_parcel(tmp_path: Path, name: str) -> None:
    cache = ModelCache(tmp_path)
    with pytest.raises(ParcelError, match="no name below a folder"):
        cache.wanted(Offer("0" * 64, (ParcelFile("folder", name, 1, "1" * 64),)))


@pytest.mark.parametrize("digest", ["../x", "", "0" * 63])
def test_no_digest_leaves_the_cache(tmp_path: Path, digest: str) -> None:
    cache = ModelCache(tmp_path)
    with pytest.raises(ParcelError, match="is no parcel"):
        cache.wanted(Offer(digest, ()))
    with pytest.raises(ParcelError, match="is no content"):
        cache.take(digest, b"", True)


def test_a_killed_nodes_scraps_are_swept(tmp_path: Path) -> None:
    written(tmp_path / "blobs" / ".part")
    written(tmp_path / "parcels" / ".part" / "folder" / "a")
    ModelCache(tmp_path)
    assert not [*(tmp_path / "blobs").iterdir(), *(tmp_path / "parcels").iterdir()]


def test_what_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    cache = ModelCache(tmp_path)
    cache.take("0" * 64, b"a part", False)
    assert [*(tmp_path / "blobs").iterdir()]
    cache.give_up()
    assert not [*(tmp_path / "blobs").iterdir()]


def test_what_is_over_the_bound_goes_but_for_what_is_used(model: ModelSpec, tmp_path: Path) -> None:
    cache = ModelCache(tmp_path / "cache")
    used = parcel_of(LoadOrder.of(1, model, "a"), model)
    other = parcel_of(LoadOrder.of(1, model, "b"), model)
    for each in (used, other):
        moved(each, cache)
    cache.prune(0, {used.digest: ...})
    assert cache.wanted(Offer(used.digest, used.files)) == ()
    assert cache.wanted(Offer(other.digest, other.files)) == (sha256(b"b.onnx").hexdigest(),)
