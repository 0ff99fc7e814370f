"""Checkpoint files: whole or not taken, whatever is left of them."""

from pathlib import Path
from random import Random

import pytest
import torch

from training import checkpoints
from training.checkpoints import Checkpoint, find, write


def make_checkpoint(step: int, size: int = 64) -> Checkpoint:
    return Checkpoint(
        step=step,
        rows_taken=10 * step,
        tensors={"model.weight": torch.full((size, size), float(step)), "optimizer.weight.count": torch.tensor(step)},
        identity={"model": "vit", "model_arguments": {"depth": 1}},
        figures={"loss": 0.5, "bad_rows": {"3": "3.jpg: broken"}},
    )


def newest_step(folder: Path) -> int | None:
    newest = find(folder).newest
    return newest.step if newest else None


def test_what_is_written_is_found(tmp_path: Path) -> None:
    for step in (100, 20, 1000):
        write(tmp_path, make_checkpoint(step))
    found = find(tmp_path)
    assert found.damaged == ()
    assert found.newest is not None
    expected = make_checkpoint(1000)
    torch.testing.assert_close(dict(found.newest.tensors), dict(expected.tensors), rtol=0, atol=0)
    for name in ("step", "rows_taken", "identity", "figures"):
        assert getattr(found.newest, name) == getattr(expected, name)
    assert [checkpoints.step_of(path) for path in checkpoints.files(tmp_path)] == [20, 100, 1000]
    assert len(list(tmp_path.iterdir())) == 3, "nothing else is left"


def test_an_empty_folder_has_none(tmp_path: Path) -> None:
    assert find(tmp_path) == checkpoints.Found(newest=None, damaged=())


def test_a_kill_during_the_newest_leaves_the_one_before(tmp_path: Path) -> None:
    for step in (100, 200):
        write(tmp_path, make_checkpoint(step))
    newest = write(tmp_path, make_checkpoint(300))
    with newest.open("r+b") as file:
        file.truncate(newest.stat().st_size // 2)
    found = find(tmp_path)
    assert (newest_step(tmp_path), found.damaged) == (200, (newest.name,))
    assert len(checkpoints.files(tmp_path)) == 3, "what is damaged, and what is older, stays"


def test_of_fifty_torn_or_changed_files_none_is_taken(tmp_path: Path) -> None:
    write(tmp_path, make_checkpoint(1))
    random = Random(7)
    for step in range(2, 52):
        path = write(tmp_path, make_checkpoint(step, size=8))
        content = bytearray(path.read_bytes())
        place = random.randrange(len(content))
        if step % 2:
            del content[place:]
        else:
            content[place] ^= 1 << random.randrange(8)
        path.write_bytes(content)
    found = find(tmp_path)
    assert newest_step(tmp_path) == 1
    assert len(found.damaged) == 50


def test_a_file_that_is_still_in_the_writing_has_no_checkpoints_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []

    def digest(written: Path) -> str:
        names.append(written.name)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "_digest", digest)
    with pytest.raises(OSError, match="No space"):
        write(tmp_path, make_checkpoint(1))
    assert names == [checkpoints._PARTIAL]
    assert newest_step(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_to_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="gone"):
        write(tmp_path / "gone", make_checkpoint(1))


def test_a_file_of_another_format_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "FORMAT_VERSION", 99)
    write(tmp_path, make_checkpoint(5))
    monkeypatch.undo()
    assert newest_step(tmp_path) is None


def test_any_rank_of_any_device_goes_on_with_its_own_random_numbers() -> None:
    cpu = torch.device("cpu")
    torch.manual_seed(1)
    tensors = checkpoints.random_state(cpu, rank=3)
    expected = torch.rand(4)
    checkpoints.set_random_state(cpu, tensors, rank=3)
    torch.testing.assert_close(torch.rand(4), expected, rtol=0, atol=0)
    torch.manual_seed(2)
    of_its_seed = torch.get_rng_state()
    checkpoints.set_random_state(cpu, tensors, rank=4)
    assert torch.equal(torch.get_rng_state(), of_its_seed)
