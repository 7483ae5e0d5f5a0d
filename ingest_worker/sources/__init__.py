"""Places that documents come from: folders, Confluence, SharePoint, and whatever implements `protocol.Source`."""
