"""Files that the commands of the pages read."""
