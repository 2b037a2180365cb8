"""The engine process: start vLLM, drive the batch plan, collect evidence. Runs in an engine environment."""
