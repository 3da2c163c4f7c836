"""What must be true of rows, for posttrain-pipeline.

``invariants/`` has one file per subject (labels, packs, ...): its metrics, and its invariants.
``readback/`` reads what metrics are computed from: stored rows, with their layout undone.
``metric_tables`` puts the metrics of all subjects into tables. ``validate`` checks rows by them
while a part is made; ``gate`` checks what was written, with Great Expectations (``gx/``) and
pyarrow, and gives a ``verdict``. ``audits/`` compute figures about the data as a whole.
"""

DISTRIBUTION = "posttrain-pipeline"
