"""The states of a node."""


class GcsNodeInfo:
    """A node of the table."""

    ALIVE = 0
    DEAD = 1

    def __init__(self, address: str, state: int) -> None:
        self.node_manager_address = address
        self.state = state
