"""What an hour of a SageMaker training host costs, from a dated data file; a type without a sourced price has none."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_FILE = Path(__file__).with_name("prices.json")


@dataclass(frozen=True, kw_only=True)
class Prices:
    """On-demand prices in USD per hour of one host, by region and instance type, and the day they were read."""

    usd_per_hour: Mapping[str, Mapping[str, float]]
    read: str


def load_prices() -> Prices:
    """Read the data file. Prices that only one public table has are among them."""
    values = json.loads(_FILE.read_text())
    return Prices(
        usd_per_hour={values["region"]: {**values["one_source"], **values["two_sources"]}}, read=values["read"]
    )
