"""Stands in for Ray: a node that leaves a daemon named raylet, and a node table that is a folder of files."""
