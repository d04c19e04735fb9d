"""Predict how wrong a model will be on new, unlabelled data."""

__version__ = "0.1.0"
