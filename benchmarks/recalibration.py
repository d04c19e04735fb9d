"""Labels of earlier batches: how much do they improve the estimate of the next one?

    python -m benchmarks.recalibration DATA CACHE OUT.json [--packages SITE_PACKAGES] [--suites elec2,reviews,nannyml]

The targets of the benchmark are taken in their order: of time, or of the domains. A hundred samples of each are chosen
and labelled, and the estimate without labels of the next target is corrected by those of all before. The constants of
`projnorm.estimate.recalibration` were chosen on the suites of `CHOOSING`; the default ones report.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed

from benchmarks.harness import write_result
from benchmarks.shifts.models import BOOSTING, LOGISTIC, TFIDF, fitted
from benchmarks.shifts.problems import GivenOutputs, Places
from benchmarks.shifts.suites import GIVEN, Case, cases_of
from projnorm.core.progress import tracked
from projnorm.core.store import Entry, Store, digest
from projnorm.estimate.error_estimator import ErrorEstimator
from projnorm.estimate.recalibration import Recalibration
from projnorm.estimate.target_estimate import estimate_per_sample
from projnorm.labels.counts import StratumCounts
from projnorm.labels.strata import Strata, strata_count
from projnorm.models.preparation import one_thread

CHOOSING = ("beijing-quarters", "beijing-sites", "office")
REPORTING = ("elec2", "reviews", "nannyml")
MODELS = (LOGISTIC, BOOSTING, TFIDF, GIVEN)
LABELS, DRAWS, MOST, LEVEL, SEED = 100, 20, 1_000, 0.9, 0
REACH = 1.6448536269514722


def computed(places: Places, case: Case) -> Entry:
    """Truth and estimates of every target, without labels and by every draw of labels."""
    with one_thread("cpu"):
        question = case.question(places, MOST, SEED)
        if not isinstance(question, GivenOutputs):
            question = fitted(case.model, question, places, SEED).outputs_on(question)
        estimator = ErrorEstimator.fit(None, question.source)
        free, labelled = [], np.empty((DRAWS, len(question.targets), 2))
        for number, target in enumerate(question.targets):
            by_sample = estimate_per_sample(estimator.fitted, target.without_labels())
            estimate, expected = by_sample.estimate, by_sample.wrong
            free.append((target.error, estimate.error, estimate.low, estimate.high, estimate.sampling_noise))
            strata, wrong = Strata.by_error(expected, strata_count(LABELS)), target.predicted != target.known_labels
            for draw in range(DRAWS):
                samples = strata.draws(LABELS, np.random.default_rng((SEED, number, draw)))
                counts = StratumCounts.from_samples(strata.stratum_of_sample[samples], wrong[samples], strata.sizes)
                labelled[draw, number] = counts.estimate, counts.noise
        return Entry({"free": np.array(free), "labelled": labelled})


def misses(entry: Entry) -> dict[str, np.ndarray]:
    """What each kind of estimate misses, and whether its interval holds, over targets after the first and draws."""
    truth, error, low, high, noise = entry.arrays["free"].T
    spread = (high - low) / (2.0 * REACH)
    missed = {name: [] for name in ("free", "recalibrated", "labelled", "free held", "recalibrated held", "width")}
    for draw in entry.arrays["labelled"]:
        for t in range(1, len(truth)):
            recalibration = Recalibration.fit(draw[:t, 0], error[:t], draw[:t, 1], float(spread[:t].mean()))
            corrected = recalibration.interval(error[t], noise[t], LEVEL)
            missed["free"].append(abs(error[t] - truth[t]))
            missed["recalibrated"].append(abs(corrected.value - truth[t]))
            missed["labelled"].append(abs(draw[t - 1, 0] - truth[t]))
            missed["free held"].append(low[t] <= truth[t] <= high[t])
            missed["recalibrated held"].append(corrected.low <= truth[t] <= corrected.high)
            missed["width"].append(corrected.high - corrected.low)
    return {name: np.array(values, dtype=float) for name, values in missed.items()}


def main() -> None:
    """Compute what is not there, print a line for each case, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("data", "cache", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--packages", default="")
    parser.add_argument("--suites", default=",".join(REPORTING))
    options = parser.parse_args()
    store, places = Store(options.cache), Places(options.data, options.packages, "", "", options.cache)
    cases = [case for case in cases_of(options.suites.split(",")) if case.model in MODELS]
    keys = [f"{case.name}-{digest([LABELS, DRAWS, MOST, SEED, 'noise'])}" for case in cases]
    work = (
        delayed(store.get_or_compute)(key, partial(computed, places, case))
        for key, case in zip(keys, cases, strict=True)
    )
    done = Parallel(n_jobs=2, return_as="generator")(work)
    rows = {}
    for case, entry in zip(cases, tracked(done, description="cases", total=len(cases)), strict=True):
        rows[case.name] = {name: round(float(values.mean()), 4) for name, values in misses(entry).items()}
        print(f"{case.name}: {rows[case.name]}")
    means = {name: round(float(np.mean([row[name] for row in rows.values()])), 4) for name in next(iter(rows.values()))}
    print(f"mean over cases: {means}")
    result = {"labels": LABELS, "draws": DRAWS, "level": LEVEL, "cases": rows, "mean": means}
    write_result(options.out, "python -m benchmarks.recalibration DATA CACHE OUT.json", result)


if __name__ == "__main__":
    main()
