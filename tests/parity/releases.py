"""Releases of trainers as they are installed, and a tiny model for a program of theirs."""

import os
import sys
from pathlib import Path

import pytest
import torch
from parity import ran as record
from parity.tiny import tiny
from support import Run

PEERS = Path(os.environ.get("POSTTRAIN_PEERS", Path(sys.prefix) / "peers"))


def peer_folder(peer: str) -> Path:
    """Where one release of a trainer is installed; fails the test where it is not."""
    record.now.peers.add(peer)
    root = PEERS / peer
    if not root.is_dir():
        pytest.fail(f"{root} is missing: make test-parity installs it")
    return root


def overlaid(pipeline: Run, folder: Path, build: Path) -> Path:
    """A tiny model with the tokenizer and configuration of a build, in ``folder / "model"``."""
    torch.manual_seed(0)
    tiny("CausalLM").save_pretrained(folder / "original")
    pipeline("overlay", folder / "original", "-o", folder / "model", "--build", build).ended()
    return folder / "model"
