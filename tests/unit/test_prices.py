"""The prices are those of the source, for types that exist, and agree with the article's."""

import json
from datetime import date
from pathlib import Path

from training.advisor.article import load_article
from training.advisor.prices import load_prices
from training.contract.instance_types import INSTANCE_TYPES

FILE = Path(__file__).resolve().parents[2] / "training" / "advisor" / "prices.json"


def test_every_price_is_of_a_training_type_and_an_hour() -> None:
    prices = load_prices()
    assert date.fromisoformat(prices.read) <= date.today()  # noqa: DTZ011
    for region, by_type in prices.usd_per_hour.items():
        assert set(by_type) <= INSTANCE_TYPES, region
        assert all(0.05 < price < 100 for price in by_type.values()), region


def test_a_price_is_in_one_list_only() -> None:
    values = json.loads(FILE.read_text())
    assert not set(values["two_sources"]) & set(values["one_source"])
    assert values["source"]


def test_the_articles_prices_are_the_same() -> None:
    article = load_article()
    prices = load_prices().usd_per_hour[article.region]
    assert {name: prices[name] for name in article.prices_usd_per_hour} == article.prices_usd_per_hour


def test_a_type_without_a_sourced_price_has_none() -> None:
    assert "ml.c5n.2xlarge" not in load_prices().usd_per_hour["us-east-1"]
