"""ProjNormLinear and the theory on the kernels of a network."""
