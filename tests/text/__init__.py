"""Tests of text: readers of pairs of sentences."""
