"""The rows of the corpus, one module for each kind: sources, documents with their versions, and what is searched."""
