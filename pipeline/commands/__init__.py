"""The commands: a file has those of one subject, each by its name."""

MEMBERS = {
    "build": "pipeline.commands.run:BUILD",
    "completion": "pipeline.commands.list:COMPLETION",
    "commit": "pipeline.commands.run:COMMIT",
    "diff": "pipeline.commands.show:DIFF",
    "doctor": "pipeline.commands.check:DOCTOR",
    "explain": "pipeline.commands.list:EXPLAIN",
    "init": "pipeline.commands.plan:INIT",
    "overlaps": "pipeline.commands.show:OVERLAPS",
    "overlay": "pipeline.commands.export:OVERLAY",
    "parts": "pipeline.commands.run:PARTS",
    "publish": "pipeline.commands.export:PUBLISH",
    "report": "pipeline.commands.show:REPORT",
    "stage": "pipeline.commands.cache:STAGE",
    "rollback": "pipeline.commands.versions:ROLLBACK",
    "shards": "pipeline.commands.run:SHARDS",
    "stops": "pipeline.commands.check:STOPS",
}
