"""Whether the account's quotas allow the hosts of a run."""

from collections import Counter
from collections.abc import Collection, Iterable

from infra.client.aws import Aws
from infra.client.aws_errors import DENIED
from infra.client.errors import AwsError
from training.contract import InstanceGroup, RunConfig

SERVICE = "sagemaker"


def check_quotas(aws: Aws, config: RunConfig) -> str:
    """The quotas of the run's first composition, in words.

    Raises:
        AwsError: one of them is too small, or the caller may not ask.
    """
    kind = "spot training job usage" if config.spot else "training job usage"
    needed = {f"{name} for {kind}": count for name, count in hosts_by_type(config.instance_groups).items()}
    try:
        found = _listed(aws, needed)
    except AwsError as error:
        raise AwsError(f"the account's quotas could not be read: {_reason(error)}", error.code) from error
    problems = [
        f"{name} is {found[name][1]:g}, the run needs {count}; ask for more: `{_request(found[name][0], count)}`"
        for name, count in needed.items()
        if name in found and found[name][1] < count
    ]
    if problems:
        raise AwsError("; ".join(problems))
    return ", ".join(f"{name}: {found[name][1]:g}" if name in found else f"{name}: not listed" for name in needed)


def _listed(aws: Aws, names: Collection[str]) -> dict[str, tuple[str, float]]:
    """Code and value of the quotas of these names, as far as the account has them; raises AwsError."""
    found: dict[str, tuple[str, float]] = {}
    for page in aws.pages("service-quotas", "ListServiceQuotas", ServiceCode=SERVICE):
        for quota in page["Quotas"]:
            if quota["QuotaName"] in names:
                found[quota["QuotaName"]] = quota["QuotaCode"], quota["Value"]
        if len(found) == len(names):
            break
    return found


def _reason(error: AwsError) -> str:
    if error.code in DENIED:
        return "the caller has no permission for servicequotas:ListServiceQuotas"
    # What is no AWS, such as an emulator, may answer with nothing but a status of HTTP.
    return f"the answer was {error.code} without a reason" if error.code.isdigit() else str(error)


def hosts_by_type(groups: Iterable[InstanceGroup]) -> Counter[str]:
    """How many hosts of each instance type the groups have together."""
    hosts: Counter[str] = Counter()
    for group in groups:
        hosts[group.instance_type] += group.instance_count
    return hosts


def _request(quota_code: str, count: int) -> str:
    return (
        f"aws service-quotas request-service-quota-increase --service-code {SERVICE}"
        f" --quota-code {quota_code} --desired-value {count}"
    )
