"""An error as SageMaker answers it."""


class ApiError(Exception):
    """A call that the service refuses, with the code and the HTTP status of its answer."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code, self.message, self.status = code, message, status


class ValidationError(ApiError):
    """A request that the service does not accept."""

    def __init__(self, message: str) -> None:
        super().__init__("ValidationException", message)
