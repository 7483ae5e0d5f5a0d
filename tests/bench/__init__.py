"""Measurements: ratios and medians of one run, never a timed test. `make bench` runs them all."""
