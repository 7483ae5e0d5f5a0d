"""How well questions are answered: sets of questions, metrics, significance and reports. It asks, and writes only reports."""
