"""How many events of a pattern came when, and what a decision about it would save. Pure."""
