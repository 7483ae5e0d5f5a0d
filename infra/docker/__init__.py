"""What containers need beside the packages: the images' recipe, the database's first roles, and the health check."""
