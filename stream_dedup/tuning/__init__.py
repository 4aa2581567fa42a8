"""Finds the settings of a recipe that matter on a person's own events, without labels."""
