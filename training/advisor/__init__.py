"""Which instances to rent: instance facts, dated prices, and what they mean for a run."""
