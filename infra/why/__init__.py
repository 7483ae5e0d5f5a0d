"""Why a document is, or is not, found: each stage from the ignore rule to the rank, with evidence and cure."""
