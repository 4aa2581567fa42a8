"""Log lines labelled with the place in the code that wrote them, and how they are made."""
