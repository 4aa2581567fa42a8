"""What pages and the JSON interface show: the types, which describe the interface, and builders."""
