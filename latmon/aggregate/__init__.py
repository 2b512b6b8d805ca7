"""Sums over frames: histograms, roll-ups, the history and windows over it."""
