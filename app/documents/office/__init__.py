"""What the office formats share: relations, numbering, formulas, formats of numbers, text."""
