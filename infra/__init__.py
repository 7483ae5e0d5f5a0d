"""How Docwell is run: the command line, the embedded services, migrations and installation. Only this package composes."""
