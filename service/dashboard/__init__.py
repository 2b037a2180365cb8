"""Pages for people: rendered here, readable without a script, and one file when exported."""

from service.dashboard.export import render_static

__all__ = ["render_static"]
