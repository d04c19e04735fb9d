"""Predictors of the error, a file a method."""
