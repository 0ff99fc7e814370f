"""The error that every error of Ray derives from."""


class RayError(Exception):
    """Any failure of Ray."""
