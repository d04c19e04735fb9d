"""The data of runs on text: pairs of sentences, or single texts, which are pairs without a second sentence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deep.comparison.config import TextConfig
from deep.comparison.run_data import RunData, require_trainable, split_order
from projnorm.core.errors import InputError
from projnorm.core.files import locate
from projnorm.data.encoding import EncodedPairs
from projnorm.data.nli import LABELS, TWO_WAY, Pairs, joined, read_pairs
from projnorm.data.subsets import CATEGORY, subsets
from projnorm.data.targets import Target
from projnorm.data.templates import DIALS, TEMPLATES, is_made, made_family, made_pairs
from projnorm.data.texts import are_texts, texts_and_labels
from projnorm.models.text_networks import load_encode

# Origins of targets; a family is a whole set with its parts.
HELD_OUT, GIVEN, PART, MADE = "clean", "given", "part", "made"
MERGING = "where a set has two labels, predictions of neutral and contradiction count as non-entailment"
_LONGEST_NAME = 80
# What each of `LABELS` counts as where neutral and contradiction are not told apart.
_MERGED = tuple(TWO_WAY.index("entailment" if label == "entailment" else "non-entailment") for label in LABELS)


@dataclass(frozen=True, slots=True, eq=False)
class _Set:
    """A whole set to predict on."""

    name: str
    family: str
    severity: int
    origin: str
    pairs: Pairs

    @property
    def merge(self) -> tuple[int, ...]:
        return _MERGED if self.pairs.classes == TWO_WAY else ()


def load_text_data(config: TextConfig) -> RunData:
    """Read, split, take apart, draw and encode."""
    data, network = config.data, config.network
    whole = _pairs(data.data)
    if whole.classes == TWO_WAY:
        raise InputError(f"{data.data}: training pairs must have three labels, {', '.join(LABELS)}; it has two.")
    rng = np.random.default_rng(config.seed)
    held_out, learnt, left = split_order(len(whole), data.n, data.n_validation, rng, whole.name)
    sets = [_held_out(data.test, whole.take(left)), *map(_target_set, data.targets)]
    _require_classes(whole, sets)
    if config.projnorm.labels == "true" and (two_way := [test_set.name for test_set in sets if test_set.merge]):
        raise InputError(f"`labels` true needs targets with three labels to train on; {two_way[0]} has two.")
    encode = load_encode(network.model, network.length)

    def encoded(pairs: Pairs) -> EncodedPairs:
        return EncodedPairs(pairs.name, encode(pairs.premises, pairs.hypotheses, network.length), pairs.labels)

    train = whole.take(learnt)
    trained_on = set(zip(train.premises, train.hypotheses, strict=True))
    targets, small, known = [], [], {}
    for test_set in sets:
        everything = {test_set.name: (test_set.origin, np.arange(len(test_set.pairs)))}
        parts = {
            f"{test_set.name}, {part}": (PART, members)
            for kind in data.subsets
            for part, members in subsets(test_set.pairs, kind).items()
        } | {
            f"{test_set.name}, {100 * share:g}% {whole.classes[-1]}": (
                PART,
                _mixed(test_set.pairs, share, data.m, rng),
            )
            for share in data.shares
            if not test_set.merge
        }
        for name, (origin, members) in (everything | parts).items():
            if origin == PART and len(members) < data.m:
                small.append(name)
                continue
            chosen = test_set.pairs.take(np.sort(rng.permutation(members)[: data.m]))
            targets.append(Target(name, test_set.family, test_set.severity, origin, encoded(chosen), test_set.merge))
            if again := sum(pair in trained_on for pair in zip(chosen.premises, chosen.hypotheses, strict=True)):
                known[name] = again
    _require_distinct(targets)
    samples = encoded(train)
    require_trainable(samples, tuple(targets), config.methods)
    facts: dict[str, object] = {
        "parts_left_out_for_fewer_than_m_pairs": small,
        "sets_of_fewer_than_m_pairs": [t.name for t in targets if len(t.samples) < data.m],
        "pairs_that_were_trained_on": known,
        "pairs_without_a_gold_label": {
            test_set.name: test_set.pairs.unlabelled for test_set in sets if test_set.pairs.unlabelled
        },
    }
    if two_way := [target.name for target in targets if target.merge]:
        facts |= {"two_way_targets": two_way, "merged": MERGING}
    return RunData(samples, encoded(whole.take(held_out)), tuple(targets), len(whole.classes), facts)


def _held_out(test: str, left: Pairs) -> _Set:
    """In-distribution pairs that nothing was trained on: a file of their own, or what is left."""
    if test:
        return replace(_target_set(test), family=HELD_OUT, severity=0, origin=HELD_OUT)
    if not len(left):
        raise InputError("no pair is left to predict on in distribution; set `n`, or `test` to a file.")
    return _Set("held out", HELD_OUT, 0, HELD_OUT, left)


def _target_set(spec: str) -> _Set:
    """A set written ``NAME=FILE+FILE``, without the name, or made here."""
    if is_made(spec) and spec != TEMPLATES:
        dial, strength = made_family(spec)
        return _Set(spec, dial, strength, MADE, made_pairs(spec))
    name, equals, files = spec.partition("=")
    if locate(spec).is_file():  # whatever its name is made of
        name, parts = Path(spec).stem, [spec]
    else:
        parts = [part.strip() for part in (files if equals else spec).split("+")]
        name = name.strip() if equals else Path(parts[0]).stem
    if not all(parts):
        raise InputError(f"a target must be FILE or NAME=FILE+FILE; got {spec!r}.")
    if not name or len(name) > _LONGEST_NAME or not name.isprintable() or name in (HELD_OUT, *DIALS):
        taken = ", ".join((HELD_OUT, *DIALS))
        raise InputError(
            f"a target must have a name of 1 to {_LONGEST_NAME} printable characters, none of {taken}; got {name!r}."
        )
    return _Set(name, name, 0, GIVEN, joined(name, [_pairs(part) for part in parts]))


def _pairs(name: str) -> Pairs:
    path = locate(name)
    if is_made(name) or (name.startswith(TEMPLATES) and not path.exists()):
        return made_pairs(name)
    if not name or path.is_dir():
        raise InputError(f"pairs must come from a file; got {name!r}.")
    if not are_texts(path):
        return read_pairs(path, keep=(CATEGORY,))
    texts, labels = texts_and_labels(path)
    if not labels:
        raise InputError(f"{path}: its texts must have a `label`.")
    classes, numbers = np.unique(labels, return_inverse=True)
    return Pairs(path.name, tuple(texts), ("",) * len(texts), numbers.astype(np.int64), tuple(classes.tolist()), {})


def _mixed(pairs: Pairs, share: float, m: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Indices of samples of which this share is of the last class: m, or as many as there are enough of."""
    is_last = pairs.labels == len(pairs.classes) - 1
    last, others = rng.permutation(np.flatnonzero(is_last)), rng.permutation(np.flatnonzero(~is_last))
    size = min(m, int(len(last) / share), int(len(others) / (1.0 - share)))
    count = round(share * size)
    return np.concatenate([last[:count], others[: size - count]])


def _require_classes(whole: Pairs, sets: list[_Set]) -> None:
    """Refuse targets of other classes than the network learns, which may be merged where they are those of NLI."""
    for test_set in sets:
        if test_set.pairs.classes not in (whole.classes, TWO_WAY if whole.classes == LABELS else ()):
            theirs, ours = ", ".join(test_set.pairs.classes), ", ".join(whole.classes)
            raise InputError(f"{test_set.name}: must have the classes of {whole.name}, {ours}; it has {theirs}.")


def _require_distinct(targets: list[Target[EncodedPairs]]) -> None:
    names = [target.name for target in targets]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"no two targets may be called {name!r}; give them names, as in NAME=FILE.")
