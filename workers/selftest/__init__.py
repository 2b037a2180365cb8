"""Known faults, put into a running engine behind the checker's back, and the count of those it finds."""
