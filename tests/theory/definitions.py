"""The definitions of the theory, written as plainly as they read: what the library is compared with."""

from __future__ import annotations

import numpy as np


def projector(X: np.ndarray) -> np.ndarray:
    """Orthogonal projector on the row space of `X`."""
    return np.linalg.pinv(X, rcond=1e-11) @ X


def projnorm(theta: np.ndarray, X_ood: np.ndarray) -> float:
    """ProjNormLinear."""
    return float(np.linalg.norm(theta - projector(X_ood) @ theta))


def loss_of_truth(X: np.ndarray, X_ood: np.ndarray, theta_star: np.ndarray) -> float:
    """TestLoss as ``||X~ (I - P) theta*||^2 / m``."""
    outside = theta_star - projector(X) @ theta_star
    return float(np.linalg.norm(X_ood @ outside) ** 2) / len(X_ood)


def rho(X: np.ndarray, X_ood: np.ndarray, theta_star: np.ndarray) -> float:
    """``||P~ theta*|| / ||P theta*||``."""
    return float(np.linalg.norm(projector(X_ood) @ theta_star) / np.linalg.norm(projector(X) @ theta_star))


def loss_scale(X_ood: np.ndarray, theta_star: np.ndarray) -> float:
    """The largest loss weights of the size of `theta_star` could have; what tolerances on a loss are relative to."""
    return float(np.linalg.norm(X_ood, 2) ** 2 * np.linalg.norm(theta_star) ** 2) / len(X_ood)
