"""`python -m infra.client`: the `counterpoise` command."""

import sys

from infra.client.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
