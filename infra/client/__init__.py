"""The `counterpoise` command: starts, watches and reports executions of the deployed stack through AWS's API."""
