"""What a successful execution returns, in JSONata: each arm's job with its metrics and cost, and the comparison."""

from infra.settings import REPORTS_PREFIX
from infra.workflow.failures import log_link
from infra.workflow.jsonata import Code, block, literal, merged
from infra.workflow.request import JOB_NAME
from infra.workflow.settings import WorkflowSettings

REPORT_KEY = f'"{REPORTS_PREFIX}/" & $stem & ".json"'


def observed_job() -> Code:
    """What the rest of the workflow needs to know of a DescribeTrainingJob answer.

    A job of this name that is older than the execution belongs to an execution of the same name long ago; the minute
    is for clocks that differ. It is looked at only after SageMaker said that the name is taken.
    """
    job = {
        "status": Code("$states.result.TrainingJobStatus"),
        "secondary_status": Code("$states.result.SecondaryStatus"),
        "is_ours": Code(
            "$job.is_name_taken ? $toMillis($states.result.CreationTime) + 60000"
            " >= $toMillis($states.context.Execution.StartTime) : true"
        ),
        "reason": Code("$states.result.FailureReason"),
        "model": Code("$states.result.ModelArtifacts.S3ModelArtifacts"),
        "training_seconds": Code("$states.result.TrainingTimeInSeconds"),
        "billable_seconds": Code("$states.result.BillableTimeInSeconds"),
        "interruptions": Code('$count($states.result.SecondaryStatusTransitions[Status = "Interrupted"])'),
        "metrics": Code("$merge([{}, $states.result.FinalMetricDataList.{MetricName: Value}])"),
    }
    return Code(literal(job))


def finished_arms(settings: WorkflowSettings) -> str:
    """`$finished` with the current arm, whose job, in the state's input, has completed.

    What the job cost is its hosts' price for the time that SageMaker bills; with spot, that time is shortened instead
    of the price. Without a price for every host the cost is null, and a note says which price is missing. Of a spot job
    the console shows the same savings: the share of the training's time that was not billed.
    """
    arm = {
        "job_name": Code(JOB_NAME),
        "model": Code("$states.input.model"),
        "metrics": Code("$states.input.metrics"),
        "billable_seconds": Code("$or_null($states.input.billable_seconds)"),
        "cost_usd": Code(
            "$price = null or $not($exists($states.input.billable_seconds)) ? null"
            " : $price * $states.input.billable_seconds / 3600"
        ),
        "price_usd_per_hour": Code("$price"),
        "logs": Code(log_link(settings)),
        "instance_groups": Code("$job.groups"),
    }
    spot = {
        "interruptions": Code("$states.input.interruptions"),
        "savings_share": Code(
            "$states.input.training_seconds > 0 and $exists($states.input.billable_seconds)"
            " ? 1 - $states.input.billable_seconds / $states.input.training_seconds : null"
        ),
    }
    where = literal(f" in {settings.region}; prices were read {settings.prices_read}")
    return block(
        or_null="function($value) { $exists($value) ? $value : null }",
        table=f"$lookup($prices, {literal(settings.region)})",
        unknown="[$job.groups[$not($exists($lookup($table, $.instance_type)))].instance_type]",
        price="$count($unknown) > 0 ? null : $sum($job.groups.($lookup($table, instance_type) * instance_count))",
        note=f'$count($unknown) > 0 ? {{"note": "no price for " & $join($unknown, ", ") & {where}}} : {{}}',
        spot=f'$run.spot ? {{"spot": {literal(spot)}}} : {{}}',
        result=f"$merge([$finished, {{$job.arm: $merge([{literal(arm)}, $note, $spot])}}])",
    )


def execution_output(settings: WorkflowSettings) -> Code:
    """The output of the execution, and the content of its report in S3."""
    compared = f'$run.mode = "compare" ? {{"results": {_comparison()}}} : {{}}'
    report = f"{literal(f's3://{settings.bucket_name}/')} & {REPORT_KEY}"
    return Code(merged('{"mode": $run.mode, "arms": $finished}', compared, f'{{"report": {report}}}'))


def _comparison() -> str:
    """The heterogeneous arm against the baseline; null where a figure is missing.

    Throughput over throughput, and that times price over price: images per dollar.
    """
    return block(
        new="$finished.heterogeneous",
        old="$finished.baseline",
        speedup="$old.metrics.images_per_second > 0 and $exists($new.metrics.images_per_second)"
        " ? $new.metrics.images_per_second / $old.metrics.images_per_second : null",
        result='{"speedup": $speedup, "price_performance":'
        " $speedup = null or $old.price_usd_per_hour = null or $new.price_usd_per_hour = null ? null"
        " : $speedup * $old.price_usd_per_hour / $new.price_usd_per_hour}",
    )
