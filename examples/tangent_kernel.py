"""Does ProjNormLinear on the tangent kernel of my network predict the error?

Exact kernels over all parameters of a small convolutional network, between training digits and noisy ones.
ProjNormLinear needs no labels of the noisy digits; the error is that of the kernel regression. Replace `network` and
the images by your own.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits

import projnorm as pn

# A network at its initial weights: the kernel is that of the linear model around them.
data, labels = load_digits(return_X_y=True)
images = torch.tensor(data / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
torch.manual_seed(0)
layers = [torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(1024, 1)]
network = torch.nn.Sequential(*layers).eval()

# One call gives the kernel of the training images, and for each target the two blocks that ProjNormLinear needs.
train, new, noise = images[:300], images[300:600], (0.0, 0.1, 0.2, 0.3, 0.5, 0.8)
kernels = pn.gram(network, train, {f"{sigma}": new + sigma * torch.randn(new.shape) for sigma in noise})
Y = np.eye(10)[labels[:300]] - np.eye(10)[labels[:300]].mean(axis=0)
# ProjNormLinear from the blocks, and the error of the kernel regression for comparison, which needs the labels.
norms, errors = [], []
for sigma in noise:
    k_train, k_cross, k_new = kernels.train, kernels.ood_train(f"{sigma}"), kernels.ood(f"{sigma}")
    norms.append(pn.projnorm_linear_from_gram(k_train, Y, k_cross, k_new).value)
    errors.append(np.mean((k_cross @ np.linalg.solve(k_train, Y)).argmax(axis=1) != labels[300:600]))
    print(f"noise {sigma}: ProjNormLinear {norms[-1]:.3f}, error {100 * errors[-1]:.1f} %")

figure, axis = plt.subplots(figsize=(5, 3.2), layout="constrained")
axis.plot(norms, 100 * np.array(errors), "o-")
axis.set(xlabel="ProjNormLinear (no labels needed)", ylabel="error of the kernel regression (%)")
figure.savefig(Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "tangent_kernel.png", dpi=80)
