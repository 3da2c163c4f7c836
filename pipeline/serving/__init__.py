"""How a model of a build is prompted and stopped: ``serving.json``, its tokenizer, ``stops``."""
