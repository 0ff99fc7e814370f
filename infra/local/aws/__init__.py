"""The embedded AWS: MiniStack on this machine with the SageMaker training service it lacks."""
