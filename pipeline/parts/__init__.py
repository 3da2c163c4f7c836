"""One split through the stages of a task, as a content-addressed part."""
