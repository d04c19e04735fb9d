"""Tests of networks, weights, images and corruptions."""
