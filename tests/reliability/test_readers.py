"""Every reader takes any input: it gives a result or refuses in one line, soon, in little memory, and does no more."""

from __future__ import annotations

import json
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from projnorm.core.arrays import from_npy, from_npz, map_npy, to_npz
from projnorm.core.files import memory_ceiling, open_file, parse_json, read_file
from projnorm.core.store import Store
from projnorm.data.cifar_c import open_cifar_c
from projnorm.data.datasets import load_splits, read_image_set
from projnorm.data.nli import read_pairs
from projnorm.models.weights import read_state
from tests.reliability import fuzzing, lies, samples
from tests.reliability.confined import examine
from tests.reliability.readers import READERS, Reader


def _broken(said: str, harm: Callable[[Path], object]) -> Reader:
    """A reader that does harm to anything but a whole file; `said` is what must be said of it."""
    return Reader(
        *(said, "bytes", b"whole", "x", lambda path: path.read_bytes() == b"whole" or harm(path)), seconds=0.5
    )


def _refuse(_path: Path) -> None:
    raise ValueError("a\nb")


def _loop(_path: Path) -> None:
    while True:
        pass


BROKEN = {
    reader.name: reader
    for reader in (
        _broken("files appeared", lambda path: path.with_name("new").touch()),
        _broken("ZeroDivisionError", lambda _: 1 / 0),
        _broken("EscapeError", lambda path: (path.parents[2] / "escaped").touch()),
        _broken("MemoryError", lambda _: bytearray(10**9)),
        _broken("TooSlowError", _loop),
        _broken("refused in several lines", _refuse),
        _broken("the process ended with 7", lambda _: os._exit(7)),
    )
}


@pytest.mark.slow
def test_every_reader_gives_a_result_or_refuses_in_one_line(tmp_path):
    rows = examine(list(READERS), 60, 0, tmp_path)
    assert [row["reader"] for row in rows] == list(READERS)
    assert [(row["reader"], failure) for row in rows for failure in row["failures"]] == []
    assert all(row["inputs"] >= 60 for row in rows)


@pytest.mark.slow
def test_a_reader_that_does_more_than_read_is_caught(tmp_path):
    """The confined process itself, with readers that are not as they should be."""
    rows = examine(list(BROKEN), 2, 0, tmp_path, table=f"{__name__}:BROKEN")
    assert [row["reader"] for row in rows] == list(BROKEN)
    for row in rows:
        assert row["reader"] in row["failures"][0]


@pytest.mark.slow
@pytest.mark.skipif(not fuzzing.is_installed(), reason="atheris is not installed; it is in the extra `fuzz`")
def test_a_coverage_guided_fuzzer_finds_nothing_in_a_short_time():
    executions, failures = fuzzing.fuzz("image set .npz", 2.0, 0)
    assert failures == []
    assert executions > 0


@pytest.fixture
def little(monkeypatch) -> None:
    """A ceiling of 1 MB."""
    monkeypatch.setenv("PROJNORM_MAX_READ_GB", "0.001")


def npy_saying(descr: str, shape: str, held: int = 0) -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(held)


def replaced(data: bytes, start: int, new: bytes) -> bytes:
    return data[:start] + new + data[start + len(new) :]


def safetensors_of(kind: str, shape: list[int]) -> bytes:
    header = json.dumps({"w": {"dtype": kind, "shape": shape, "data_offsets": [0, 0]}}).encode()
    return struct.pack("<Q", len(header)) + header


def labelled(label: str) -> bytes:
    return f'{{"sentence1": "a", "sentence2": "b", "gold_label": {label}}}\n'.encode()


def configured(**changed: object) -> bytes:
    return json.dumps({**json.loads(samples.text_checkpoint()["config.json"]), **changed}).encode()


WEIGHTS, TENSORS = "weights .pth", "weights .safetensors"
STRANGE = (
    *(("hidden_act", None), ("num_attention_heads", 0), ("vocab_size", "x"), ("hidden_size", -1)),
    *(("num_hidden_layers", 10**9), ("vocab_size", 10**12), ("hidden_size", 2**40)),
)
NO_CHECKPOINT = "no checkpoint could be read there|another shape"
PRINTS = b"cbuiltins\nprint\n(S'executed'\ntR."
RESERVES = b"\x80\x02cbuiltins\nbytearray\n" + lies.long(10**12) + b"\x85R."


@pytest.mark.parametrize(
    ("reader", "data", "message"),
    [
        *(
            (WEIGHTS, data, rf"w\.pth: not a file of plain weights \({reason}")
            for document, reason in (
                (RESERVES, "it asks for 'builtins.bytearray'"),
                (lies.encoded_again(10_000, 100), "it asks for '_codecs.encode'"),
                (lies.copied_again(10, 100), "it calls collections.OrderedDict in a way that no such file does"),
            )
            for data in (samples.torch_file_with(document), document)
        ),
        *(
            (reader, data, "not a")
            for reader in (WEIGHTS, TENSORS)
            for data in (b"", b"x", b"PK\x03\x04broken", PRINTS)
        ),
        (TENSORS, safetensors_of("F32", [0, 2**62, 4]), r"w\.safetensors: not a safetensors file \("),
        (TENSORS, safetensors_of("F3", [4]), r"w\.safetensors: not a safetensors file \("),
        (
            "image BMP",
            replaced(samples.picture("BMP"), 18, struct.pack("<ii", 6_881_288, 8)),
            r"x\.bmp: .*it claims 6881288 x 8 px in only 246 bytes",
        ),
        (
            "pairs .zip",
            replaced(samples.zipped({"x.jsonl": samples.PAIRS_JSON * 20}), 60, b"\xff" * 10),
            r"x\.zip: is a damaged archive",
        ),
        ("pairs .jsonl", labelled("[" * 500 + "]" * 500), "'a list' is not a label"),
        ("pairs .jsonl", labelled('"' + "x" * 10**6 + '"'), "'x{40}' is not a label"),
        *(("text checkpoint", configured(**{name: value}), NO_CHECKPOINT) for name, value in STRANGE),
        ("network .onnx", samples.onnx_network().replace(b"Gemm", b"G\xf8mm"), "n.onnx: onnxruntime cannot read it"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 30 else "",
)
def test_a_file_that_lies_is_refused_in_one_line_that_says_why(tmp_path, capfd, reader, data, message):
    path = READERS[reader].put(tmp_path, data)
    with pytest.raises(ValueError, match=message) as error:
        READERS[reader].read(path)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 700
    assert capfd.readouterr() == ("", "")


def test_a_pipe_or_device_is_refused_and_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.npz")
    os.mkfifo(tmp_path / "x.tar.gz")
    reads = (read_file, open_file, read_image_set, READERS["outputs .npz"].read, map_npy, read_pairs)
    for path in (tmp_path / "x.npz", Path("/dev/zero")):
        for read in reads:
            with pytest.raises(ValueError, match=f"{path}: is a pipe or a device, not a regular file; copy"):
                read(path)
    with pytest.raises(ValueError, match="is a pipe"):
        load_splits(tmp_path / "x.tar.gz")
    with pytest.raises((IsADirectoryError, ValueError)):
        read_file(tmp_path)


@pytest.mark.usefixtures("little")
def test_a_file_above_the_ceiling_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "large.npz"
    with path.open("wb") as file:
        file.truncate(10**13)
    with pytest.raises(ValueError, match=r"large\.npz: has 10,000,000,000,000 bytes, at most 1,000,000 are read; set"):
        read_file(path)
    with pytest.raises(ValueError, match=r"at most 5 are read\.$"):
        read_file(path, most=5)
    path.rename(tmp_path / "large.tar.gz")
    with pytest.raises(ValueError, match="at most 256,000,000 are read"):
        load_splits(tmp_path / "large.tar.gz")
    header = npy_saying("'|u1'", "(5000000,)")
    with (tmp_path / "labels.npy").open("wb") as file:
        file.write(header)
        file.truncate(len(header) + 5_000_000)
    with pytest.raises(ValueError, match=r"labels\.npy: has .* at most 1,000,000 are read"):
        open_cifar_c(tmp_path)
    monkeypatch.delenv("PROJNORM_MAX_READ_GB")
    assert 10**8 < memory_ceiling() < 10**14
    for value in ("x", "nan", "-1", "0", "inf"):
        monkeypatch.setenv("PROJNORM_MAX_READ_GB", value)
        with pytest.raises(ValueError, match=f"must be a number of gigabytes above 0; got '{value}'"):
            memory_ceiling()


def test_more_images_than_the_ceiling_are_refused_before_they_are_unpacked(tmp_path, monkeypatch):
    (tmp_path / "class").mkdir()
    for number in range(5):
        (tmp_path / "class" / f"{number}.png").write_bytes(samples.picture("PNG"))
    monkeypatch.setenv("PROJNORM_MAX_READ_GB", "0.0000009")
    with pytest.raises(ValueError, match="5 images of 8 x 8 px do not fit into memory; resize them first"):
        read_image_set(tmp_path)


def test_a_file_that_says_another_size_than_it_has_is_refused():
    with pytest.raises(ValueError, match="changed while it was read"):
        read_file(Path("/proc/self/status"))


@pytest.mark.parametrize("text", [b"9" * 5000, b"[" * 100_000, b'{"a":' * 100_000, b"\xff", b"", b"{}x"])
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
        (npy_saying("'|O'", "(1,)", 8), "holds Python objects"),
        (npy_saying("[('a', [('b', '|O')])]", "(1,)", 8), "holds Python objects"),
        (npy_saying("(" * 1000, "(1,)", 8), "it has no header|Cannot parse header"),
        (npy_saying("'''", "(1,)", 8), "it has no header|Cannot parse header"),
        (b"\x93NUMPY\x03\x00" + npy_saying("'<f8'", "(1,)", 8)[8:], "version 3.0"),
    ],
)
def test_an_array_that_does_not_fit_its_file_is_refused_before_memory_is_reserved(data, reason):
    with pytest.raises(ValueError, match=rf"^not a whole NPY file of a plain array \(.*({reason})"):
        from_npy(data)
    with pytest.raises(ValueError, match=rf"^not a whole NPZ file of plain arrays \(.*({reason})"):
        from_npz(samples.zipped({"a.npy": data}))


def test_unusual_but_whole_arrays_are_read():
    data = npy_saying("'<f8'", "(1L,)", 8)  # a header of Python 2
    assert from_npy(data).tolist() == from_npz(samples.zipped({"a.npy": data}))["a"].tolist() == [0.0]
    commented = samples.zipped({"a.npy": samples.npy(samples.LOGITS)}, comment=b"how it was made")
    np.testing.assert_array_equal(from_npz(commented)["a"], samples.LOGITS)


@pytest.mark.parametrize(
    "array", [np.asfortranarray(np.arange(6).reshape(2, 3)), np.array("x"), np.zeros((0, 3)), np.array(["a", ""])]
)
def test_arrays_of_every_order_and_rank_come_back(tmp_path, array):
    (tmp_path / "x.npy").write_bytes(samples.npy(array))
    for found in (from_npy(samples.npy(array)), from_npz(to_npz({"a": array}))["a"], map_npy(tmp_path / "x.npy")):
        np.testing.assert_array_equal(found, array)
        assert (found.dtype, found.shape) == (array.dtype, array.shape)


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
@pytest.mark.parametrize("declared", [None, 0, 100])
def test_a_zip_file_unpacks_to_no_more_than_it_says_and_the_ceiling(tmp_path, method, declared, monkeypatch):
    monkeypatch.setattr(lies, "BOMB", 20_000_000)
    lies._packed_zeros.cache_clear()
    with pytest.raises(ValueError, match=r"^not a whole NPZ file of plain arrays \("):
        from_npz(lies.bomb("a.npy", method, declared))
    (tmp_path / "x.zip").write_bytes(lies.bomb("x.jsonl", method, declared))
    with pytest.raises(ValueError, match=r"x\.zip: (unpacks to more|is compressed|is a damaged|must hold)"):
        read_pairs(tmp_path / "x.zip")
    with pytest.raises(ValueError, match=r"w\.pth: not a file of plain weights \(.*(unpacks to|not one that torch wr)"):
        read_state(lies.bomb("a/data.pkl", method, declared), Path("w.pth"))


def test_members_that_are_encrypted_doubled_or_no_arrays_are_refused():
    array = samples.npy(samples.LOGITS)
    encrypted = bytearray(samples.zipped({"a.npy": array}))
    encrypted[encrypted.index(b"PK\x01\x02") + 8] |= 1
    for data, reason in (
        (bytes(encrypted), "it is encrypted"),
        (samples.zipped([("a.npy", array)] * 2), "it has two arrays called 'a'"),
        (samples.zipped({"a.txt": b"x"}), "a member is not an array"),
        (samples.zipped({"a\nb.npy": array}), "a member is not an array"),
    ):
        with pytest.raises(ValueError, match=f"not a whole NPZ file of plain arrays .{reason}"):
            from_npz(data)


@pytest.mark.parametrize(
    "text", [b"[" * 100_000, b"9" * 5000, b"[1]", b"{}", b'{"checksums": {}}', b'{"checksums": 1}']
)
def test_a_document_that_is_no_entry_is_set_aside_and_reported(tmp_path, text, caplog):
    store = Store(tmp_path)
    store.put("whole", {"a": samples.LOGITS})
    (tmp_path / "key.json").write_bytes(text)
    assert store.get("key") is None
    assert "key.json is damaged" in caplog.text
    store.put("key", {"a": samples.LOGITS})
    assert (tmp_path / "damaged" / "key.json").read_bytes() == text
    assert store.get("whole") is not None
