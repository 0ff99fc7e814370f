"""Writes the list of timm's models that the contract knows, where the installed timm has another."""

from datetime import UTC, datetime

import timm

from docs.generate import ROOT
from training.contract.models import SOURCE

MODELS_FILE = ROOT / "training" / "contract" / "timm_models.txt"


def models_text(day: str) -> str:
    """The whole text of the list: where it is from and when it was read, then one name a line."""
    return "\n".join([f"timm.list_models() of timm {timm.__version__}, read {day}", *timm.list_models()]) + "\n"


def is_current() -> bool:
    """Whether the list is that of the installed timm, whenever it was read."""
    return MODELS_FILE.read_text(encoding="ascii") == models_text(SOURCE.rpartition(" ")[2])


if __name__ == "__main__" and not is_current():
    MODELS_FILE.write_text(models_text(datetime.now(UTC).date().isoformat()), encoding="ascii")
    print(f"wrote {MODELS_FILE.relative_to(ROOT)}")
