"""One model family per file, data only: each provides PROFILES."""

from __future__ import annotations

from pathlib import Path

from stages import catalog
from stages.models.profile import ModelProfile

_TEMPLATES = Path(__file__).parent / "chat_templates"


def templates() -> list[str]:
    """The names of our chat templates."""
    return sorted(path.stem for path in _TEMPLATES.glob("*.jinja"))


def template(name: str) -> str:
    """The source of one of our chat templates."""
    return (_TEMPLATES / f"{name}.jinja").read_text("utf-8").removesuffix("\n")


def all_profiles() -> dict[str, ModelProfile]:
    """Every known profile by name."""
    families = [catalog.load(__name__, name, "PROFILES") for name in catalog.names(__name__)]
    return {profile.name: profile for family in families for profile in family}


def find(name: str) -> ModelProfile | None:
    """The profile with exactly this name, or with exactly this hub id."""
    profiles = all_profiles()
    if name in profiles:
        return profiles[name]
    return next((p for p in profiles.values() if name in p.model_ids), None)
