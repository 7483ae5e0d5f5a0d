"""Where work comes from, and where a job reads its bytes."""
