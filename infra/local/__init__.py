"""The embedded SageMaker: runs a training job on this machine, one namespaced host for every instance."""
