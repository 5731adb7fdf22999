"""Text of PDF pages in reading order: words and lines of PDFium, columns, tables, paragraphs."""
