"""TorchTrainer for a cluster that lives just as long as its job; Ray's controller imports it, so it imports little."""

from typing import Any

import ray.train
import ray.train.torch
from ray.train.v2._internal.callbacks import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.execution.scaling_policy import FixedScalingPolicy


class FixedCluster(FixedScalingPolicy):
    """The scaling policy of a cluster that is what it is: nobody is asked for more hosts."""

    def after_controller_start(self, train_run_context: Any) -> None:
        """Request nothing."""

    def _maybe_send_resource_request(self) -> None:
        """Request nothing."""


class JobTrainer(ray.train.torch.TorchTrainer):
    """TorchTrainer without three helpers that a job with its own cluster and its own feed has no use for (ADR 3).

    The coordinator of an autoscaler, a cleaner of placement groups that asks a dashboard, which does not run here, once
    a second, and a manager of Ray Data datasets. Each is a process that costs the GPU host several CPU seconds of
    imports before the first step.
    """

    def _initialize_and_run_controller(self, **arguments: Any) -> ray.train.Result:
        unused = (PlacementGroupCleanerCallback, DatasetsCallback)
        callbacks = [item for item in arguments["callbacks"] if not isinstance(item, unused)]
        # To the type checker these are the classes of Ray Train 1; which they are is decided at import.
        policy = FixedCluster(self.scaling_config)  # type: ignore[arg-type]
        own = {**arguments, "scaling_policy": policy, "callbacks": callbacks}
        return super()._initialize_and_run_controller(**own)  # type: ignore[misc,no-any-return]
