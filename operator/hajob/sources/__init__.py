"""One file per fault source: pure parsers from raw objects to what the operator keeps of them, and to facts."""
