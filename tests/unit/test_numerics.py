"""How a device computes: number and memory formats, and models that are compiled, also for several ranks."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.unit.one_rank import CLASSES, DESCRIPTION, ROWS, SIZE, make_batch
from training.contract import ContractError, TrainingConfig
from training.data.transforms import Normalize
from training.models import load_model, save_model
from training.numerics import Numerics, build_for_training, compile_errors_in_one_line, set_precision


def make_numerics(**settings: Any) -> Numerics:
    return Numerics(device=torch.device("cpu"), config=TrainingConfig(**settings), transform=Normalize())


def logits(model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        output: torch.Tensor = model(torch.linspace(-1, 1, 2 * 3 * SIZE * SIZE).view(2, 3, SIZE, SIZE))
    return output


def test_scores_come_in_the_number_format_and_the_loss_in_float32() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIZE * SIZE, CLASSES))
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)):
        numerics = make_numerics(precision=precision)
        inputs, labels = numerics.inputs(make_batch().images), make_batch().labels
        assert numerics.scores(model, inputs).dtype == dtype
        assert numerics.loss(model, inputs, labels).dtype == torch.float32


def test_images_come_in_the_memory_format_of_the_model() -> None:
    for channels_last in (False, True):
        inputs = make_numerics(channels_last=channels_last).inputs(make_batch().images)
        assert inputs.shape == (ROWS, 3, SIZE, SIZE)
        assert inputs.is_contiguous(memory_format=torch.channels_last) is channels_last


def test_only_tf32_rounds_what_float32_matrices_are_multiplied_with() -> None:
    backends: Any = torch.backends
    operations = (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn)
    before = [operation.fp32_precision for operation in operations]
    try:
        for precision, expected in (("tf32", "tf32"), ("fp32", "ieee"), ("bf16", "ieee"), ("fp16", "ieee")):
            set_precision(precision)
            assert [operation.fp32_precision for operation in operations] == [expected] * 3
    finally:
        for operation, value in zip(operations, before, strict=True):
            operation.fp32_precision = value


def test_channels_last_changes_where_weights_lie_and_not_what_is_saved(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = build_for_training(DESCRIPTION, TrainingConfig(channels_last=True)).eval()
    weight = model.get_parameter("patch_embed.proj.weight")
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert not weight.is_contiguous()
    save_model(model, tmp_path, DESCRIPTION)
    torch.testing.assert_close(logits(load_model(tmp_path)[0]), logits(model))


class Compiler:
    """Stands in for the compiler behind torch.compile: counts what it is given, and leaves it as it is."""

    def __init__(self, error: Exception | None = None) -> None:
        self.num_graphs = 0
        self._error = error

    def __call__(self, graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> Callable[..., Any]:
        self.num_graphs += 1
        if self._error:
            raise self._error
        return graph.forward


def use(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    monkeypatch.setattr(nn.Module, "compile", partialmethod(nn.Module.compile, backend=compiler))


def test_a_compiled_model_computes_the_same_and_keeps_the_names_of_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = Compiler()
    use(compiler, monkeypatch)
    torch.manual_seed(0)
    model = build_for_training(DESCRIPTION, TrainingConfig(compile=True)).eval()
    compiled_logits = logits(model)
    assert compiler.num_graphs == 1
    save_model(model, tmp_path, DESCRIPTION)
    torch.testing.assert_close(logits(load_model(tmp_path)[0]), compiled_logits)


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("process_group")
def test_a_compiled_model_is_cut_where_data_parallel_training_exchanges_gradients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiler = Compiler()
    use(compiler, monkeypatch)
    larger = replace(
        DESCRIPTION, arguments={**DESCRIPTION.arguments, "embed_dim": 256}
    )  # 3 MB; the first bucket takes 1 MB
    model = build_for_training(larger, TrainingConfig(compile=True))
    parallel = DistributedDataParallel(model)
    parallel(torch.zeros(2, 3, SIZE, SIZE)).sum().backward()
    assert compiler.num_graphs > 1
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_model_that_cannot_be_compiled_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    use(Compiler(RuntimeError("no working C++ compiler found\nmore of it")), monkeypatch)
    model = build_for_training(DESCRIPTION, TrainingConfig(compile=True))
    with pytest.raises(ContractError) as refusal, compile_errors_in_one_line():
        logits(model)
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).startswith("training.compile: true does not work here: ")
    assert "no working C++ compiler found" in str(refusal.value)
    assert str(refusal.value).endswith("; it needs a C and a C++ compiler")


def test_errors_of_the_model_itself_are_not_taken_for_errors_of_the_compiler() -> None:
    with pytest.raises(RuntimeError, match="out of memory"), compile_errors_in_one_line():
        raise RuntimeError("out of memory")
