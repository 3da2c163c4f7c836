"""``python -m posttrain_pipeline``: the command ``pipeline``, also where a folder hides that."""

from posttrain_pipeline.command import main

main()
