"""Gradient features and exact tangent kernels of networks, and the linear theory on them."""
