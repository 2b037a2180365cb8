"""Code that is brought into every process of an engine, as a user's own ``sitecustomize`` would be."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]

_AFTER_IMPORT = '''
import importlib.util
import sys


class AfterImport:
    """Calls ``work`` with the module ``name`` once that is imported, before anybody uses it."""

    def __init__(self, name, work):
        self.name, self.work = name, work

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            self.work(module)

        spec.loader.exec_module = exec_module
        return spec


def after_import(name, work):
    sys.meta_path.insert(0, AfterImport(name, work))
'''


def python_path(folder: Path, code: str) -> str:
    """``PYTHONPATH`` with which every Python process runs ``code`` first; it may call ``after_import(name, work)``."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(f"{_AFTER_IMPORT}\n{code}")
    return f"{folder}:{ROOT}"
