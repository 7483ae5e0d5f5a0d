"""From a file's bytes to a parsed document, in a limited child process."""
