"""Tests of the tangent kernels."""
