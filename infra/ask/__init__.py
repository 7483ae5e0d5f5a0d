"""`docwell ask`: an MCP client with a model behind it, as an example of one. The server itself asks no model."""
