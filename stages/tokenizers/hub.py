"""A hub model's files: from the local cache, else from the hub when it answers within 3 seconds."""

from __future__ import annotations

import os
from pathlib import Path

from stages.errors import ModelError

FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
)
PROBE_SECONDS = 3.0


def cached(model_id: str) -> Path | None:
    """The cached snapshot that has the model's tokenizer, without touching the network."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(model_id, "tokenizer.json")
    return Path(found).parent if isinstance(found, str) else None


def answers() -> bool:
    """Whether the hub may be asked, and answers within ``PROBE_SECONDS``."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=PROBE_SECONDS)
    except Exception:  # any failure of any HTTP backend means the same: no hub
        return False
    return True


def download(model_id: str) -> Path | None:
    """Fetch the model's tokenizer files; None when the hub cannot be reached.

    Raises:
        ModelError: the hub answers, but has no such model, or it may not be read.
    """
    if not answers():
        return None
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

    try:
        return Path(snapshot_download(model_id, allow_patterns=list(FILES)))
    except RepositoryNotFoundError as error:
        raise ModelError(f"The hub has no model {model_id!r}.", "Check its name.") from error
    except HfHubHTTPError as error:
        raise ModelError(
            f"The hub refuses {model_id!r}: {error}.", "Log in with: hf auth login"
        ) from error
