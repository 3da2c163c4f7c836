"""What every conversation must be, and the templates that its texts may already carry."""
