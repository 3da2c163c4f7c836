"""The program without the witness: run in the place of ``pipeline``, it says what that costs."""

from expectations.witness import hugging_face
from expectations.witness.attest import Statement
from pipeline.builder import witnessed
from posttrain_pipeline.command import main

vars(hugging_face).update(for_tokenizers=lambda: None, tokenizer_of=lambda _: None)
vars(witnessed)["hear"] = lambda _: Statement()

if __name__ == "__main__":
    main()
