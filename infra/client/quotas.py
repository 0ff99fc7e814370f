"""Whether the account's quotas allow the hosts of a run."""

from collections import Counter
from collections.abc import Iterable

from infra.client.aws import Aws
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
    found: dict[str, tuple[str, float]] = {}
    for page in aws.pages("service-quotas", "ListServiceQuotas", ServiceCode=SERVICE):
        found |= {
            quota["QuotaName"]: (quota["QuotaCode"], quota["Value"])
            for quota in page["Quotas"]
            if quota["QuotaName"] in needed
        }
        if len(found) == len(needed):
            break
    problems = [
        f"{name} is {found[name][1]:g}, the run needs {count}; ask for more: `{_request(found[name][0], count)}`"
        for name, count in needed.items()
        if name in found and found[name][1] < count
    ]
    if problems:
        raise AwsError("; ".join(problems))
    return ", ".join(f"{name}: {found[name][1]:g}" if name in found else f"{name}: not listed" for name in needed)


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
