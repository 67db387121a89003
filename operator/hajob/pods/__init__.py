"""The pods that Hajob makes, and their names: pure functions, models in, plain dictionaries out."""
