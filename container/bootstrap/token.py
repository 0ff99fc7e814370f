"""The cluster token: read once from a 0600 file, used for Ray's token authentication and for the control channel."""

import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from container.bootstrap.errors import BAD_INPUT, HostError

TOKEN_FILE_VARIABLE = "COUNTERPOISE_TOKEN_FILE"


@dataclass(frozen=True, kw_only=True)
class Token:
    """A secret that all hosts of one job share; never printed, not even by repr()."""

    value: str = field(repr=False)
    path: Path

    def ray_environment(self) -> dict[str, str]:
        """What every Ray process of this host must see; set even where a stray ~/.ray/auth_token exists."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.path)}

    def proof(self, *parts: str) -> str:
        """An HMAC-SHA256 over `parts`, in hex: shows that the sender has the token without sending it."""
        message = json.dumps(parts)  # keeps the parts apart, and takes any text that a stranger may send
        return hmac.new(self.value.encode(), message.encode(), hashlib.sha256).hexdigest()

    def accepts(self, proof: str, *parts: str) -> bool:
        """Whether `proof` was made with this token over `parts`."""
        return hmac.compare_digest(proof.encode(errors="replace"), self.proof(*parts).encode())


def load_token(environ: Mapping[str, str], *, runtime_dir: Path, is_single_host: bool) -> Token:
    """The job's token, copied to a file of this host's own with mode 0600.

    A job of one host needs nobody else to know it, so it may make its own.

    Raises:
        HostError: several hosts and no token, or a token file that others can read or that holds no token.
    """
    path = runtime_dir / "ray_token"
    source = environ.get(TOKEN_FILE_VARIABLE)
    if source is None and not is_single_host:
        raise HostError(
            BAD_INPUT,
            f"{TOKEN_FILE_VARIABLE}: not set, but this job has several hosts; name a 0600 file with their token",
        )
    value = secrets.token_hex(32) if source is None else _read(Path(source))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(value)
    return Token(value=value, path=path)


def _read(path: Path) -> str:
    try:
        mode = path.stat().st_mode & 0o777
        value = path.read_text(errors="replace").strip()
    except OSError as error:
        raise HostError(BAD_INPUT, f"{TOKEN_FILE_VARIABLE}: cannot read {path} ({error.strerror})") from error
    if mode & 0o077:
        raise HostError(BAD_INPUT, f"{TOKEN_FILE_VARIABLE}: {path} has mode {mode:o}; allowed: 600; chmod 600 it")
    if not re.fullmatch(r"[0-9a-f]{64}", value):
        raise HostError(BAD_INPUT, f"{TOKEN_FILE_VARIABLE}: {path} does not hold 64 hexadecimal characters")
    return value
