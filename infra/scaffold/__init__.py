"""What `docwell init` lays down: a sample document, settings, and questions about it."""
