"""The sentences that the contract refuses with; a word in braces stands for what was found or what is allowed.

The command line fills them in from Python; the state machine says the same ones (infra/workflow/validation.py).
"""

SEE = "see docs/settings.md"
NOT_AN_INPUT = "{value} is not an object; allowed: a JSON object such as {{}}; write an object"
UNKNOWN = f"unknown setting; {SEE}"
UNKNOWN_WITH_NEAREST = f"unknown setting; nearest: {{names}}; {SEE}"
UNKNOWN_AND_MOVED = "unknown setting; {advice}"
MANY_UNKNOWN = f"{{num}} unknown settings; {SEE}"
MISSING = "missing; allowed: {allowed}; add it"
WRONG_KIND = "{value} is not {noun}; allowed: {allowed}"
OUT_OF_RANGE = "{value} is out of range; allowed: {allowed}; set it in that range"
NOT_A_CHOICE = "{value} is not one of the choices; allowed: {allowed}; choose one of them"
WRONG_FORM = "{value} has the wrong form; allowed: {allowed}; correct it"
TOO_MANY = "{num} {items}; allowed: {allowed}; remove or merge {items}"
TOO_FEW = "{num} {items}; allowed: {allowed}; add {items}"
MORE_PROBLEMS = "input: {num} more problems; correct these first"

NOT_A_TRAINING_TYPE = "{value} is not a SageMaker training type; nearest: {names}; name one of them"
TYPES_OF_NO_KIN = "none by name, ml.g5.xlarge with an accelerator, ml.c5.4xlarge without"
NOT_A_MODEL = "{value} is not a model of timm; nearest: {names}; name one of them"
MODELS_OF_NO_KIN = "none by name, vit_base_patch16_224 and resnet50 among many"
NOT_A_TRANSFORM = (
    "{value} is not a transform; nearest: {names}; name one of them or your own function as package.module:function"
)
NOT_AN_ARGUMENT = "{value} is not accepted; allowed: JSON scalars or one list of them; flatten it"
NOT_FINITE = "{value} is not a finite number; allowed: JSON values; set a finite number"
TOO_MANY_CHARACTERS = "over {limit} characters as JSON; allowed: {limit}; shorten it"
TAG_KEY_FORM = (
    "the key has the wrong form; allowed: 1 to 128 letters, digits, spaces or _.:/=+-@, not aws: at the start;"
    " rename it"
)
TAG_VALUE_ALLOWED = "0 to 256 letters, digits, spaces or _.:/=+-@"

USED_BY_TWO = "{value} is used by two {kind}s; {kind} names must differ; rename one"
NOT_A_GROUP = "{value} is not a group of {place}; allowed: {names}; name one of them"
NOT_A_CHANNEL = "{value} is not a channel of this run; allowed: {names}; name one of them"
NO_ACCELERATOR = (
    "compare needs a group with accelerators and there is none: {groups}; add one such as ml.g5.xlarge or set mode to"
    " train"
)
ONLY_ACCELERATORS = (
    "compare needs a group without accelerators and there is none: {groups}; add one such as ml.c5.4xlarge or set mode"
    " to train"
)
SOME_NAME_GROUPS = (
    "{naming} with instance_groups and {silent} without; allowed: all channels name some or none does; add or remove"
    " instance_groups"
)
WAIT_WITHOUT_SPOT = "{wait} is set and spot is false; allowed: null; remove it or set spot to true"
SPOT_WITHOUT_WAIT = (
    "null is no limit for spot; allowed: {runtime} (max_runtime_seconds) to {longest}; set it in that range"
)
WAIT_TOO_SHORT = (
    "{wait} is less than max_runtime_seconds, {runtime}; allowed: {runtime} to {longest}; set it in that range"
)
SPOT_WITHOUT_CHECKPOINTS = (
    "false loses every step when spot capacity is interrupted; allowed with spot: true; set it to true or spot to false"
)

STEPS_AND_EPOCHS = "{epochs} is set and steps is {steps}; allowed beside steps: null; remove one of the two"
URI_OF_NO_DATASET = (
    "{uri} is set and dataset is synthetic; allowed: null; remove it or set dataset to image_folder or parquet"
)
FUSED_ELSEWHERE = (
    "fused computes gaussian_blur_stack and transform is {transform}; allowed: torchvision; set that or remove it"
)
NO_TRANSFORM_STEPS = "0 transform steps and transform is torchvision; allowed: 1 to {most} transform steps; add some"
STEPS_OF_NO_TRANSFORM = (
    "{num} transform steps and transform is {transform}; allowed: 0 transform steps; remove them or set transform to"
    " torchvision"
)
