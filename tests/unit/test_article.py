"""The article's figures agree with each other and say where they come from."""

import json
import re
from pathlib import Path

import pytest

from infra.local import scale_model
from training.advisor import article as module
from training.advisor.article import load_article
from training.advisor.prices import load_prices


def test_the_ratios_follow_from_the_prices() -> None:
    article = load_article()
    gpu, cpu = (article.prices_usd_per_hour[name] for name in ("ml.g5.xlarge", "ml.c5.4xlarge"))
    assert (gpu, cpu) == (1.408, 0.816)
    assert (gpu + cpu) / gpu == pytest.approx(article.price_ratio, abs=0.005)
    assert article.throughput_ratio / article.price_ratio == pytest.approx(article.price_performance, abs=0.005)


def test_prices_are_dated_and_have_a_source() -> None:
    values = json.loads(Path(module.__file__).with_name("article.json").read_text())
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", values["prices_read"])
    assert values["prices_source"]
    assert values["region"] == load_article().region


def test_the_scale_model_has_a_price_for_each_of_its_hosts() -> None:
    prices = load_article().prices_usd_per_hour
    assert {group.instance_type for group in scale_model.GROUPS} <= set(prices)


def test_the_articles_prices_are_the_catalogues() -> None:
    article, prices = load_article(), load_prices()
    assert prices.read == article.prices_read
    assert article.prices_usd_per_hour.items() <= prices.usd_per_hour[article.region].items()
