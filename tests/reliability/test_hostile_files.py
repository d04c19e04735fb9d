"""One file for each thing that hostile files were once able to do."""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from deep.config import DeepConfig
from deep.experiments.comparison import open_run
from deep.ledger import Ledger
from deep.predict.models import OnnxClassifier
from deep.predict.sets import read_outputs
from ntk.store import TileStore
from projnorm.files import memory_ceiling, open_file, parse_json, read_file
from projnorm.runs import DamagedRecordError, from_npy, from_npz, listing, load, map_npy, to_npz
from projnorm.text import MalformedFileError, load_pair_classifier, read_pairs
from projnorm.vision import load_splits, open_cifar_c
from projnorm.vision.cifar_pickles import read_batch
from projnorm.vision.datasets import read_image_set
from projnorm.vision.weights import read_state
from tests.reliability import archives, pickled, seeds
from tests.reliability.readers import RUN

DEEP = b"[" * 100_000


@pytest.fixture
def little(monkeypatch) -> None:
    """A ceiling of 1 MB."""
    monkeypatch.setenv("PROJNORM_MAX_READ_GB", "0.001")


def npy_saying(descr: str, shape: str, held: int = 0) -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(held)


def npz_of(**members: bytes) -> bytes:
    return seeds.zipped({f"{name}.npy": data for name, data in members.items()})


def test_a_pipe_or_device_is_refused_and_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.npz")
    for path in (tmp_path / "x.npz", Path("/dev/zero")):
        for read in (read_file, open_file, read_image_set, read_outputs, map_npy, read_pairs):
            with pytest.raises(ValueError, match=f"{path}: is a pipe or a device, not a regular file; copy"):
                read(path)
    os.mkfifo(tmp_path / "x.tar.gz")
    with pytest.raises(ValueError, match="is a pipe"):
        load_splits(tmp_path / "x.tar.gz")
    with pytest.raises(IsADirectoryError):
        read_file(tmp_path)


@pytest.mark.usefixtures("little")
def test_a_file_above_the_ceiling_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "large.npz"
    with path.open("wb") as file:
        file.truncate(10**13)
    with pytest.raises(
        ValueError, match=r"large\.npz: has 10,000,000,000,000 bytes, at most 1,000,000 are read; set PRO"
    ):
        read_file(path)
    with pytest.raises(ValueError, match=r"at most 5 are read\.$"):
        read_file(path, most=5)
    path.rename(tmp_path / "large.tar.gz")
    with pytest.raises(ValueError, match="at most 256,000,000 are read"):
        load_splits(tmp_path / "large.tar.gz")
    monkeypatch.delenv("PROJNORM_MAX_READ_GB")
    assert 10**8 < memory_ceiling() < 10**14
    for value in ("x", "nan", "-1", "0", "inf"):
        monkeypatch.setenv("PROJNORM_MAX_READ_GB", value)
        with pytest.raises(
            ValueError, match=f"PROJNORM_MAX_READ_GB must be a number of gigabytes above 0; got '{value}'"
        ):
            memory_ceiling()


def test_a_file_that_says_another_size_than_it_has_is_refused():
    with pytest.raises(ValueError, match="changed while it was read"):
        read_file(Path("/proc/self/status"))


@pytest.mark.parametrize("text", [b"9" * 5000, DEEP, b'{"a":' * 100_000, b"\xff", b"", b"{}x"])
def test_json_of_any_depth_or_length_is_one_error(text):
    with pytest.raises(ValueError, match=r"^not a whole JSON document$"):
        parse_json(text)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (npy_saying("'<f8'", "(1000000000000,)", 8), "are 8,000,000,000,000 bytes, and it holds 8"),
        (npy_saying("'<f8'", "(1,)", 16), "are 8 bytes, and it holds 16"),
        (npy_saying("'<f8'", "(0, 10000000000000000)"), r"it has shape \(0, 10000000000000000\)"),
        (npy_saying("'<f8'", "(-1,)", 8), r"it has shape \(-1,\)"),
        (npy_saying("'<U0'", "(1000000000000,)"), "it has entries of type <U0"),
        (npy_saying("('<f4', (2,))", "(1,)", 8), "it has entries of type"),
        (npy_saying("'|O'", "(1,)", 8), "it holds Python objects"),
        (npy_saying("[('a', [('b', '|O')])]", "(1,)", 8), "it holds Python objects"),
        (npy_saying("(" * 1000, "(1,)", 8), "its header is none|Cannot parse header"),
        (npy_saying("'''", "(1,)", 8), "its header is none|Cannot parse header"),
        (b"\x93NUMPY\x03\x00" + npy_saying("'<f8'", "(1,)", 8)[8:], "version 3.0"),
    ],
)
def test_an_array_that_does_not_fit_its_file_is_refused_before_memory_is_reserved(data, reason):
    with pytest.raises(ValueError, match=rf"^not a whole NPY file of a plain array \(.*({reason})"):
        from_npy(data)
    with pytest.raises(ValueError, match=rf"^not a whole NPZ file of plain arrays \(.*({reason})"):
        from_npz(npz_of(a=data))


def test_a_header_of_python_2_is_read_without_a_warning():
    data = npy_saying("'<f8'", "(1L,)", 8)
    assert from_npy(data).tolist() == [0.0]
    assert from_npz(npz_of(a=data))["a"].tolist() == [0.0]


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
@pytest.mark.parametrize("declared", [None, 0, 100])
def test_a_zip_file_unpacks_to_no_more_than_it_says_and_the_ceiling(tmp_path, method, declared, monkeypatch):
    monkeypatch.setattr(archives, "BOMB", 20_000_000)
    archives._packed_zeros.cache_clear()
    with pytest.raises(ValueError, match=r"^not a whole NPZ file of plain arrays \("):
        from_npz(archives.bomb("a.npy", method, declared))
    (tmp_path / "x.zip").write_bytes(archives.bomb("x.jsonl", method, declared))
    with pytest.raises(MalformedFileError, match=r"x\.zip: (unpacks to more|is compressed|is a damaged|must hold)"):
        read_pairs(tmp_path / "x.zip")
    with pytest.raises(
        ValueError, match=r"w\.pth: not a file of plain weights \(.*(unpacks to|not one that torch wrote)"
    ):
        read_state(archives.bomb("a/data.pkl", method, declared), Path("w.pth"))


def test_members_that_are_encrypted_doubled_or_no_arrays_are_refused():
    whole = npz_of(a=seeds.npy(seeds.LOGITS))
    encrypted = bytearray(whole)
    encrypted[whole.index(b"PK\x01\x02") + 8] |= 1
    for data, reason in (
        (bytes(encrypted), "it is encrypted"),
        (archives._zip([("a.npy", seeds.npy(seeds.LOGITS))] * 2, 8, b""), "it has two arrays called 'a'"),
        (seeds.zipped({"a.txt": b"x"}), "a member is no array"),
        (seeds.zipped({"a\nb.npy": seeds.npy(seeds.LOGITS)}), "a member is no array"),
    ):
        with pytest.raises(ValueError, match=f"not a whole NPZ file of plain arrays .{reason}"):
            from_npz(data)


def test_a_comment_of_an_archive_is_no_matter():
    data = archives._zip([("a.npy", seeds.npy(seeds.LOGITS))], 8, b"how it was made")
    np.testing.assert_array_equal(from_npz(data)["a"], seeds.LOGITS)


@pytest.mark.parametrize(
    "array", [np.asfortranarray(np.arange(6).reshape(2, 3)), np.array("x"), np.zeros((0, 3)), np.array(["a", ""])]
)
def test_arrays_of_every_order_and_rank_come_back(tmp_path, array):
    (tmp_path / "x.npy").write_bytes(seeds.npy(array))
    for found in (from_npy(seeds.npy(array)), from_npz(to_npz({"a": array}))["a"], map_npy(tmp_path / "x.npy")):
        np.testing.assert_array_equal(found, array)
        assert (found.dtype, found.shape) == (array.dtype, array.shape)


def test_a_tuple_that_holds_itself_many_times_over_is_refused_soon():
    with pytest.raises(ValueError, match="something else where a name should be"):
        read_batch(pickled.typed_laughs(), width=3072)


def test_a_string_that_is_encoded_time_and_again_is_refused():
    with pytest.raises(ValueError, match="it makes more bytes than it holds"):
        read_batch(pickled.encoded_again(2_000_000, 5_000), width=3072)


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE, tarfile.XHDTYPE])
def test_a_member_of_an_archive_that_says_it_is_huge_is_not_counted_through(tmp_path, kind):
    member = tarfile.TarInfo("other")
    member.type, member.size = kind, 2**60
    (tmp_path / "x.tar.gz").write_bytes(seeds.gzip.compress(member.tobuf(tarfile.GNU_FORMAT) + bytes(1024)))
    with pytest.raises(ValueError, match=r"x\.tar\.gz: not a whole archive of CIFAR"):
        load_splits(tmp_path / "x.tar.gz")


def test_an_archive_of_very_many_members_is_refused(tmp_path):
    header = tarfile.TarInfo("other").tobuf(tarfile.GNU_FORMAT)
    (tmp_path / "x.tar.gz").write_bytes(seeds.gzip.compress(header * 100_000))
    with pytest.raises(ValueError, match="it has more than 1,000 members"):
        load_splits(tmp_path / "x.tar.gz")


def torch_file_of(document: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(seeds.torch_file())) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    files[next(name for name in files if name.endswith("data.pkl"))] = document
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as out:
        for name, content in files.items():
            out.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"\x80\x02cbuiltins\nbytearray\n" + pickled._long(10**12) + b"\x85R.", "it asks for 'builtins.bytearray'"),
        (pickled.encoded_again(10_000, 100), "it asks for '_codecs.encode'"),
        (pickled.copied_again(10, 100), "it calls collections.OrderedDict in a way that no such file does"),
    ],
)
def test_weights_that_would_reserve_memory_are_refused(document, reason):
    for data in (torch_file_of(document), document):
        with pytest.raises(ValueError, match=rf"w\.pth: not a file of plain weights \({reason}"):
            read_state(data, Path("w.pth"))


def test_whole_checkpoints_of_either_format_are_read():
    for legacy in (False, True):
        state = read_state(seeds.torch_file(legacy=legacy), Path("w.pth"))
        assert torch.equal(state["weight"], torch.ones(2, 3))


@pytest.mark.parametrize("shape", [[0, 2**62, 4], [4]])
def test_safetensors_of_absurd_shapes_or_unknown_types_are_refused(shape):
    entry = {"dtype": "F32" if 0 in shape else "F3", "shape": shape, "data_offsets": [0, 0]}
    header = json.dumps({"w": entry}).encode()
    with pytest.raises(ValueError, match=r"w\.safetensors: not a safetensors file \("):
        read_state(struct.pack("<Q", len(header)) + header, Path("w.safetensors"))


def record_with(folder: Path, arrays: bytes | None = None, **fields: object) -> Path:
    document = {**json.loads(seeds.record()[0]), **fields}
    data = seeds.record()[1] if arrays is None else arrays
    if arrays is not None:
        document["arrays_sha256"] = hashlib.sha256(arrays).hexdigest()
    place = folder / document["id"]
    place.mkdir()
    (place / f"arrays-{hashlib.sha256(data).hexdigest()[:12]}.npz").write_bytes(data)
    (place / "record.json").write_text(json.dumps(document), encoding="utf-8")
    return place


@pytest.mark.parametrize(
    ("arrays", "fields"),
    [
        (b"no arrays", {}),
        (to_npz({"other": np.zeros(1)}), {}),
        (None, {"wall_seconds": 10**400}),
        (None, {"wall_seconds": float("nan")}),
        (None, {"facts": [1]}),
        (None, {"arrays_sha256": "\0"}),
        (None, {"arrays_sha256": "../../../../x"}),
    ],
)
def test_a_record_that_lies_is_damaged_and_the_others_are_still_listed(tmp_path, arrays, fields):
    place = record_with(tmp_path, arrays, **fields)
    with pytest.raises(DamagedRecordError, match=place.name):
        load(place)
    (entry,) = listing(tmp_path)
    assert entry.problem


@pytest.mark.parametrize(
    "text", [DEEP, b"9" * 5000, b"[1]", b'{"config": [1]}', b'{"config": {"m": 1.5}}', b'{"config": {"x": 1}}']
)
def test_documents_that_are_none_are_said_to_be_none(tmp_path, text, caplog):
    record = tmp_path / "toy-0"
    record.mkdir()
    (record / "record.json").write_bytes(text)
    with pytest.raises(DamagedRecordError, match=r"record\.json: not a"):
        load(record)
    run = tmp_path / RUN
    run.mkdir()
    (run / "run.json").write_bytes(text)
    with pytest.raises(ValueError, match=r"run\.json( is damaged|: not the description of a run)"):
        open_run(run)
    (tmp_path / "ledger.jsonl").write_bytes(text + b"\n")
    assert Ledger(tmp_path / "ledger.jsonl").rows == []
    assert "ledger.jsonl: line 1 damaged" in caplog.text
    (tmp_path / "manifest.json").write_bytes(text)
    assert TileStore(tmp_path, {"a": 1}).damaged == []
    assert "manifest.json is damaged" in caplog.text


def test_a_row_with_a_number_of_too_many_digits_is_passed_over(tmp_path, caplog):
    row = json.loads(seeds.ledger().splitlines()[0])
    row.pop("seal", None)
    (tmp_path / "x").write_text(json.dumps({**row, "m": 10**40}) + "\n", encoding="utf-8")
    assert Ledger(tmp_path / "x").rows == []
    assert "line 1 damaged" in caplog.text


@pytest.mark.parametrize(
    ("field", "value"),
    [("m", 1.5), ("m", True), ("lr", "1"), ("lr", 10**400), ("families", "fog"), ("families", [1]), ("x", 1)],
)
def test_a_configuration_with_a_value_of_another_type_is_refused(field, value):
    with pytest.raises(ValueError, match=field):
        DeepConfig.from_json({field: value})
    with pytest.raises(ValueError, match="named fields"):
        DeepConfig.from_json([])  # type: ignore[arg-type]


@pytest.mark.usefixtures("little")
def test_labels_of_corrupted_images_above_the_ceiling_are_refused(tmp_path):
    header = npy_saying("'|u1'", "(5000000,)")
    with (tmp_path / "labels.npy").open("wb") as file:
        file.write(header)
        file.truncate(len(header) + 5_000_000)
    with pytest.raises(ValueError, match=r"labels\.npy: has .* at most 1,000,000 are read"):
        open_cifar_c(tmp_path)


def test_more_images_than_the_ceiling_are_refused_before_they_are_unpacked(tmp_path, monkeypatch):
    (tmp_path / "class").mkdir()
    for number in range(5):
        (tmp_path / "class" / f"{number}.png").write_bytes(seeds.picture("PNG"))
    monkeypatch.setenv("PROJNORM_MAX_READ_GB", "0.0000009")
    with pytest.raises(ValueError, match="5 images of 8 x 8 px do not fit into memory; resize them first"):
        read_image_set(tmp_path)


def test_a_small_file_that_says_it_is_a_huge_image_is_refused(tmp_path):
    data = bytearray(seeds.picture("BMP"))
    data[18:26] = struct.pack("<ii", 6_881_288, 8)
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "x.bmp").write_bytes(data)
    with pytest.raises(ValueError, match=r"x\.bmp: .*it says 6881288 x 8 px, and has 246 bytes"):
        read_image_set(tmp_path)


def test_pairs_with_a_broken_stream_or_a_deep_label_are_one_line(tmp_path):
    data = bytearray(seeds.zipped({"x.jsonl": seeds.pairs_json() * 20}))
    data[60:70] = b"\xff" * 10
    (tmp_path / "x.zip").write_bytes(data)
    with pytest.raises(MalformedFileError, match=r"x\.zip: is a damaged archive"):
        read_pairs(tmp_path / "x.zip")
    for label, said in (
        ("[" * 500 + "]" * 500, "'a list' is no label"),
        ('"' + "x" * 10**6 + '"', "'x{40}' is no label"),
    ):
        (tmp_path / "x.jsonl").write_text(
            f'{{"sentence1": "a", "sentence2": "b", "gold_label": {label}}}\n', encoding="utf-8"
        )
        with pytest.raises(MalformedFileError, match=said) as error:
            read_pairs(tmp_path / "x.jsonl")
        assert len(str(error.value)) < 500


def test_a_damaged_onnx_file_says_nothing_besides(tmp_path, capfd):
    (tmp_path / "n.onnx").write_bytes(seeds.onnx_network().replace(b"Gemm", b"G\xf8mm"))
    with pytest.raises(ValueError, match=r"n\.onnx: onnxruntime cannot read it"):
        OnnxClassifier.of(tmp_path / "n.onnx")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "changed",
    [
        {"hidden_act": None},
        {"num_attention_heads": 0},
        {"vocab_size": "x"},
        {"hidden_size": -1},
        {"num_hidden_layers": 10**9},
        {"vocab_size": 10**12},
        {"hidden_size": 2**40},
    ],
)
def test_a_text_checkpoint_whose_configuration_is_wrong_is_one_line(tmp_path, changed):
    for name, data in seeds.text_checkpoint().items():
        (tmp_path / name).write_bytes(data)
    document = {**json.loads(seeds.text_checkpoint()["config.json"]), **changed}
    (tmp_path / "config.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ValueError, match=r"no checkpoint could be read there|another shape") as error:
        load_pair_classifier(str(tmp_path), num_outputs=3, seed=0)
    assert "\n" not in str(error.value)
