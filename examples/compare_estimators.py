"""Which estimator predicts the error of my model best?

Every method that needs no more than outputs scores shifted copies of a test set; R^2 says how well a straight line from
score to error fits. Replace the model and the shifts by your own.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import projnorm as pn

# A model, and seventeen shifted copies of a test set: noise, missing pixels, moved pictures, other contrast.
X, y = load_digits(return_X_y=True)
model = LogisticRegression(C=0.01, max_iter=1000).fit(X[:600], y[:600])
source = pn.Outputs(np.log(model.predict_proba(X[600:1200]) + 1e-12), labels=y[600:1200])

rng, new = np.random.default_rng(0), X[1200:]
shifted = [new + rng.normal(0, sigma, new.shape) for sigma in (0, 1, 2, 3, 4, 5, 6, 8)]
shifted += [new * (rng.random(new.shape) > share) for share in (0.1, 0.2, 0.3, 0.4, 0.6)]  # missing pixels
shifted += [np.roll(new.reshape(-1, 8, 8), pixels, axis=2).reshape(-1, 64) for pixels in (1, 2)]
shifted += [np.clip(new * contrast, 0, 16) for contrast in (0.3, 2)]
# Every registered method that needs only outputs and labels of the source is scored on all of them.
targets = [pn.Outputs(np.log(model.predict_proba(inputs) + 1e-12), labels=y[1200:]) for inputs in shifted]
errors, quality = [target.error for target in targets], {}
for name, method in pn.ESTIMATORS.items():
    if method.needs <= {"labels"}:
        scores = [method().fit(source).score(target) for target in targets]
        quality[name] = np.corrcoef(scores, errors)[0, 1] ** 2
names = sorted(quality, key=quality.get)
print("\n".join(f"{name:12} R^2 {quality[name]:.3f}" for name in reversed(names)))

figure, axis = plt.subplots(figsize=(5, 3.6), layout="constrained")
axis.barh(names, [quality[name] for name in names])
axis.set_xlabel("R^2 between score and error over 17 shifted sets")
figure.savefig(Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "compare_estimators.png", dpi=80)
