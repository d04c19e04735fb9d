"""Tests of `shifts`."""
