"""Features of an event, and the recipe that decides them."""
