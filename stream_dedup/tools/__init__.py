"""Tools beside the product: the load generator and the index inspector."""
