"""Tests of the neural ProjNorm and what it is compared with."""
