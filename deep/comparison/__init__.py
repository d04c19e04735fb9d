"""The comparison of the methods on trained networks: presets, runs, scores and what is analysed of a run."""
