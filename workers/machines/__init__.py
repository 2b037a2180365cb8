"""Engines over several machines: an actor on each, of which the first leads.

``follower`` is the actor that the others have, ``followers`` how the leader asks them. ``elsewhere`` is what they have
of one arm, ``listener`` hears one of them, and ``translate`` makes of what it tells what might have happened here.
"""
