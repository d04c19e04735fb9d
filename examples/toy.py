"""Does ProjNormLinear see a shift that the confidence of a model does not?

The Gaussian toy experiment of the paper: the shift adds noise of standard deviation sigma to coordinates that were zero
in training. The error rises with sigma, and so does ProjNormLinear; the confidence stays where it is.
"""

import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import projnorm as pn

# One record holds every quantity of the experiment, as an array of trials x sigmas with its meaning beside it. A run
# in a folder that lasts is read from its record the next time.
config = pn.ToyConfig(d1=400, d2=200, n=200, m=200, sigmas=(0, 1, 2, 3, 4, 5), trials=10, interval_trials=0)
with tempfile.TemporaryDirectory() as folder:
    record = pn.run_toy(config, pn.RunContext(Path(folder)))

# Three of them: what one wants to know, and two things that can be computed without labels.
figure, axes = plt.subplots(1, 3, figsize=(9, 2.8), layout="constrained")
names = {"test_error": "test error", "projnorm_linear": "ProjNormLinear", "confidence": "confidence score"}
for axis, (name, label) in zip(axes, names.items(), strict=True):
    values = record.arrays[name]
    axis.errorbar(config.sigmas, values.mean(axis=0), values.std(axis=0), marker="o", capsize=3)
    axis.set(xlabel="sigma", ylabel=label, ylim=(0, 1))
    change = values.mean(axis=0)[-1] / values.mean(axis=0)[0] - 1
    print(f"From sigma = 0 to 5 the {label} changes by {100 * change:+.0f} %.")
figure.suptitle("Mean and standard deviation over 10 trials", fontsize="medium")
figure.savefig(Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "toy.png", dpi=80)
