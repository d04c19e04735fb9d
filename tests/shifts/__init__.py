"""Tests of the benchmark of real shifts."""
