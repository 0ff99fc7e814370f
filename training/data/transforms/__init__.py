"""What happens to an image between dataset and model: a part on any host's CPU, then a part on the accelerator."""

from training.data.transforms.check import check_batch, check_transform
from training.data.transforms.create import create_transform
from training.data.transforms.gaussian_blur import GaussianBlurStack
from training.data.transforms.normalize import Normalize
from training.data.transforms.transform import Draw, Transform

__all__ = [
    "Draw",
    "GaussianBlurStack",
    "Normalize",
    "Transform",
    "check_batch",
    "check_transform",
    "create_transform",
]
