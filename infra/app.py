"""`python -m infra.app`: settings from the CDK's context, one stack, one cloud assembly."""

import sys

import aws_cdk as cdk

from infra.settings import DeploySettings
from infra.stack import CounterpoiseStack
from training.contract.errors import ContractError

EXIT_BAD_INPUT = 2


def main() -> int:
    """Synthesize: 0, or 2 with one line on standard error for each setting that is refused."""
    app = cdk.App()
    try:
        settings = DeploySettings.from_context(app.node.get_all_context())
    except ContractError as error:
        print(error, file=sys.stderr)
        return EXIT_BAD_INPUT
    CounterpoiseStack(app, settings.name, settings=settings)
    app.synth()
    return 0


if __name__ == "__main__":
    sys.exit(main())
