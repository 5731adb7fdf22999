"""The calculator: numbers, units, functions, and the parser of expressions."""
