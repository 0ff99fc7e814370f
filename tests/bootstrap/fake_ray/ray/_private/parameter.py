"""What a node is told."""

from types import SimpleNamespace


class RayParams(SimpleNamespace):
    """Every name that it is given."""
