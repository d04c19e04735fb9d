"""ProjNorm of networks, the methods it is compared with, error estimates, and the experiments."""
