"""How many labels do I need, and of which samples?

A random forest meets noisy digits and asks for labels ten at a time, of samples that are chosen so that few labels say
much. The interval from labels holds whatever the shift is, however often one looks, so labelling stops when it is
narrow enough.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

import projnorm as pn

# The estimator is fitted to the labelled source once, evaluated without labels, then with ten more each round.
X, y = load_digits(return_X_y=True)
model = RandomForestClassifier(random_state=0).fit(X[:600], y[:600])
X_new, y_new = X[1200:] + np.random.default_rng(0).normal(0, 4, X[1200:].shape), y[1200:]
estimator = pn.ErrorEstimator.fit(model, (X[600:1200], y[600:1200]))

# `choose_labels` extends the plan by ten samples a round. `interval="anytime"` allows looking after every round.
plan, steps = None, [(0, estimator.estimate(X_new))]
while steps[-1][0] == 0 or steps[-1][1].high - steps[-1][1].low > 0.2:
    plan = pn.choose_labels(model, (X[600:1200], y[600:1200]), X_new, 10, more=plan)
    plan = plan.with_labels({i: y_new[i] for i in plan.samples})  # here a person would fill in a file
    steps.append((len(plan), estimator.estimate(X_new, labelled=plan, interval="anytime")))
    print(f"{len(plan)} labels: {steps[-1][1]}")

# The first point has no labels: it rests on an assumption about the shift. The others do not.
counts, estimates = zip(*steps, strict=True)
error = np.array([estimate.error for estimate in estimates])
ends = np.array([[e.error - e.low, e.high - e.error] for e in estimates]).T
figure, axis = plt.subplots(figsize=(5, 3.2), layout="constrained")
axis.errorbar(counts, 100 * error, 100 * ends, marker="o", capsize=3, label="estimate, 90 % interval")
axis.axhline(100 * np.mean(model.predict(X_new) != y_new), color="k", ls="--", label="truth")
axis.set(xlabel="number of labels", ylabel="error (%)")
axis.legend()
figure.savefig(Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "few_labels.png", dpi=80)
