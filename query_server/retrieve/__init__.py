"""From a query to cited passages: two legs over one snapshot, fused by rank and cut to a token budget."""
