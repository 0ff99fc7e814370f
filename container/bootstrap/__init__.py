"""Process 1 of every host: discover, form the cluster, run, watch, tear down, tell the truth."""
