"""Random inputs of executions: valid ones, and valid ones to which something was done."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random
from typing import Any

from training.contract import RunConfig, TrainingConfig, instance_type_has_accelerator
from training.contract.errors import branches, field_schemas
from training.contract.instance_types import INSTANCE_TYPES
from training.contract.models import MODELS
from training.contract.relations import LONGEST_JOB_SECONDS
from training.contract.training import BUILT_IN_TRANSFORMS

Json = Any
KEY_ID = "AKIA" + "Q" * 16
SECRET_KEY = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY12"

_FAST = sorted(filter(instance_type_has_accelerator, INSTANCE_TYPES))
_SLOW = sorted(INSTANCE_TYPES - set(_FAST))
_NAMES = ["gpu", "cpu", "a", "b-1", "x.y", "G_2", "null", "constructor"]
_URIS = ["s3://my-bucket/data/Train2026", "s3://b.1c", "s3://bucket/größe/ /", "s3://" + SECRET_KEY.lower()]
_TYPOS = [
    "ml.g5.3xlarge",
    "ml.g9.xlarge",
    "ml.x2gd.large",
    "g5.xlarge",
    "ml.constructor.large",
    "ml.p7.48xlarge",
    "a\nb",
]
_TRANSFORM_STEPS = ["RandomHorizontalFlip", "GaussianBlur(11, sigma=(0.1, 2.0))", "Pad('a\\tb')"]
_TRANSFORM_TYPOS = ["gausian_blur", "Normalise", "torchvision.v2", "flip", "a:b", "a..b:c", "my.code:", "x" * 65, ":"]
_MODEL_TYPOS = ["ViT-B/16", "hf-hub:timm/resnet18.a1_in1k", "vit", "x", "_224", "-", "A.b", "a" * 256, "resnet5" * 7]
_JUNK: list[Json] = [
    *(None, True, False, 0, 1, -1, 1.0, 1.5, 64.0, -0.0, 0.00001, 1e-7, 5.000000000000001, 99_999_999_999_999.9, 1e20),
    *(
        10**15,
        2**53,
        3601,
        123456.789012345678,
        "",
        "64",
        "a b",
        "é",
        "größe 😀",
        "a\nb",
        "x" * 300,
        "it's",
        '"',
        "{x}",
    ),
    *("auto", "compare", "gpu", "s3://bucket", "s3://Bucket/x", "https://bucket/x", "s3://b/", "aws:x", "a|b;c"),
    *(KEY_ID, SECRET_KEY, "s3://" + SECRET_KEY, "hf_" + "a1" * 12, "-----BEGIN", *_TYPOS),
    *([], [1], [None], [[]], [[1]], ["gpu"], ["nobody", 5], [{}], [[{}]], [{"name": "gpu"}] * 6, [SECRET_KEY, {}]),
    *(
        {},
        {"a": 1},
        {"token": "x"},
        {KEY_ID: 1},
        {"a": {"b": 1}},
        {"a": [1, [2]]},
        {"__proto__": 1, "constructor": "x"},
    ),
    *({"a": "y" * 2480}, {"a": "y" * 2500}, {"a": "é" * 2490, "b": '"\\\x01'}, {f"k{i}": i for i in range(41)}),
]
_STRANGERS = [
    *("batchsize", "batch_sizes", "BATCH SIZE", "lr", "seconds", "runtime", "instance_type", "instance_count", "steps"),
    *(
        "Comment",
        "name",
        "x",
        "",
        "é",
        "ü",
        "a\nb",
        "1",
        "10",
        "__proto__",
        "constructor",
        "toString",
        KEY_ID,
        "password",
    ),
    *("spott", "group", "instances", "max_wait", "K" * 80, "data", "num", "s3uri", "count", "tag", "AWS:x", "aws:x"),
    *("a!b", "a,b", "k" * 129, "k" * 128, "api-key", "apikey", *RunConfig.model_fields, *TrainingConfig.model_fields),
]


def valid_input(random: Random) -> Json:
    """An input that the contract accepts, with few or many of its settings."""
    names = random.sample(_NAMES, random.randint(2, 5))
    channels = _channels(random, names)
    training = _some(random, _training(random, names)) | _data(random, channels) | _transform(random)
    if {"steps", "epochs"} <= training.keys():
        training[random.choice(["steps", "epochs"])] = None
    free = {
        "mode": random.choice(["train", "compare"]),
        "fallback_instance_groups": [_groups(random, names) for _ in range(random.randint(0, 5))],
        "volume_gb": _number(random, field_schemas(RunConfig)["volume_gb"]),
        "tags": {
            f"{random.choice('abé+. ')}{i}": random.choice(["", "x", "größe / 1"]) for i in range(random.randint(0, 40))
        },
    }
    bound = {"instance_groups": _groups(random, names), "training": training, "channels": channels, **_spot(random)}
    return {} if random.random() < 0.05 else bound | _some(random, free)


def changed_input(random: Random) -> Json:
    """A valid input with one to four changes."""
    root = {"input": valid_input(random)}
    for _ in range(random.randint(1, 4)):
        if isinstance(root["input"], dict):
            random.choice(_CHANGES)(random, root["input"])
        if random.random() < 0.02:
            root["input"] = deepcopy(random.choice(_JUNK))
    return root["input"]


def _training(random: Random, names: list[str]) -> Json:
    numbers = {
        name: _number(random, schema)
        for name, schema in field_schemas(TrainingConfig).items()
        if branches(schema)[0].get("type") in ("integer", "number")
    }
    arguments = [None, True, 5, -0.5, "é\n", [], [1, "a", None]]
    return numbers | {
        "model": random.choice([*MODELS[:3], MODELS[-1], "resnet18.a1_in1k", "vit_base_patch16_224.x.y"]),
        "model_arguments": {name: random.choice(arguments) for name in random.sample(_NAMES, random.randint(0, 3))},
        "num_classes": random.choice([None, 1, 1_000_000.0]),
        "precision": random.choice(["fp32", "tf32", "bf16", "fp16"]),
        "compile": random.choice([False, True]),
        "image_column": random.choice(["image", "größe '|;", "x" * 256]),
        "head_group": random.choice([None, *names]),
    }


def _data(random: Random, channels: list[Json]) -> Json:
    """Settings of a dataset that this run has, and of the code that comes with it."""
    names = [channel["name"] for channel in channels] or ["training", "c"]
    dataset = {"dataset": random.choice(["image_folder", "parquet"])}
    data = [
        {},
        {"dataset": "synthetic", "data_uri": None},
        {**dataset, "channel": random.choice(names)},
        {**dataset, "channel": "nobody", "data_uri": random.choice(_URIS)},
    ]
    return random.choice(data) | random.choice([{}, {"code_channel": random.choice([None, *names])}])


def _transform(random: Random) -> Json:
    transforms: list[Json] = [
        {},
        {"transform": "gaussian_blur_stack", "transform_implementation": "fused", "transform_steps": []},
        {"transform": "normalize", "transform_implementation": "torchvision"},
        {"transform": "torchvision", "transform_steps": random.choices(_TRANSFORM_STEPS, k=random.randint(1, 32))},
        {"transform": random.choice(["my.code:crop", "_:_"])},
    ]
    return random.choice(transforms)


def _number(random: Random, schema: Json) -> float:
    """A number that the setting allows, often one of its limits, sometimes a whole one written as 1.0."""
    limits = branches(schema)[0]
    least, most = limits.get("minimum", 1e-9), limits.get("maximum", 0.999)
    inside = random.randint(least, most) if limits["type"] == "integer" else random.uniform(least, most)
    number = random.choice([inside, inside, least, most])
    return float(number) if random.random() < 0.3 else number


def _groups(random: Random, names: list[str]) -> list[Json]:
    kinds = [_FAST, _SLOW, *random.choices([_FAST, _SLOW], k=3)]
    groups: list[Json] = [
        {"name": name, "instance_type": random.choice(kind)} for name, kind in zip(names, kinds, strict=False)
    ]
    for group in random.sample(groups, random.randint(0, 2)):
        group["instance_count"] = random.choice([1, 2.0, 1000])
    return groups


def _channels(random: Random, groups: list[str]) -> list[Json]:
    silent: list[Json] = [{}, {"instance_groups": None}]
    naming: list[Json] = [{"instance_groups": groups[:1]}, {"instance_groups": groups}]
    kinds = random.choice([silent, naming])
    names = random.sample(["training", "data", "c.1"], random.randint(0, 3))
    return [{"name": name, "s3_uri": random.choice(_URIS), **random.choice(kinds)} for name in names]


def _spot(random: Random) -> Json:
    runtime = random.choice([1, 3600.0, LONGEST_JOB_SECONDS])
    waiting = {
        "spot": True,
        "max_runtime_seconds": runtime,
        "max_wait_seconds": random.choice([runtime, LONGEST_JOB_SECONDS]),
    }
    return random.choice([{}, {"max_runtime_seconds": runtime}, {"spot": False, "checkpoints": False}, waiting])


def _some(random: Random, values: Json) -> Json:
    return {name: values[name] for name in random.sample(list(values), random.randint(0, len(values)))}


def _put_junk(random: Random, run: Json) -> None:
    holder, key = random.choice(_places(run))
    holder[key] = deepcopy(random.choice(_JUNK))


def _put_strangers(random: Random, run: Json) -> None:
    objects = [run, *(holder[key] for holder, key in _places(run) if isinstance(holder[key], dict))]
    holder = random.choice([run, *objects])
    for name in random.sample(_STRANGERS, random.choice([1, 1, 2, 3, 8])):
        holder[name] = deepcopy(random.choice(_JUNK))


def _remove(random: Random, run: Json) -> None:
    holder, key = random.choice(_places(run))
    del holder[key]


def _repeat(random: Random, run: Json) -> None:
    lists = [holder[key] for holder, key in _places(run) if isinstance(holder[key], list) and holder[key]]
    for items in random.sample(lists, min(len(lists), 1)):
        items.extend(deepcopy(random.choices(items, k=random.choice([1, 2, 20]))))


def _leave_limits(random: Random, run: Json) -> None:
    model, holder = random.choice([(RunConfig, run), (TrainingConfig, run.setdefault("training", {}))])
    schemas = {name: branches(schema)[0] for name, schema in field_schemas(model).items()}
    name = random.choice([name for name, schema in schemas.items() if schema.get("type") in ("integer", "number")])
    edges = [schemas[name].get(limit, 1) for limit in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")]
    if isinstance(holder, dict):
        holder[name] = random.choice(edges) + random.choice([-1, -0.5, -0.001, 0, 0.001, 0.5, 1])


def _mix_up(random: Random, run: Json) -> None:
    """Settings that are fine by themselves and not together."""
    groups = [{"name": name, "instance_type": random.choice(random.choice([_FAST, _SLOW]))} for name in ("gpu", "cpu")]
    channel = {"name": "data", "s3_uri": "s3://bucket/x", "instance_groups": ["gpu"]}
    run.update(
        random.choice(
            [
                {"mode": "compare", "instance_groups": groups},
                {"mode": "compare", "fallback_instance_groups": [groups, groups[:1], []]},
                {"instance_groups": groups, "fallback_instance_groups": [groups, groups * 2]},
                {"channels": [channel, {"name": "more", "s3_uri": "s3://bucket/x"}, *[channel] * random.randint(0, 6)]},
                {"channels": [channel], "training": _mixed_data(random)},
                {"training": _mixed_data(random)},
                {"training": _mixed_transform(random)},
                {"training": {"steps": random.choice([1, None, "x", []]), "epochs": random.choice([2, None, {}, []])}},
                {"training": {"head_group": random.choice([*_NAMES, "nobody", KEY_ID, ["gpu"]])}},
                {"fallback_instance_groups": [[{"x": 1}] * 5] * 5},
                {"training": {"model_arguments": {"a": random.choice('yé"\n') * random.randint(2487, 2492), "b": 1}}},
                {"training": {"model_arguments": {"a": [0] * random.randint(97, 101), "b": [[]]}}},
                {"spot": True, "checkpoints": False},
                {"spot": True, "max_wait_seconds": random.choice([None, 3599, 3600.0, 5])},
                {"spot": random.choice([False, None, "x"]), "max_wait_seconds": 3600, "max_runtime_seconds": 3700},
            ]
        )
    )


def _mixed_data(random: Random) -> Json:
    return {
        "dataset": random.choice(["synthetic", "image_folder", "parquet", ["parquet"], None]),
        "data_uri": random.choice([None, "s3://bucket/x", 5, []]),
        "code_channel": random.choice([None, "code", "data", ["data"]]),
    }


def _mixed_transform(random: Random) -> Json:
    longest = "Pad(" + "1" * 73 + ")"
    steps = [_TRANSFORM_STEPS, [], ["Pad"] * 33, [longest] * random.randint(30, 31), ["Pad('\n')", 5, None, [KEY_ID]]]
    return {
        "transform": random.choice(["torchvision", "torchvision", "normalize", "my.code:crop", 5, None]),
        "transform_implementation": random.choice(["torchvision", "fused"]),
        "transform_steps": random.choice([*steps, [f"Normalize('{KEY_ID}')"], "Pad", None]),
    }


def _spoil_types(random: Random, run: Json) -> None:
    for group in run.get("instance_groups", [])[:2] if isinstance(run.get("instance_groups"), list) else []:
        if isinstance(group, dict):
            group["instance_type"] = random.choice(_TYPOS)


def _spoil_names(random: Random, run: Json) -> None:
    training = run.setdefault("training", {})
    if isinstance(training, dict):
        training["transform"] = random.choice([*BUILT_IN_TRANSFORMS, *_TRANSFORM_TYPOS])
        training["model"] = random.choice([*_MODEL_TYPOS, *(_mistyped(random, name) for name in MODELS[::100])])


def _mistyped(random: Random, name: str) -> str:
    """A name with some characters lost, and others in their place."""
    start = random.randint(0, len(name))
    return name[:start] + random.choice(["", "_", "-", "2", "/V", "."]) + name[start + random.randint(0, 3) :]


def _spoil_objects(random: Random, run: Json) -> None:
    odd = {random.choice(_STRANGERS): deepcopy(random.choice(_JUNK)) for _ in range(random.randint(1, 5))}
    run.update(random.choice([{"tags": odd}, {"training": {"model_arguments": odd}}]))


def _places(holder: Json) -> list[tuple[Json, Any]]:
    """Every place below a list or an object, as what holds it and its index or key there; a stand-in if none."""
    found = list(_places_below(holder))
    return found or [({"nothing": None}, "nothing")]


def _places_below(holder: Json) -> Iterator[tuple[Json, Any]]:
    keys = range(len(holder)) if isinstance(holder, list) else list(holder) if isinstance(holder, dict) else []
    for key in keys:
        yield holder, key
        yield from _places_below(holder[key])


_CHANGES: list[Callable[[Random, Json], None]] = [
    *(
        _put_junk,
        _put_junk,
        _put_strangers,
        _remove,
        _repeat,
        _leave_limits,
        _mix_up,
        _spoil_types,
        _spoil_names,
        _spoil_objects,
    )
]
