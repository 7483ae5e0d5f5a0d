"""From parsed documents to passages: pure functions."""
