"""Tests of `simulations`."""
