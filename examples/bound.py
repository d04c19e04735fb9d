"""How large can the loss be on these new inputs?

Intervals for the test loss of a linear model, from the training data and the unlabelled inputs alone. They depend on
rho, the ratio of the lengths of the ground truth projected on the two row spaces, which is unknown without labels; here
it is varied. Replace `X`, `Y` and `X_ood` by your own arrays.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import projnorm as pn

# Inputs with a power-law spectrum; half of the coordinates of the new ones have twice the scale.
rng = np.random.default_rng(0)
scale = np.arange(1, 201) ** -0.5  # eigenvalues that decay like a power law
X, X_ood, theta_star = rng.normal(size=(80, 200)) * scale, rng.normal(size=(60, 200)) * scale, rng.normal(size=200)
X_ood[:, 100:] *= 2  # the shift
Y, Y_ood = X @ theta_star, X_ood @ theta_star

# Both intervals for a range of values of rho share one factorisation, the pair.
pair = pn.LinearPair.from_features(X, X_ood)
rho = np.linspace(0.7, 1.1, 30)
sharp = [pn.sharp_interval(pair, Y, rho=value) for value in rho]
general = [pn.generalised_bound(pair, Y, rho=value) for value in rho]
# With labels of the new data, which one does not have, the true rho and the true loss can be looked up.
truth = pn.check_assumptions(X, Y, X_ood, Y_ood, k=0)
print(f"True loss {truth.test_loss:.3f} at rho = {truth.norms.rho:.2f}.")
interval = pn.sharp_interval(pair, Y, rho=(0.7, 1.1))
print(f"If rho is between 0.7 and 1.1, the loss is between {interval.lower:.3f} and {interval.upper:.3f}.")

figure, axis = plt.subplots(figsize=(5, 3.2), layout="constrained")
axis.fill_between(rho, [b.lower for b in general], [b.upper for b in general], alpha=0.2, label="generalised")
axis.fill_between(rho, [b.lower for b in sharp], [b.upper for b in sharp], alpha=0.5, label="sharp")
axis.plot(truth.norms.rho, truth.test_loss, "kx", label="truth")
axis.set(xlabel="rho", ylabel="test loss", yscale="log")
axis.legend()
figure.savefig(Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "bound.png", dpi=80)
