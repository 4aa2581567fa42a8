"""Features: what an event is cut into, and the recipe that says how."""
