"""What is true about processing: its own tables, in a database of its own."""
