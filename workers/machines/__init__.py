"""Engines over several machines: an actor on each, of which the first leads.

``follower`` is the actor that the others have, ``followers`` how the leader asks them. ``elsewhere`` is what they have
of one arm, and ``translate`` makes of what they tell what might have happened here.
"""
