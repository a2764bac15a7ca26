"""What is kept of a live state: the walk over it, names, layouts, and the JSON of everything that is no tensor."""
