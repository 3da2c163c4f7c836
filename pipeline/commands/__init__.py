"""The commands: a file has those of one subject, each by its name."""

MEMBERS = {
    "build": "pipeline.commands.run:BUILD",
    "completion": "pipeline.commands.list:COMPLETION",
    "commit": "pipeline.commands.run:COMMIT",
    "diff": "pipeline.commands.show:DIFF",
    "doctor": "pipeline.commands.check:DOCTOR",
    "export": "pipeline.commands.check:EXPORT",
    "explain": "pipeline.commands.list:EXPLAIN",
    "init": "pipeline.commands.run:INIT",
    "overlaps": "pipeline.commands.show:OVERLAPS",
    "overlay": "pipeline.commands.check:OVERLAY",
    "parts": "pipeline.commands.run:PARTS",
    "plan": "pipeline.commands.run:PLAN",
    "publish": "pipeline.commands.check:PUBLISH",
    "report": "pipeline.commands.show:REPORT",
    "stage": "pipeline.commands.cache:STAGE",
    "rollback": "pipeline.commands.cache:ROLLBACK",
    "shards": "pipeline.commands.run:SHARDS",
    "stops": "pipeline.commands.check:STOPS",
    "versions": "pipeline.commands.cache:VERSIONS",
}
