"""The contract's list of timm's models is timm's, and a name that is not on it gets near ones."""

import re
from random import Random

import pytest
import timm
from hypothesis import given
from hypothesis import strategies as st

from docs.timm_models import is_current
from training.contract import ContractError, TrainingConfig
from training.contract.models import MODELS, SOURCE, is_model, near_models


def test_the_list_is_that_of_the_installed_timm() -> None:
    assert is_current(), "run make docs"
    assert list(MODELS) == timm.list_models()
    assert re.fullmatch(rf"timm.list_models\(\) of timm {timm.__version__}, read 20\d\d-\d\d-\d\d", SOURCE)


@given(name=st.sampled_from(MODELS), tag=st.from_regex(r"\.[a-z0-9_.]{0,20}", fullmatch=True))
def test_a_name_may_have_the_tag_of_pretrained_weights(name: str, tag: str) -> None:
    assert is_model(name)
    assert is_model(name + tag)
    assert timm.is_model(name + tag)


@given(name=st.text(st.sampled_from("vitbasepch16_24./:"), max_size=20))
def test_the_contract_knows_no_model_that_timm_does_not(name: str) -> None:
    assert timm.is_model(name) or not is_model(name)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("resnet-50", ["resnet50"]),
        ("ResNet50.a1_in1k", ["resnet50"]),
        ("vit_bse_patch16_224", ["vit_base_patch16_224"]),
        ("google/vit-base-patch16-224", ["vit_base_patch16_224"]),
        ("tv_resnet50", ["resnet50"]),
        ("deit", ["deit3_base_patch16_224", "deit3_base_patch16_384", "deit3_huge_patch14_224"]),
    ],
)
def test_near_names(name: str, near: list[str]) -> None:
    assert near_models(name)[: len(near)] == near


@pytest.mark.parametrize("name", ["bert", "x", "-", "_" * 256, "hf-hub:a/b"])
def test_a_name_that_is_like_no_other(name: str) -> None:
    assert near_models(name) == []
    with pytest.raises(ContractError) as caught:
        TrainingConfig.parse({"model": name})
    assert caught.value.problems[0].endswith(
        " is not a model of timm; nearest: none by name, vit_base_patch16_224 and resnet50 among many; name one of them"
    )


def test_one_wrong_character_still_finds_most_models() -> None:
    random = Random(0)
    found = 0
    for name in MODELS:
        place = random.randrange(len(name))
        found += name in near_models(name[:place] + "~" + name[place + 1 :])
    assert found > 0.95 * len(MODELS)
