"""The way of a row: from its dataset, in the order of the run, through the transform, to the model."""
