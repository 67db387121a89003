"""What is written from the code: CRDs, the chart's values, the pages of reference, the wire's Python side."""
