"""How many examples of a property are tried."""

from __future__ import annotations

from hypothesis import settings

USUAL_EXAMPLES = 60


def scaled(examples: int) -> int:
    """Return the examples to try under the profile, where so many are usual."""
    profile = settings.get_profile(settings.get_current_profile_name())
    return max(1, examples * profile.max_examples // USUAL_EXAMPLES)
