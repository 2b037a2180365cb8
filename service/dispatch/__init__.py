"""From an accepted sweep to its verdicts: questions to the engine environment, arms, Ray, recovery."""
