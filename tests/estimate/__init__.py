"""Tests of `estimate`."""
