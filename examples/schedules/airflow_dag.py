"""Airflow 3: a DAG that builds and publishes the training data every night."""

import os
import subprocess

import pendulum
from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowFailException

FOLDER = os.environ.get("POSTTRAIN_FOLDER", "/srv/posttrain")
PUBLISH_TO = os.environ.get("PUBLISH_TO", "s3://training-data/problems")
REFUSED = (1, 2, 3, 4)  # a second attempt would end in the same way


def pipeline(*words: str) -> None:
    """Run a command; only what the surroundings did (status 5) is tried again."""
    done = subprocess.run(["pipeline", *words, "--quiet"], cwd=FOLDER, check=False)
    if done.returncode in REFUSED:
        raise AirflowFailException(f"pipeline {words[0]} ended with status {done.returncode}")
    done.check_returncode()


@dag(
    schedule="17 2 * * *",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": pendulum.duration(minutes=10)},
)
def training_data() -> None:
    """Build, then publish."""

    @task
    def build() -> None:
        pipeline("build", "recipe.toml")

    @task
    def publish() -> None:
        pipeline("publish", "releases", PUBLISH_TO)

    build() >> publish()


training_data()
