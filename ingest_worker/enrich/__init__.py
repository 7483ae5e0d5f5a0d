"""What a paid model adds to passages before they are embedded. Off by default, cached, counted, and never in a document's way."""
