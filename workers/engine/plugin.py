"""vLLM's ``vllm.general_plugins`` entry point: runs in every engine process before a model is built."""

from __future__ import annotations

import json
import os

from workers import environment


def register() -> None:
    """Bring the patches into the state this arm asks for, and count what falls back from then on.

    Without our variable the process is not ours.
    """
    asked = os.environ.get(environment.PATCHES)
    if asked:
        from workers.engine.spans import span

        with span("plugins"):
            _register(asked)


def _register(asked: str) -> None:
    from workers.engine import hooks
    from workers.patches import establish
    from workers.probes.fallback import PROBE
    from workers.processes import die_with_parent
    from workers.protocol import Patch, PatchMode
    from workers.watchdog import signals

    die_with_parent()
    # Ranks that are forked do not come here again.
    os.register_at_fork(after_in_child=die_with_parent)
    signals.register()
    establish({Patch(name): PatchMode(mode) for name, mode in json.loads(asked).items()})
    hooks.keep_headers(os.environ.get(environment.HEADERS))
    PROBE.install()
    hooks.watch_compiler()
    _hook_passes()


def _hook_passes() -> None:
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        return
    from vllm.compilation.passes.pass_manager import PostGradPassManager

    from workers.probes.passes import hook

    hook(PostGradPassManager)
