"""Tests of `labels`."""
