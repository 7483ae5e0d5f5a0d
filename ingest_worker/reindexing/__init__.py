"""Another embedding model without downtime: a second space is filled beside the active one, and they change places."""
