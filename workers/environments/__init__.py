"""Engine environments: interpreters with one vLLM/torch pair each, built where an arm runs, reused, and collected.

The controller builds them for its audits, the run actor for its arms, on its own node. Nothing here is imported by an
engine. This module imports nothing: ``deploy/install_engine.py`` uses a part of the package before anything is
installed.
"""
