"""From an accepted sweep to its verdicts: questions to the engine environment, arms, Ray, recovery."""

import os

# Read as Ray is imported: a call that comes after a shutdown must not start another Ray by itself.
os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
