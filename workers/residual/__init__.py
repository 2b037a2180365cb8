"""Residual comparison: un-shard, compare, score, localise. NumPy and torch only, no vLLM."""
