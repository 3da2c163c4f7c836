"""How a model of this build is to be stopped and prompted, and the tokenizer that says so."""
