"""Texts into vectors: one contract, with a local model, our own embedder process or an OpenAI-compatible API behind it."""
