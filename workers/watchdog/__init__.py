"""Why an engine does not come to its end: limits, stacks of all its processes, the likely cause in words."""

from workers.watchdog.finding import Finding, examine
from workers.watchdog.limits import Expiry, Limit, Limits
from workers.watchdog.phases import Phases

__all__ = ["Expiry", "Finding", "Limit", "Limits", "Phases", "examine"]
