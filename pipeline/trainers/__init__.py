"""A build in the columns of a trainer, and how that is started."""
