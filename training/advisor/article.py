"""The article's figures and prices, from a dated data file; always labelled as the article's where they are shown."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_FILE = Path(__file__).with_name("article.json")


@dataclass(frozen=True, kw_only=True)
class Article:
    """Prices in USD per hour by instance type; the ratios compare its heterogeneous cluster with its single host."""

    published: str
    region: str
    prices_usd_per_hour: Mapping[str, float]
    prices_read: str
    price_ratio: float
    throughput_ratio: float
    price_performance: float


def load_article() -> Article:
    """Read the data file."""
    values = json.loads(_FILE.read_text())
    return Article(**{name: values[name] for name in Article.__dataclass_fields__})
