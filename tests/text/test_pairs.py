"""Pairs made from templates, parts of sets, sets joined, and words as numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from projnorm.text import LABELS, TWO_WAY, EncodedPairs, Pairs, is_made, joined, made_pairs
from projnorm.text.encoding import IDS, MASK, TYPES, hashed_words
from projnorm.text.subsets import negated, overlap, subsets
from projnorm.text.templates import DIALS, made_family


def pairs(*both: tuple[str, str], labels: tuple[int, ...] | None = None, classes=LABELS, **facts) -> Pairs:
    premises, hypotheses = zip(*both, strict=True)
    return Pairs("some", premises, hypotheses, np.array(labels or [0] * len(both)), classes, facts)


def test_the_same_name_is_always_the_same_pairs_and_no_two_sets_are_alike():
    one = made_pairs("templates-words-2")
    assert one.sha256 == made_pairs("templates-words-2").sha256
    assert len({made_pairs(f"templates-{dial}-{s}").sha256 for dial in DIALS for s in (1, 2, 3)}) == 9
    assert np.bincount(one.labels).min() > 250


def test_no_pair_is_made_twice_or_both_trained_on_and_shifted():
    plain = made_pairs("templates")
    training = set(zip(plain.premises, plain.hypotheses, strict=True))
    assert len(training) == len(plain)
    for dial in DIALS:
        made = made_pairs(f"templates-{dial}-1")
        shifted = set(zip(made.premises, made.hypotheses, strict=True))
        assert len(shifted) == len(made)
        assert not shifted & training


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
    assert is_made("templates")
    assert is_made("templates-filler-3")
    assert not is_made("templates-filler-4")
    assert not is_made("templates.tsv")
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
