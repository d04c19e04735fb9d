"""What is the ProjNorm of my classifier, and does it predict the error?

Algorithm 1 of the paper: from the initial weights, train on the new inputs with the labels that the classifier gives
them, and measure the distance to a reference that was trained on labelled data. Replace network and digits by your own.
"""

import copy
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits

import projnorm as pn

# The classifier whose error is asked for, and the initial weights that it was trained from.
data, labels = load_digits(return_X_y=True)
images = (data / 16).astype(np.float32)
torch.manual_seed(0)
initial = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
recipe, short = pn.Recipe(steps=200, lr=0.1, batch=100), pn.Recipe(steps=20, lr=0.1, batch=100)
network = pn.deep.train(copy.deepcopy(initial), images[:900], labels[:900], recipe, seed=0).eval()


def outputs(inputs, truth):
    """Outputs of the network on some inputs."""
    return pn.Outputs(network(torch.from_numpy(inputs)).detach().numpy(), labels=truth, inputs=inputs)


# `fit` trains the reference; `score` trains once more for each target, for twenty steps.
noise = np.random.default_rng(0).normal(size=images[900:].shape).astype(np.float32)
method = pn.ProjNorm(initial, recipe=short).fit(outputs(images[:897], labels[:897]))  # trains the reference
targets = [outputs(images[900:] + sigma * noise, labels[900:]) for sigma in (0, 0.1, 0.2, 0.3, 0.5, 0.8)]
scores, errors = [method.score(target) for target in targets], [target.error for target in targets]
for score, error in zip(scores, errors, strict=True):
    print(f"ProjNorm {score:.3f}, error {100 * error:.1f} %")
figure, axis = plt.subplots(figsize=(5, 3.2), layout="constrained")
axis.plot(scores, 100 * np.array(errors), "o-")
axis.set(xlabel="ProjNorm (no labels needed)", ylabel="error (%)")
figure.savefig(Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "projnorm_of_classifier.png", dpi=80)
