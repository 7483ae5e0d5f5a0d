"""Faults: what Docwell loses when things are killed, which is nothing."""
