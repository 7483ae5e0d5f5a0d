"""Whether an event comes from whom it says: pure functions over raw bytes, headers and secrets."""
