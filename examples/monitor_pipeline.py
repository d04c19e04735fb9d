"""Has my scikit-learn pipeline become worse since it was deployed?

A pipeline that reads digits is given a batch a day, and a person labels twenty samples of every third batch. From day
15 on the pictures are noisier. The monitor estimates the error of every batch, corrects its estimates by the labels,
and raises an alarm once it is sure that the error has risen above 20 %. From day 15 on the estimates rise but fall
short of the truth, so the alarm that comes, on day 33, is the one by labels.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import projnorm as pn

# Any pipeline will do; the estimator keeps what it learnt from the labelled source.
X, y = load_digits(return_X_y=True)
model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[:600], y[:600])
estimator = pn.ErrorEstimator.fit(model, (X[600:1200], y[600:1200]))
rng = np.random.default_rng(0)

# A batch a day. The second alarm looks at labels alone, so it holds even where estimates are wrong, as they are here.
with tempfile.TemporaryDirectory() as folder:  # in a folder that lasts, tomorrow's batch continues
    monitor = pn.Monitor(estimator, folder, threshold=0.2)
    for day in range(1, 43):
        rows = rng.integers(1200, len(X), 300)
        batch = X[rows] + rng.normal(0, 1 if day < 15 else 2.5, (300, 64))
        known = {"sample": np.arange(20), "label": y[rows[:20]]} if day % 3 == 0 else None
        report = monitor.update(batch, name=f"day {day}", labelled=known)
        print(report, f"(in truth {100 * np.mean(model.predict(batch) != y[rows]):.1f} %)")
    path = Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "monitor_pipeline.png"
    pn.figures.draw_timeline(monitor).savefig(path, dpi=80)
