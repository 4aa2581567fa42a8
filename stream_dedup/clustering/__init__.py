"""Which events belong together, and for how long. Pure: no input or output, no clock."""
