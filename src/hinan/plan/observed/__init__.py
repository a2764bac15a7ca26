"""What runs and traces have shown, and what follows from it: costs, failure rates, the intervals of a running job."""
