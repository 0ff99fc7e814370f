"""Inputs of executions that are refused, by the kinds of mistake, each with the lines that it gets everywhere."""

from typing import Any

Json = Any
GPU = {"name": "gpu", "instance_type": "ml.g5.xlarge"}
CPU = {"name": "cpu", "instance_type": "ml.c5.4xlarge"}
DATA = {"name": "data", "s3_uri": "s3://bucket/data"}
KEY_ID = "AKIA" + "Q" * 16

_SECRET = "looks like a secret and settings are stored as plain text; remove it and read it at run time instead"
_KEEP = "types and counts belong inside instance_groups; keep instance_groups and remove this key"
_GROUP_NAME = "1 to 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends"
_S3 = "allowed: s3://<bucket>/<prefix>, at most 1018 characters"
_TAG = "0 to 256 letters, digits, spaces or _.:/=+-@"
_TAG_KEY = "1 to 128 letters, digits, spaces or _.:/=+-@, not aws: at the start"


def _count(text: str) -> str:
    return f"{text} is out of range; allowed: 1 to 1000; set it in that range"


REFUSED: dict[str, tuple[Json, list[str]]] = {
    "unknown key": ({"chanels": []}, ["chanels: unknown setting; nearest: channels; see docs/settings.md"]),
    "unknown key that belongs deeper": (
        {"learningRate": 0.1},
        ["learningRate: unknown setting; nearest: training.learning_rate; see docs/settings.md"],
    ),
    "unknown key deep inside": (
        {
            "fallback_instance_groups": [[{**GPU, "count": 2}]],
            "training": {"bs": 3},
            "channels": [{**DATA, "uri": "x"}],
        },
        [
            "fallback_instance_groups[0][0].count: unknown setting; nearest: instance_count; see docs/settings.md",
            "training.bs: unknown setting; nearest: batch_size; see docs/settings.md",
            "channels[0].uri: unknown setting; nearest: s3_uri; see docs/settings.md",
        ],
    ),
    "unknown keys in any order": (
        {"10": 1, "b": 1, "é": 1, "2": 1},
        [f"{key}: unknown setting; see docs/settings.md" for key in ("'?'", "10", "2", "b")],
    ),
    "many unknown keys": (
        {"training": {f"k{index}": 1 for index in range(6)}, "spot": 1},
        [
            "training: 6 unknown settings; see docs/settings.md",
            "spot: 1 is not true or false; allowed: true or false",
        ],
    ),
    "the console's example": (
        {"Comment": "Insert your JSON here"},
        ["Comment: unknown setting; it is the console's example; start with {} instead"],
    ),
    "type of a size that its family lacks": (
        {"instance_groups": [{**GPU, "instance_type": "ml.c5.large"}]},
        [
            (
                "instance_groups[0].instance_type: 'ml.c5.large' is not a SageMaker training type; nearest:"
                " ml.c5.xlarge, ml.c5.2xlarge, ml.c5.4xlarge, ml.c5.9xlarge, ml.c5.18xlarge; name one of them"
            )
        ],
    ),
    "type of a family that does not exist": (
        {"fallback_instance_groups": [[{**GPU, "instance_type": "ml.trn3.48xlarge"}]]},
        [
            (
                "fallback_instance_groups[0][0].instance_type: 'ml.trn3.48xlarge' is not a SageMaker training type;"
                " nearest: ml.trn1.2xlarge, ml.trn1n.32xlarge, ml.trn2.48xlarge; name one of them"
            )
        ],
    ),
    "type that is like no other": (
        {"instance_groups": [{**GPU, "instance_type": "ml.inf2.xlarge"}]},
        [
            (
                "instance_groups[0].instance_type: 'ml.inf2.xlarge' is not a SageMaker training type; nearest: none by"
                " name, ml.g5.xlarge with an accelerator, ml.c5.4xlarge without; name one of them"
            )
        ],
    ),
    "EC2's name of a type": (
        {"instance_groups": [{**GPU, "instance_type": "g5.xlarge"}]},
        [
            (
                "instance_groups[0].instance_type: 'g5.xlarge' has the wrong form; allowed: ml.<family>.<size>, such as"
                " ml.g5.xlarge; correct it"
            )
        ],
    ),
    "compare without accelerators": (
        {"mode": "compare", "instance_groups": [CPU, {**CPU, "name": "more"}]},
        [
            (
                "instance_groups: compare needs a group with accelerators and there is none: cpu (ml.c5.4xlarge), more"
                " (ml.c5.4xlarge); add one such as ml.g5.xlarge or set mode to train"
            )
        ],
    ),
    "compare with accelerators only": (
        {"mode": "compare", "fallback_instance_groups": [[GPU, CPU], [GPU]]},
        [
            (
                "fallback_instance_groups[1]: compare needs a group without accelerators and there is none: gpu"
                " (ml.g5.xlarge); add one such as ml.c5.4xlarge or set mode to train"
            )
        ],
    ),
    "mode that is not there yet": (
        {"mode": "advise"},
        ["mode: 'advise' is not one of the choices; allowed: train, compare; choose one of them"],
    ),
    "two groups of one name": (
        {"instance_groups": [GPU, {**CPU, "name": "gpu"}]},
        ["instance_groups[1].name: 'gpu' is used by two groups; group names must differ; rename one"],
    ),
    "two channels of one name": (
        {"channels": [DATA, DATA]},
        ["channels[1].name: 'data' is used by two channels; channel names must differ; rename one"],
    ),
    "six groups": (
        {"instance_groups": [{**GPU, "name": f"g{index}"} for index in range(6)]},
        ["instance_groups: 6 groups; allowed: 1 to 5 groups; remove or merge groups"],
    ),
    "no group": (
        {"fallback_instance_groups": [[]]},
        ["fallback_instance_groups[0]: 0 groups; allowed: 1 to 5 groups; add groups"],
    ),
    "six fallbacks": (
        {"fallback_instance_groups": [[GPU]] * 6},
        ["fallback_instance_groups: 6 compositions; allowed: 0 to 5 compositions; remove or merge compositions"],
    ),
    "counts": (
        {"instance_groups": [{**GPU, "name": f"g{count}", "instance_count": count} for count in (0, -1, 1001)]},
        [
            "instance_groups[0].instance_count: " + _count("0"),
            "instance_groups[1].instance_count: " + _count("-1"),
            "instance_groups[2].instance_count: " + _count("1001"),
        ],
    ),
    "count that is no whole number": (
        {"instance_groups": [{**GPU, "instance_count": 1.5}, {**CPU, "instance_count": True}]},
        [
            "instance_groups[0].instance_count: 1.5 is not a whole number; allowed: 1 to 1000",
            "instance_groups[1].instance_count: true is not a whole number; allowed: 1 to 1000",
        ],
    ),
    "types beside instance_groups": (
        {"instance_type": "ml.g5.xlarge", "instance_count": 1, "instance_groups": [GPU]},
        [f"instance_count: unknown setting; {_KEEP}", f"instance_type: unknown setting; {_KEEP}"],
    ),
    "head group that is none": (
        {"training": {"head_group": "head"}, "fallback_instance_groups": [[GPU]]},
        ["training.head_group: 'head' is not a group of this run; allowed: gpu, cpu; name one of them"],
    ),
    "head group that a fallback lacks": (
        {"training": {"head_group": "cpu"}, "fallback_instance_groups": [[GPU, CPU], [GPU]]},
        ["training.head_group: 'cpu' is not a group of fallback_instance_groups[1]; allowed: gpu; name one of them"],
    ),
    "some channels name groups": (
        {"channels": [{**DATA, "instance_groups": ["gpu"]}, {**DATA, "name": "more"}, {**DATA, "name": "most"}]},
        [
            (
                "channels: data with instance_groups and more, most without; allowed: all channels name some or none"
                " does; add or remove instance_groups"
            )
        ],
    ),
    "channel for a group that is none": (
        {"channels": [{**DATA, "instance_groups": ["gpu", "gpus"]}]},
        ["channels[0].instance_groups: 'gpus' is not a group of this run; allowed: gpu, cpu; name one of them"],
    ),
    "images without their channel": (
        {"training": {"dataset": "image_folder"}, "channels": [DATA]},
        ["training.channel: 'training' is not a channel of this run; allowed: data; name one of them"],
    ),
    "Parquet without its channel": (
        {"training": {"dataset": "parquet", "channel": "rows", "code_channel": "code"}, "channels": [DATA]},
        [
            "training.channel: 'rows' is not a channel of this run; allowed: data; name one of them",
            "training.code_channel: 'code' is not a channel of this run; allowed: data; name one of them",
        ],
    ),
    "place of data that is made up": (
        {"training": {"data_uri": "s3://bucket/data"}},
        [
            (
                "training.data_uri: 's3://bucket/data' is set and dataset is synthetic; allowed: null; remove it or set"
                " dataset to image_folder or parquet"
            )
        ],
    ),
    "steps and epochs": (
        {"training": {"steps": 10, "epochs": 2}},
        ["training.epochs: 2 is set and steps is 10; allowed beside steps: null; remove one of the two"],
    ),
    **{
        f"transform {transform}": (
            {"training": {"transform": transform}},
            [
                (
                    f"training.transform: '{transform}' is not a transform; nearest: {names}; name one of them or your"
                    " own function as package.module:function"
                )
            ],
        )
        for transform, names in {
            "gausian_blur": "gaussian_blur_stack",
            "Normalise": "normalize",
            "my.code.crop": "gaussian_blur_stack, normalize, torchvision",
        }.items()
    },
    **{
        f"model {name}": (
            {"training": {"model": name}},
            [f"training.model: '{name}' is not a model of timm; nearest: {names}; name one of them"],
        )
        for name, names in {
            "vit_bse_patch16_224": "vit_base_patch16_224, vit_base_patch16_224_miil, vit_base_patch16_xp_224",
            "tv_resnet50": "resnet50, nf_resnet50, seresnet50",
            "vit": "vit_5b_patch16_sapiens2, vit_7b_patch16_dinov3, vit_base_mci_224",
            "hf-hub:timm/resnet18.a1_in1k": "resnet18",
            "gpt": "none by name, vit_base_patch16_224 and resnet50 among many",
        }.items()
    },
    "transform of a wrong form": (
        {"training": {"transform": "my code:crop"}},
        [
            (
                "training.transform: 'my code:crop' has the wrong form; allowed: gaussian_blur_stack, normalize,"
                " torchvision or package.module:function; correct it"
            )
        ],
    ),
    "fused transform of another kind": (
        {"training": {"transform": "normalize", "transform_implementation": "fused"}},
        [
            (
                "training.transform_implementation: fused computes gaussian_blur_stack and transform is 'normalize';"
                " allowed: torchvision; set that or remove it"
            )
        ],
    ),
    "torchvision without steps": (
        {"training": {"transform": "torchvision"}},
        [
            (
                "training.transform_steps: 0 transform steps and transform is torchvision; allowed: 1 to 32 transform"
                " steps; add some"
            )
        ],
    ),
    "steps of another transform": (
        {"training": {"transform_steps": ["RandomHorizontalFlip"]}},
        [
            (
                "training.transform_steps: 1 transform steps and transform is 'gaussian_blur_stack'; allowed: 0"
                " transform steps; remove them or set transform to torchvision"
            )
        ],
    ),
    "steps of a wrong form": (
        {"training": {"transform": "torchvision", "transform_steps": ["Pad(1", "Pad(1)", f"Pad('{KEY_ID}')", 5]}},
        [
            (
                "training.transform_steps[0]: 'Pad(1' has the wrong form; allowed: Name or Name(arguments), such as"
                " GaussianBlur(11), at most 200 characters; correct it"
            ),
            f"training.transform_steps[2]: {_SECRET}",
            (
                "training.transform_steps[3]: 5 is not text; allowed: Name or Name(arguments), such as"
                " GaussianBlur(11), at most 200 characters"
            ),
        ],
    ),
    "steps of over 2,500 characters": (
        {"training": {"transform": "torchvision", "transform_steps": [f"Pad({'1' * 73})"] * 32}},
        ["training.transform_steps: over 2500 characters as JSON; allowed: 2500; shorten it"],
    ),
    "spot without a wait": (
        {"spot": True},
        [
            (
                "max_wait_seconds: null is no limit for spot; allowed: 3600 (max_runtime_seconds) to 2419200; set it in"
                " that range"
            )
        ],
    ),
    "spot with too short a wait": (
        {"spot": True, "max_wait_seconds": 600.0, "max_runtime_seconds": 7200},
        [
            (
                "max_wait_seconds: 600 is less than max_runtime_seconds, 7200; allowed: 7200 to 2419200; set it in"
                " that range"
            )
        ],
    ),
    "wait without spot": (
        {"max_wait_seconds": 7200},
        ["max_wait_seconds: 7200 is set and spot is false; allowed: null; remove it or set spot to true"],
    ),
    "spot without checkpoints": (
        {"spot": True, "max_wait_seconds": 7200, "checkpoints": False},
        [
            (
                "checkpoints: false loses every step when spot capacity is interrupted; allowed with spot: true; set it"
                " to true or spot to false"
            )
        ],
    ),
    **{
        f"runtime of {runtime}": (
            {"max_runtime_seconds": runtime},
            [f"max_runtime_seconds: {runtime} is out of range; allowed: 1 to 2419200; set it in that range"],
        )
        for runtime in (0, -5, 2_419_201)
    },
    "argument of over 2,500 characters": (
        {"training": {"model_arguments": {"note": "x" * 2490}}},
        ["training.model_arguments: over 2500 characters as JSON; allowed: 2500; shorten it"],
    ),
    "argument that is an object": (
        {"training": {"model_arguments": {"depth": {"a": 1}, "x": [1, [2]]}}},
        [
            (
                "training.model_arguments.depth: an object of 1 keys is not accepted; allowed: JSON scalars or one list"
                " of them; flatten it"
            ),
            (
                "training.model_arguments.x: a list of 1 is not accepted; allowed: JSON scalars or one list of them;"
                " flatten it"
            ),
        ],
    ),
    "object where text is due": (
        {"training": {"model": {"name": "vit"}}},
        [
            (
                "training.model: an object of 1 keys is not text; allowed: a timm model name, 1 to 256 characters, such"
                " as vit_base_patch16_224"
            )
        ],
    ),
    "secrets": (
        {
            "instance_groups": [{**GPU, "name": KEY_ID}],
            "training": {"model": "ghp_" + "a1" * 18, "model_arguments": {"hub_token": "hunter2"}, KEY_ID: 1},
            "tags": {"Password": "hunter2", KEY_ID: "x", "note": "key " + KEY_ID},
        },
        [
            f"instance_groups[0].name: {_SECRET}",
            f"training.model: {_SECRET}",
            f"training.model_arguments.hub_token: {_SECRET}",
            "training.(a name that looks like a secret): unknown setting; see docs/settings.md",
            f"tags.(a name that looks like a secret): {_SECRET}",
            f"tags.Password: {_SECRET}",
            f"tags.note: {_SECRET}",
        ],
    ),
    "tags": (
        {"tags": {"AWS:team": "x", "a!": "x", "b": 5, "c": "x" * 257, "d": "a\nb"}},
        [
            f"tags.'AWS:team': the key has the wrong form; allowed: {_TAG_KEY}; rename it",
            f"tags.'a!': the key has the wrong form; allowed: {_TAG_KEY}; rename it",
            f"tags.b: 5 is not text; allowed: {_TAG}",
            f"tags.c: '{'x' * 56}... has the wrong form; allowed: {_TAG}; correct it",
            f"tags.d: 'a?b' has the wrong form; allowed: {_TAG}; correct it",
        ],
    ),
    "too many tags": (
        {"tags": {str(index): "x" for index in range(41)}},
        ["tags: 41 tags; allowed: an object of at most 40 tags; remove or merge tags"],
    ),
    **{
        f"place {uri}": (
            {"channels": [{"name": "data", "s3_uri": uri}]},
            [f"channels[0].s3_uri: '{uri}' has the wrong form; {_S3}; correct it"],
        )
        for uri in ("s3:/bucket/data", "https://bucket/data", "s3://Bucket/data", "s3://b", "/data", "")
    },
    "place that is missing": (
        {"channels": [{"name": "data"}]},
        [f"channels[0].s3_uri: missing; {_S3}; add it"],
    ),
    "batch of none": (
        {"training": {"batch_size": 0, "steps": 0, "learning_rate": 0, "momentum": 1}},
        [
            "training.batch_size: 0 is out of range; allowed: 1 to 4096; set it in that range",
            "training.steps: 0 is out of range; allowed: 1 to 10000000 or null; set it in that range",
            "training.learning_rate: 0 is out of range; allowed: above 0, at most 10; set it in that range",
            "training.momentum: 1 is out of range; allowed: at least 0, below 1; set it in that range",
        ],
    ),
    "numbers that are too long to show": (
        {"training": {"steps": 10**14, "batch_size": 5e-5, "learning_rate": 1e20}},
        [
            "training.batch_size: a number nearer to 0 than 0.0001 is not a whole number; allowed: 1 to 4096",
            (
                "training.steps: a number of over 14 digits is out of range; allowed: 1 to 10000000 or null; set it in"
                " that range"
            ),
            (
                "training.learning_rate: a number of over 14 digits is out of range; allowed: above 0, at most 10; set"
                " it in that range"
            ),
        ],
    ),
    "null": (
        {"training": None, "spot": None, "channels": None, "tags": None, "instance_groups": [None]},
        [
            "instance_groups[0]: null is not an object; allowed: a JSON object",
            "training: null is not an object; allowed: a JSON object",
            "channels: null is not a list of channels; allowed: 0 to 20 channels",
            "spot: null is not true or false; allowed: true or false",
            "tags: null is not an object; allowed: an object of at most 40 tags",
        ],
    ),
    "names with a newline": (
        {"instance_groups": [{**GPU, "name": "gpu\n"}], "training": {"channel": "a\n"}},
        [
            f"instance_groups[0].name: 'gpu?' has the wrong form; allowed: {_GROUP_NAME}; correct it",
            "training.channel: 'a?' has the wrong form; allowed: 1 to 64 letters, digits, '-', '_' or '.'; correct it",
        ],
    ),
    "over twenty problems": (
        {"fallback_instance_groups": [[{**GPU, "name": f"g{group}", "instance_count": 0} for group in range(5)]] * 5},
        [
            *(
                f"fallback_instance_groups[{index // 5}][{index % 5}].instance_count: {_count('0')}"
                for index in range(20)
            ),
            "input: 5 more problems; correct these first",
        ],
    ),
    "a list": ([], ["input: a list of 0 is not an object; allowed: a JSON object such as {}; write an object"]),
    "text": ("{}", ["input: '{}' is not an object; allowed: a JSON object such as {}; write an object"]),
    "a number": (7, ["input: 7 is not an object; allowed: a JSON object such as {}; write an object"]),
    "nothing": (None, ["input: null is not an object; allowed: a JSON object such as {}; write an object"]),
    "a secret": (
        KEY_ID,
        [
            (
                "input: a value that looks like a secret is not an object; allowed: a JSON object such as {}; write an"
                " object"
            )
        ],
    ),
}
