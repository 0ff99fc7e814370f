"""Everything that runs outside the training image: provisioning, the client and the local runner."""
