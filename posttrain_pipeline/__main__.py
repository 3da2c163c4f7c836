"""``python -m posttrain_pipeline`` is the command ``pipeline``, also where a folder hides that."""

from posttrain_pipeline.command import main

main()
