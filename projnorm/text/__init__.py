"""Pairs of sentences with a label: readers of the published sets for natural language inference."""

from projnorm.text.nli import LABELS, TWO_WAY, MalformedFileError, Pairs, read_pairs

__all__ = ["LABELS", "TWO_WAY", "MalformedFileError", "Pairs", "read_pairs"]
