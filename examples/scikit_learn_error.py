"""How wrong is my scikit-learn model on new, unlabelled data?

A random forest that reads digits is given noisier and noisier digits. The estimate with its 90 % interval uses the
labelled validation set and the new inputs; the true error is shown for comparison.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

import projnorm as pn

# A model, labelled data that it was not trained on, and new data in six strengths of noise. The labels `y[1200:]` are
# used at the end only, to show the truth.
X, y = load_digits(return_X_y=True)
model = RandomForestClassifier(random_state=0).fit(X[:600], y[:600])
rng = np.random.default_rng(0)
noise = (0, 1, 2, 3, 4, 6)
targets = {f"noise {sigma}": X[1200:] + rng.normal(0, sigma, X[1200:].shape) for sigma in noise}

# The model is asked once per data set; several targets share everything that is learnt from the validation set.
estimates = pn.estimate_errors(model, (X[600:1200], y[600:1200]), targets)
truth = [np.mean(model.predict(inputs) != y[1200:]) for inputs in targets.values()]
for (name, estimate), true in zip(estimates.items(), truth, strict=True):
    error, low, high = 100 * estimate.error, 100 * estimate.low, 100 * estimate.high
    print(f"{name}: {error:.1f} % ({low:.1f} % to {high:.1f} %), in truth {100 * true:.1f} %")

# Each estimate has `error`, `low` and `high`; the bars are not symmetric.
error = np.array([estimate.error for estimate in estimates.values()])
ends = np.array([[e.error - e.low, e.high - e.error] for e in estimates.values()]).T
figure, axis = plt.subplots(figsize=(5, 3.2), layout="constrained")
axis.errorbar(noise, 100 * error, 100 * ends, marker="o", capsize=3, label="estimate, 90 % interval")
axis.plot(noise, 100 * np.array(truth), "kx", label="truth")
axis.set(xlabel="standard deviation of the noise", ylabel="error (%)")
axis.legend()
figure.savefig(Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "scikit_learn_error.png", dpi=80)
