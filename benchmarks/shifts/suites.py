"""The registry of the benchmark: each suite is a data set, its source domains, and the models trained on them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.shifts.agreement import AGREEMENT_SETS, Agreement, agreement
from benchmarks.shifts.cifar import cifar
from benchmarks.shifts.confidence_only import FMOW_NETWORKS, Signals, fmow
from benchmarks.shifts.given_outputs import NANNYML_SETS, nannyml, nannyml_folder
from benchmarks.shifts.image_suites import DIGIT_SETS, OFFICE_DOMAINS, digit_pairs, office, shared_digits
from benchmarks.shifts.models import BOOSTING, LOGISTIC, NETWORK, PIXELS, RESNET, TFIDF
from benchmarks.shifts.problems import GivenOutputs, Places, Problem
from benchmarks.shifts.reviews import REVIEW_SOURCES, encoded_reviews, require_encoder, reviews
from benchmarks.shifts.tables import beijing_quarters, beijing_sites, elec2, flights, flights_folder, made_table

# Tables of the leaderboard: all outputs are known, or only confidences, or only predicted classes.
OUTPUTS, CONFIDENCES, PREDICTED = "outputs", "confidences", "predicted classes"
_TABULAR = (LOGISTIC, BOOSTING, NETWORK)
# Stands for the model where the outputs came with the data.
GIVEN = "given"

Question = Problem | GivenOutputs | Signals | Agreement


@dataclass(frozen=True, slots=True)
class Suite:
    """A data set of the benchmark.

    Attributes:
        name: Name of the suite, with which its cases begin.
        summary: What is predicted and what shifts, in a line.
        load: Function from the places of the data, a setting and a generator to a question.
        settings: Names of the source domains, or of variants; "" where there is one.
        models: Models that are trained; `GIVEN` where outputs came with the data.
        table: Table of the leaderboard that it belongs to.
        is_embedded: Whether its data need no download.
        require: Function that raises `InputError` if a package that the suite needs is not there; called before
            anything is computed.
    """

    name: str
    summary: str
    load: Callable[[Places, str, np.random.Generator], Question]
    settings: tuple[str, ...] = ("",)
    models: tuple[str, ...] = (GIVEN,)
    table: str = OUTPUTS
    is_embedded: bool = False
    require: Callable[[Places], object] | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """A suite with one of its settings and one of its models: what one task of the benchmark computes."""

    suite: str
    setting: str
    model: str

    @property
    def name(self) -> str:
        """Name of the case."""
        return "-".join(filter(None, (self.suite, self.setting, "" if self.model == GIVEN else self.model)))

    def question(self, places: Places, m: int, seed: int) -> Question:
        """The data of the case, the same for every model; targets have at most `m` samples where they are drawn."""
        rng = np.random.default_rng((seed, zlib.crc32(f"{self.suite}-{self.setting}".encode())))
        question = SUITES[self.suite].load(places, self.setting, rng)
        return question.at_most(m, rng) if isinstance(question, Problem | GivenOutputs) else question


SUITES = {
    suite.name: suite
    for suite in (
        Suite(
            "made",
            "a drawn table with moved columns, and with other class shares",
            made_table,
            models=(LOGISTIC, NETWORK),
            is_embedded=True,
        ),
        Suite(
            "shares",
            "scikit-learn's digits with other class shares, corruptions, and both",
            shared_digits,
            ("sklearn",),
            (PIXELS, NETWORK),
            is_embedded=True,
        ),
        Suite("digit-shares", "the same with MNIST and USPS", shared_digits, ("mnist", "usps"), (PIXELS, NETWORK)),
        Suite("elec2", "electricity prices over time", elec2, models=_TABULAR),
        Suite("beijing-sites", "air quality at one site, then eleven", beijing_sites, ("Dongsi", "Huairou"), _TABULAR),
        Suite("beijing-quarters", "air quality from the weather, over quarters", beijing_quarters, models=_TABULAR),
        Suite(
            "flights",
            "late flights by airport and month",
            flights,
            ("departure", "schedule"),
            _TABULAR,
            require=flights_folder,
        ),
        Suite("reviews", "reviews of one kind of product, then fifteen", reviews, REVIEW_SOURCES, (TFIDF,)),
        Suite(
            "encoded-reviews",
            "the same reviews as vectors of a text encoder",
            encoded_reviews,
            REVIEW_SOURCES,
            (LOGISTIC, NETWORK),
            require=require_encoder,
        ),
        Suite("digits", "one set of handwritten digits, then four", digit_pairs, DIGIT_SETS, (PIXELS, NETWORK)),
        Suite("office", "objects in one domain, then three, as SURF features", office, OFFICE_DOMAINS, (LOGISTIC,)),
        Suite("nannyml", "NannyML's own data sets over time", nannyml, NANNYML_SETS, require=nannyml_folder),
        Suite("cifar10", "CIFAR-10 with other class shares, corruptions, and both", cifar, models=(RESNET,)),
        Suite("fmow", "satellite pictures by region and year", fmow, FMOW_NETWORKS, table=CONFIDENCES),
        Suite("agreement", "CIFAR-10.1 and ImageNetV2", agreement, AGREEMENT_SETS, table=PREDICTED),
    )
}


def cases_of(suites: Sequence[str]) -> list[Case]:
    """All cases of these suites."""
    return [
        Case(name, setting, model)
        for name in suites
        for setting in SUITES[name].settings
        for model in SUITES[name].models
    ]
