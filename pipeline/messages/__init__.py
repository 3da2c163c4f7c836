"""What a command tells people and machines: results, progress, explanations, whom it notifies."""
