"""A process that has imported vLLM and forks engines on request, so that not every start pays for the imports again.

``workers.zygote.server`` is that process, ``workers.zygote.client`` starts it and asks it for engines. What may not
cross from it to an engine is anything compiled, or where compiled things lie: see ``workers.zygote.preload``.
"""
