"""Part of the stand-in for Ray."""

from types import SimpleNamespace


class ResourceIsolationConfig(SimpleNamespace):
    """Nothing is isolated."""
