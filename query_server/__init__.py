"""The read side: cited passages over MCP and on the command line. It only ever reads, and calls no language model."""
