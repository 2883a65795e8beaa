"""How a source is read: one file per source, and the registry that names them."""
