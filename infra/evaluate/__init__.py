"""What an evaluation needs besides asking: the corpus of a set in the index, for as long as it is asked."""
