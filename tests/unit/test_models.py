"""Models: any of timm's by name, wrong ones refused before anything is started, saved ones the same anywhere."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from training.contract import ContractError
from training.models import (
    DESCRIPTION_FILE,
    WEIGHTS_FILE,
    ModelDescription,
    build_model,
    check_model,
    load_model,
    model_mean_and_std,
    save_model,
)

ROOT = Path(__file__).parents[2]
SMALL = {"depth": 1, "embed_dim": 16, "num_heads": 2, "patch_size": 8}
DESCRIPTION = ModelDescription(
    name="test_vit",
    num_classes=3,
    image_size=32,
    arguments=SMALL,
    mean=(0.5, 0.4, 0.3),
    std=(0.1, 0.2, 0.3),
    class_names=("bee", "cat", "dög"),
)


def build(description: ModelDescription = DESCRIPTION) -> nn.Module:
    return build_model(description.name, description.num_classes, description.image_size, description.arguments)


@pytest.mark.parametrize("name", ["test_vit", "test_resnet", "test_convnext", "test_efficientnet", "test_vit_relpos"])
def test_any_architecture_takes_classes_and_image_size(name: str) -> None:
    check_model(name, 7, 64, {})
    output = build_model(name, 7, 64, {})(torch.rand(2, 3, 64, 64))
    assert output.shape == (2, 7)


def test_arguments_reach_the_model_lists_too() -> None:
    model = build_model("test_resnet", 2, 32, {"layers": [1, 1, 1, 2]})
    assert sum(1 for name, _ in model.named_modules() if name.startswith("layer4.") and name.count(".") == 1) == 2
    assert isinstance(build(), nn.Module)
    assert len(list(build().get_submodule("blocks").children())) == 1


def test_weights_follow_the_seed() -> None:
    states = []
    for seed in (1, 1, 2):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            states.append(build().state_dict()["patch_embed.proj.weight"])
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])


VIT = "vit_base_patch16_224"
REFUSALS = [
    (
        ("vit_bse_patch16_224", 224, {}),
        "training.model: 'vit_bse_patch16_224' is not a timm model; nearest: vit_base_patch16_224, ",
    ),
    (("zzzz", 224, {}), "training.model: 'zzzz' is not a timm model; nearest: none, see timm.list_models() for all "),
    (("hf-hub:timm/test_vit", 224, {}), "training.model: 'hf-hub:timm/test_vit' is not a timm model; nearest: "),
    ((f"{VIT}.nope", 224, {}), f"training.model: {VIT}.nope cannot be built: Invalid pretrained tag (nope)"),
    ((VIT, 230, {}), f"training.image_size: 230 is no multiple of the 16-pixel patches of {VIT}; use 224 or 240"),
    ((VIT, 8, {}), f"training.image_size: 8 is no multiple of the 16-pixel patches of {VIT}; use 16"),
    ((VIT, 224, {"patch_size": 33}), "training.image_size: 224 is no multiple of the 33-pixel patches of "),
    (
        (VIT, 224, {"dept": 2}),
        (
            f'training.model_arguments: {VIT} does not take {{"dept": 2}}: '
            "VisionTransformer.__init__() got an unexpected keyword argument 'dept'"
        ),
    ),
    ((VIT, 224, {"num_heads": 7}), f'training.model_arguments: {VIT} does not take {{"num_heads": 7}}: '),
    ((VIT, 224, {"depth": "x"}), f'training.model_arguments: {VIT} does not take {{"depth": "x"}}: '),
    ((VIT, 224, {"depth": 1, "act_layer": "nope"}), f"training.model_arguments: {VIT} does not take "),
    ((VIT, 224, {"img_size": 32}), "training.model_arguments: 'img_size' cannot be given; set training.image_size"),
    ((VIT, 224, {"checkpoint_path": "x"}), "training.model_arguments: 'checkpoint_path' cannot be given; no weights "),
    ((VIT, 224, {"depth": 1, "global_pool": ""}), f"training.model: {VIT!r} returns no 10 class scores; "),
    (("resnet18", 224, {"foo": 1}), 'training.model_arguments: resnet18 does not take {"foo": 1}: '),
    (("hrnet_w18_small", 250, {}), "training.image_size: 250 does not fit hrnet_w18_small: "),
]


@pytest.mark.parametrize(("request_", "message"), REFUSALS, ids=[f"{case[0]} {case[1:]}" for case, _ in REFUSALS])
def test_what_cannot_be_trained_is_refused_in_one_line(
    request_: tuple[str, int, dict[str, object]], message: str
) -> None:
    name, image_size, arguments = request_
    with pytest.raises(ContractError) as refusal:
        check_model(name, 10, image_size, arguments)
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)


def test_every_reserved_argument_is_named() -> None:
    with pytest.raises(ContractError) as refusal:
        check_model("test_vit", 10, 224, {"num_classes": 3, "pretrained": True})
    assert refusal.value.problems == [
        "training.model_arguments: 'num_classes' cannot be given; set training.num_classes instead",
        "training.model_arguments: 'pretrained' cannot be given; no weights are downloaded",
    ]


def test_building_refuses_like_checking() -> None:
    with pytest.raises(ContractError, match="'nope' is not a timm model"):
        build_model("nope", 10, 224, {})
    with pytest.raises(ContractError, match="does not take"):
        build_model("test_vit", 10, 224, {"nope": 1})


def test_mean_and_std_are_the_models_own() -> None:
    assert model_mean_and_std("vit_base_patch16_224") == ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    assert model_mean_and_std("resnet50") == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, nn.Module]:
    model = build().eval()
    save_model(model, tmp_path / "model", DESCRIPTION)
    return tmp_path / "model", model


def logits(model: nn.Module) -> torch.Tensor:
    images = torch.linspace(-1, 1, 2 * 3 * 32 * 32).view(2, 3, 32, 32)
    with torch.no_grad():
        output: torch.Tensor = model(images)
    return output


def test_a_saved_model_comes_back_with_its_description(saved: tuple[Path, nn.Module]) -> None:
    folder, model = saved
    loaded, description = load_model(folder)
    assert description == DESCRIPTION
    assert not loaded.training
    assert torch.equal(logits(loaded), logits(model))
    assert sorted(path.name for path in folder.iterdir()) == [DESCRIPTION_FILE, WEIGHTS_FILE]
    assert {path.stat().st_mode & 0o444 for path in folder.iterdir()} == {0o444}


# What a user writes who has the two files, timm and safetensors, and none of this project.
PLAIN_CODE = """
import json, pathlib, sys
import safetensors.torch, timm, torch
folder = pathlib.Path(sys.argv[1])
stored = json.loads((folder / "model.json").read_text())
model = timm.create_model(stored["name"], **stored["create_arguments"]).eval()
model.load_state_dict(safetensors.torch.load_file(folder / "model.safetensors"))
images = torch.linspace(-1, 1, 2 * 3 * 32 * 32).view(2, 3, 32, 32)
with torch.no_grad():
    print(json.dumps(model(images).tolist()))
assert not any(name.partition(".")[0] in ("training", "ray") for name in sys.modules)
"""


def test_a_fresh_process_with_timm_alone_computes_the_same(saved: tuple[Path, nn.Module], tmp_path: Path) -> None:
    folder, model = saved
    command = [sys.executable, "-c", PLAIN_CODE, str(folder)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300)
    torch.testing.assert_close(torch.tensor(json.loads(done.stdout)), logits(model))


def test_the_description_is_plain_json(saved: tuple[Path, nn.Module]) -> None:
    stored = json.loads((saved[0] / DESCRIPTION_FILE).read_text())
    assert stored["create_arguments"] == {**SMALL, "num_classes": 3, "img_size": 32}
    assert (stored["name"], stored["image_size"], stored["class_names"]) == ("test_vit", 32, ["bee", "cat", "dög"])
    assert (stored["mean"], stored["std"]) == ([0.5, 0.4, 0.3], [0.1, 0.2, 0.3])
    assert sorted(stored["versions"]) == ["safetensors", "timm", "torch"]


def test_a_convolutional_network_is_saved_without_image_size(tmp_path: Path) -> None:
    description = ModelDescription(
        **{**vars(DESCRIPTION), "name": "test_resnet", "arguments": {"layers": [1, 1, 1, 1]}}
    )
    model = build(description).eval()
    save_model(model, tmp_path, description)
    assert "img_size" not in json.loads((tmp_path / DESCRIPTION_FILE).read_text())["create_arguments"]
    loaded, stored = load_model(tmp_path)
    assert stored == description
    assert torch.equal(logits(loaded), logits(model))


def test_a_save_that_fails_leaves_the_old_model_whole(
    saved: tuple[Path, nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, model = saved

    def write_half(_: nn.Module, path: str) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(28, "no space left")

    monkeypatch.setattr("safetensors.torch.save_model", write_half)
    with pytest.raises(OSError, match=rf"{WEIGHTS_FILE}: cannot be written: no space left"):
        save_model(build(), folder, DESCRIPTION)
    assert sorted(path.name for path in folder.iterdir()) == [DESCRIPTION_FILE, WEIGHTS_FILE]
    assert torch.equal(logits(load_model(folder)[0]), logits(model))


def test_weights_are_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safetensors.torch.save_model", lambda *_: (_ for _ in ()).throw(OSError(28, "no space left")))
    with pytest.raises(OSError, match=rf"{WEIGHTS_FILE}: cannot be written: no space left"):
        save_model(build(), tmp_path, DESCRIPTION)
    assert [path.name for path in tmp_path.iterdir()] == [DESCRIPTION_FILE]


def test_what_is_no_saved_model_is_refused_in_one_line(saved: tuple[Path, nn.Module], tmp_path: Path) -> None:
    folder, _ = saved
    stored = json.loads((folder / DESCRIPTION_FILE).read_text())
    damages: list[tuple[str, str]] = [
        (json.dumps({**stored, "num_classes": 4}), "size mismatch"),
        (json.dumps({**stored, "format_version": 9}), "format 9 is not known here, only 1"),
        (json.dumps({"format_version": 1}), "no 'name'"),
        ("{", "Expecting property name"),
    ]
    for text, reason in damages:
        (folder / DESCRIPTION_FILE).write_text(text)
        with pytest.raises(ContractError) as refusal:
            load_model(folder)
        assert str(refusal.value).startswith(f"saved model {folder}: cannot be loaded: ")
        assert reason in str(refusal.value)
        assert "\n" not in str(refusal.value)
    with pytest.raises(ContractError, match=r"cannot be loaded: .*No such file"):
        load_model(tmp_path / "missing")
