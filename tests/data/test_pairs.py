"""Pairs in each published form and from templates, parts of sets, words as numbers, and what is wrong with a file."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, strategies as st

from projnorm.core.errors import InputError
from projnorm.data.encoding import IDS, MASK, TYPES, EncodedPairs, hashed_words
from projnorm.data.nli import LABELS, TWO_WAY, Pairs, joined, read_pairs
from projnorm.data.subsets import negated, overlap, subsets
from projnorm.data.templates import DIALS, is_made, made_family, made_pairs
from tests.reliability.samples import zipped

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
    files = {"data/README.txt": b"about", "data/dataset.jsonl": "\n".join(rows).encode()}
    path.write_bytes(zipped(files))
    found = read_pairs(path, keep=["category"])
    assert found.facts == {"category": ("colors", "")}
    assert found.premises == ("A red hat", "A car")
    part = found.take(np.array([1]), "second")
    assert (part.name, part.labels.tolist(), part.facts["category"]) == ("second", [0], ("",))
    assert part.sha256 != found.sha256
    path.write_bytes(zipped(files | {"__MACOSX/data/._dataset.jsonl": b"junk"}))
    assert read_pairs(path).sha256 == read_pairs(path, keep=["category"]).sha256 == found.sha256


def test_pairs_without_a_gold_label_are_counted_whatever_else_they_lack(tmp_path):
    path = tmp_path / "pairs.jsonl"
    labelled = (("", "-"), ("B", None), ("B", -1), ("B", 2))
    rows = [_line(sentence1="A", sentence2=other, gold_label=label) for other, label in labelled]
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
        (b"premise\thypothesis\tlabel\nA\t\xff\t0\n", "line 2: is not UTF-8"),
        (zipped({"a.jsonl": FORMS["AWPNLI.jsonl"][0][0].encode()})[:60], "damaged archive"),
        (zipped({"a.jsonl": b"{}", "b.jsonl": b"{}"}), "must hold one"),
    ],
    ids=lambda value: "a file" if isinstance(value, bytes) else None,
)
def test_a_malformed_file_is_reported_with_its_line(tmp_path, text, words):
    path = tmp_path / "pairs.tsv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(InputError, match=r"pairs\.tsv") as error:
        read_pairs(path)
    assert words in str(error.value)


def pairs(*both: tuple[str, str], labels: tuple[int, ...] | None = None, classes=LABELS, **facts) -> Pairs:
    premises, hypotheses = zip(*both, strict=True)
    return Pairs("some", premises, hypotheses, np.array(labels or [0] * len(both)), classes, facts)


def test_the_same_name_is_always_the_same_pairs_and_no_two_sets_are_alike():
    one = made_pairs("templates-words-2")
    assert one.sha256 == made_pairs("templates-words-2").sha256
    assert len({made_pairs(f"templates-{dial}-{s}").sha256 for dial in DIALS for s in (1, 2, 3)}) == 9
    assert np.bincount(one.labels).min() > 250


def test_no_pair_is_made_twice_or_both_trained_on_and_shifted():
    names = ("templates", *(f"templates-{dial}-1" for dial in DIALS))
    sets = [made_pairs(name) for name in names]
    training, *shifted = (set(zip(made.premises, made.hypotheses, strict=True)) for made in sets)
    assert [len(training), *map(len, shifted)] == [len(made) for made in sets]
    assert all(training.isdisjoint(pairs) for pairs in shifted)


def test_dials_do_what_they_say():
    plain = made_pairs("templates")
    training = {word for text in (*plain.premises, *plain.hypotheses) for word in text.split()}

    def share(name: str, changed) -> float:
        made = made_pairs(name)
        return float(np.mean([changed(*both) for both in zip(made.premises, made.hypotheses, strict=True)]))

    def unseen(premise: str, _: str) -> bool:
        return not set(premise.split()) <= training

    assert share("templates-words-1", unseen) < share("templates-words-3", unseen)
    assert share("templates-negation-3", unseen) == 0.0
    turned = [share(f"templates-negation-{s}", lambda premise, _: "not" in premise.split()) for s in (1, 2, 3)]
    # Rather more than that: pairs that are trained on are drawn again, and those are never turned.
    np.testing.assert_allclose(turned, [0.28, 0.53, 0.77], atol=0.05)
    longest = max(len(text.split()) for text in plain.premises)
    assert share("templates-filler-3", lambda premise, _: len(premise.split()) > longest) > 0.4


def test_names_of_made_sets():
    names = ("templates", "templates-filler-3", "templates-filler-4", "templates.tsv")
    assert [is_made(name) for name in names] == [True, True, False, False]
    assert made_family("templates-filler-3") == ("filler", 3)
    with pytest.raises(ValueError, match="is not a shifted set of templates"):
        made_family("templates")
    with pytest.raises(ValueError, match="'templates-sound-1' is not a set of templates"):
        made_pairs("templates-sound-1")


def test_parts_by_overlap_are_disjoint_and_cover():
    some = pairs(("a b c d", "a b c"), ("a b", "c d e"), ("A big dog.", "The big cat"), ("x", "x"), ("x", "..."))
    np.testing.assert_allclose(overlap(some), [1.0, 0.0, 1 / 3, 1.0, 0.0])
    found = {name: indices.tolist() for name, indices in subsets(some, "overlap").items()}
    assert found == {"low overlap": [1, 4], "middle overlap": [2], "high overlap": [0, 3]}


@pytest.mark.parametrize(
    ("premise", "hypothesis", "expected"),
    [
        ("He is not here", "He left", True),
        ("He left", "Nobody is here", True),
        ("He isn\u2019t here", "x", True),
        ("I can't", "x", True),
        ("A note on nothingness", "knots", False),
    ],
)
def test_negation_is_a_word_in_either_sentence(premise, hypothesis, expected):
    assert negated(pairs((premise, hypothesis))).tolist() == [expected]
    assert list(subsets(pairs((premise, hypothesis)), "negation")) == (["negation"] if expected else [])


def test_parts_by_category_are_those_of_the_file():
    some = pairs(("a", "b"), ("c", "d"), ("e", "f"), category=("colors", "", "colors"))
    assert {name: found.tolist() for name, found in subsets(some, "category").items()} == {"colors": [0, 2]}
    assert subsets(pairs(("a", "b")), "category") == {}


def test_sets_are_joined_in_order_and_only_if_their_classes_agree():
    one = pairs(("a", "b"), labels=(2,), category=("x",))
    two = pairs(("c", "d"), ("e", "f"), labels=(0, 1), category=("y", "z"))
    both = joined("both", [one, two])
    assert both.premises == ("a", "c", "e")
    assert both.labels.tolist() == [2, 0, 1]
    assert both.facts == {"category": ("x", "y", "z")}
    with pytest.raises(ValueError, match="sets that are joined must have the same classes"):
        joined("mixed", [one, pairs(("a", "b"), classes=TWO_WAY)])
    with pytest.raises(ValueError, match="got none"):
        joined("nothing", [])


SENTENCE = st.text("ab c.X", max_size=30)


@given(premise=SENTENCE, hypothesis=SENTENCE, length=st.integers(5, 40))
def test_encoded_pairs_hold_both_sentences_in_order_or_their_beginnings(premise, hypothesis, length):
    (tokens,) = hashed_words([premise], [hypothesis], length)
    there = int(tokens[MASK].sum())
    assert there <= length
    assert tokens.shape == (3, there)
    ids, types = tokens[IDS].tolist(), tokens[TYPES].tolist()
    (whole,) = hashed_words([premise], [hypothesis], 200)
    long_ids = whole[IDS].tolist()
    split, long_split = ids.index(2), long_ids.index(2)
    assert ids[0] == 1
    assert ids[-1] == 2
    assert types == [0] * (split + 1) + [1] * (there - split - 1)
    assert ids[1:split] == long_ids[1:split]
    assert ids[split + 1 : -1] == long_ids[long_split + 1 :][: there - split - 2]
    if len(long_ids) <= length:
        assert ids == long_ids
    elif split < long_split and there - split < len(long_ids) - long_split:
        assert abs((split - 1) - (there - split - 2)) <= 1


def test_the_hash_of_encoded_pairs_is_of_all_they_hold():
    inputs = hashed_words(["a b", "c"], ["d", "e f"], 16)
    some = EncodedPairs("x", inputs, np.array([0, 1]))
    assert len(some) == 2
    assert some.take(np.array([0, 1])).sha256 == some.sha256
    assert some.take(np.array([1, 0])).sha256 != some.sha256
    assert EncodedPairs("x", inputs, np.array([1, 1])).sha256 != some.sha256
    assert EncodedPairs("other name", inputs, np.array([0, 1])).sha256 == some.sha256
