"""Pages about builds: ``report.html``, the dataset card, ``diff``, ``show`` and what draws them."""
