"""The benchmark of real shifts: data sets with their models, every method on them, and the leaderboard."""
