"""Measurements of speed, the leaderboard of real shifts and studies; run from a clone, never installed."""
