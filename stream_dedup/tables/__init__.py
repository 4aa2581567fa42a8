"""Tables: permuted fingerprints, found by nearness."""
