"""Tests of `monitor`."""
