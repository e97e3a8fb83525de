"""Gates: where a flag becomes an intervention. Each module imports its framework; none is imported by default."""
