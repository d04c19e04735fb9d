"""Tests of `estimators`."""
