"""Tests of `outputs`."""
