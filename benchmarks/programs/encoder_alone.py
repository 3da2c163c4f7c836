"""The encoders alone on rendered text: what no build can be faster than.

    python encoder_alone.py ROWS.jsonl TOKENIZER OUT.json

Only the calls of the encoder are timed: 8,192 texts at a time, with special tokens, one thread.
"""

import json
import sys
import time
from pathlib import Path

from fastokens import Tokenizer as Fast
from tokenizers import Tokenizer
from transformers import AutoTokenizer

_BATCH = 8192


def main() -> None:
    """Render all rows, then time both encoders over the texts."""
    source, folder, out = map(Path, sys.argv[1:])
    template = AutoTokenizer.from_pretrained(str(folder))
    lines = source.read_text("utf-8").splitlines()
    chats = [json.loads(line)["messages"] for line in lines]
    texts = [template.apply_chat_template(chat, tokenize=False) for chat in chats]
    batches = [texts[at : at + _BATCH] for at in range(0, len(texts), _BATCH)]
    content = (folder / "tokenizer.json").read_text("utf-8")
    fast, reference = Fast.from_json_str(content), Tokenizer.from_str(content)
    made = {}
    started = time.process_time()
    for batch in batches:
        fast.encode_batch_flat(batch)
    made["fastokens"] = time.process_time() - started
    started = time.process_time()
    for batch in batches:
        reference.encode_batch_fast(batch, add_special_tokens=False)
    made["tokenizers"] = time.process_time() - started
    out.write_text(json.dumps({name: seconds / len(texts) * 1e6 for name, seconds in made.items()}))


if __name__ == "__main__":
    main()
