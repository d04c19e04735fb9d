"""A few lines of each published form, and what is wrong with a file, said with its line."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest

from projnorm.errors import InputError
from projnorm.text import LABELS, TWO_WAY, read_pairs

HANS_HEADER = (
    "gold_label\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse\tsentence1\tsentence2\t"
    "pairID\theuristic\tsubcase\ttemplate"
)
GLUE_HEADER = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse\t"
    "sentence1\tsentence2\tlabel1\tgold_label"
)


def _line(**fields: object) -> str:
    return json.dumps(fields)


FORMS = {
    "mnli.jsonl": (
        [
            _line(annotator_labels=["neutral"], genre="slate", gold_label="neutral", sentence1="A b.", sentence2="C."),
            _line(genre="slate", gold_label="-", sentence1="No", sentence2="gold"),
            _line(genre="travel", gold_label="contradiction", sentence1="D\te", sentence2="F"),
        ],
        [1, 2],
    ),
    "snli.txt": (
        [
            "gold_label\tsentence1_parse\tsentence1\tsentence2\tcaptionID",
            "entailment\t(ROOT)\tA man.\tA person.\t1",
            "-\t(ROOT)\tA dog.\tA cat.\t2",
            "contradiction\t(ROOT)\tA dog.\tA cat.\t3",
        ],
        [0, 2],
    ),
    "dev_matched.tsv": ([GLUE_HEADER, "0\t1\t2\tfiction\tp\tp\tp\tp\tOne.\tTwo.\tneutral\tentailment"], [0]),
    "becel.tsv": (["premise\thypothesis\tlabel", "A\tB\t1", "A\tC\t0", "A\tD\t2"], [1, 0, 2]),
    "hans.txt": (
        [
            HANS_HEADER,
            "non-entailment\tp\tp\tp\tp\tThe men saw us .\tWe saw the men .\tex0\tlexical_overlap\tln_swap\ttemp1",
            "entailment\tp\tp\tp\tp\tThe men ran .\tMen ran .\tex1\tconstituent\tce\ttemp2",
        ],
        [1, 0],
    ),
    "SICK_test_annotated.txt": (
        [
            "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment",
            "6\tThere is no boy\tA group of kids\t3.3\tNEUTRAL",
            "7\tA man\tNo man\t3.7\tCONTRADICTION",
        ],
        [1, 2],
    ),
    "AWPNLI.jsonl": ([_line(s1raw="9 and 7", s2raw="16", gold_label="entailment", num_dict={"a": {"v": 9.0}})], [0]),
    "multinli_0.9_antonym_matched.jsonl": (
        [_line(gold_label="contradiction", sentence1="Hot.", sentence2="Cold.", pairID="1n")],
        [2],
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_each_published_form_is_read(tmp_path, name):
    lines, labels = FORMS[name]
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = read_pairs(path)
    assert found.labels.tolist() == labels
    assert found.classes == (TWO_WAY if name == "hans.txt" else LABELS)
    assert len(found) + found.unlabelled == len(lines) - (not lines[0].startswith("{"))
    assert all(found.premises)
    windows = tmp_path / "windows"
    windows.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    assert read_pairs(windows).sha256 == found.sha256


def test_breaking_nli_is_read_from_its_archive_with_its_categories(tmp_path):
    path = tmp_path / "data.zip"
    rows = [
        _line(sentence1="A red hat", sentence2="A blue hat", gold_label="contradiction", category="colors", pairID=1),
        _line(sentence1="A car", sentence2="An auto", gold_label="entailment", pairID=2),
    ]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data/README.txt", "about")
        archive.writestr("data/dataset.jsonl", "\n".join(rows))
    found = read_pairs(path, keep=["category"])
    assert found.facts == {"category": ("colors", "")}
    assert found.premises == ("A red hat", "A car")
    part = found.take(np.array([1]), "second")
    assert (part.name, part.labels.tolist(), part.facts["category"]) == ("second", [0], ("",))
    assert part.sha256 != found.sha256
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("__MACOSX/data/._dataset.jsonl", "junk")
    assert read_pairs(path).sha256 == read_pairs(path, keep=["category"]).sha256 == found.sha256


def test_pairs_without_a_gold_label_are_counted_whatever_else_they_lack(tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = [
        _line(sentence1="A", sentence2="", gold_label="-"),
        _line(sentence1="A", sentence2="B", gold_label=None),
        _line(sentence1="A", sentence2="B", gold_label=-1),
        _line(sentence1="A", sentence2="B", gold_label=2),
    ]
    path.write_text("\n".join(rows))
    found = read_pairs(path)
    assert (found.unlabelled, found.labels.tolist()) == (3, [2])
    assert found.take([0]).unlabelled == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("some words\nmore", "line 1: must be JSON, or a tab-separated header with one of sentence1"),
        ("premise\thypothesis\tlabel\nA\tB\t0\n\nA\tB", "line 4: has 2 columns; the header has 3"),
        ("premise\thypothesis\tlabel\nA\tB\t7", "line 2: '7' is not a label"),
        ("premise\thypothesis\tlabel\nA\t \t0", "line 2: its hypothesis is not a text"),
        ("premise\thypothesis\tlabel\nA\tB\t-", "has no labelled pairs"),
        ('{"sentence1": "A", "sentence2": "B", "gold_label": "neutral"}\n{"sentence1": ', "line 2: is not JSON"),
        ('{"sentence1": "A", "sentence2": "B", "gold_label": "neutral"}\n[1]', "line 2: is not a JSON object"),
        ('{"sentence1": "A", "gold_label": "neutral"}', "line 1: has none of sentence2, hypothesis"),
        ('{"sentence1": 3, "sentence2": "B", "gold_label": "neutral"}', "line 1: its sentence1 is not a text"),
        ("premise\thypothesis\tlabel\nA\tB\t2\nA\tB\tnon-entailment", "both three-way and two-way labels"),
        ("premise\thypothesis\tlabel\n" + "A" * 10_001 + "\tB\t2", "line 2: its premise has more than 10,000"),
        ("[" * 100_000, "line 1: must be JSON"),
        ('{"a": ' * 100_000, "line 1: is not JSON"),
    ],
)
def test_a_malformed_file_is_reported_with_its_line(tmp_path, text, words):
    path = tmp_path / "pairs.tsv"
    path.write_text(text)
    with pytest.raises(InputError, match=r"pairs\.tsv") as error:
        read_pairs(path)
    assert words in str(error.value)


def test_bytes_that_are_no_text_and_damaged_archives(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_bytes(b"premise\thypothesis\tlabel\nA\t\xff\t0\n")
    with pytest.raises(InputError, match="line 2: is not UTF-8"):
        read_pairs(path)
    whole = tmp_path / "whole.zip"
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("a.jsonl", FORMS["AWPNLI.jsonl"][0][0])
    path.write_bytes(whole.read_bytes()[:60])
    with pytest.raises(InputError, match="damaged archive"):
        read_pairs(path)
    with zipfile.ZipFile(whole, "a") as archive:
        archive.writestr("b.jsonl", "{}")
    with pytest.raises(InputError, match="must hold one"):
        read_pairs(whole)
