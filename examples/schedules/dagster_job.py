"""Dagster: the build and its publication as two assets, made every night."""

import json
import os
import subprocess
from typing import Any

import dagster as dg

FOLDER = os.environ.get("POSTTRAIN_FOLDER", "/srv/posttrain")
PUBLISH_TO = os.environ.get("PUBLISH_TO", "s3://training-data/problems")
SURROUNDINGS = 5  # disk, network, a lock: a second attempt may succeed
AGAIN = dg.RetryPolicy(max_retries=2, delay=600)


def pipeline(*words: str) -> dict[str, Any]:
    """Run a command, and read the object that it prints, whatever happens."""
    command = ["pipeline", *words, "--quiet", "--json"]
    done = subprocess.run(command, cwd=FOLDER, stdout=subprocess.PIPE, check=False)
    found: dict[str, Any] = json.loads(done.stdout)
    if found["code"]:
        raise dg.Failure(
            f"{found['status']}: {found['message']}",
            metadata={"remedy": found["remedy"], "paths": dg.MetadataValue.json(found["paths"])},
            allow_retries=found["code"] == SURROUNDINGS,
        )
    return found


@dg.asset(retry_policy=AGAIN)
def training_data() -> dg.MaterializeResult:
    """The build, with its counts as metadata."""
    done = pipeline("build", "recipe.toml")
    figures = done["figures"]
    counts = {"rows": figures["rows"]["used"], "tokens": figures["tokens"]["trained"]}
    told = {"status": done["status"], "build_id": done["build_id"], "path": done["paths"]["build"]}
    return dg.MaterializeResult(metadata={**told, **counts})


@dg.asset(deps=[training_data], retry_policy=AGAIN)
def published_data() -> dg.MaterializeResult:
    """The copy of it that others read."""
    done = pipeline("publish", "releases", PUBLISH_TO)
    return dg.MaterializeResult(metadata={"files_sent": done["sent"], "bytes": done["bytes"]})


nightly = dg.define_asset_job("nightly", selection=[training_data, published_data])
defs = dg.Definitions(
    assets=[training_data, published_data],
    jobs=[nightly],
    schedules=[dg.ScheduleDefinition(job=nightly, cron_schedule="17 2 * * *")],
)
