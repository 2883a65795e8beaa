"""What is true: the rows, and the few functions that may change them."""
