"""What changed in the counts of patterns. Pure: no input or output, no clock."""
