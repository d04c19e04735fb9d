"""Tests of the whole project; not installed."""
