"""Measures of quality and speed, ours beside other people's; not part of the installed package."""
