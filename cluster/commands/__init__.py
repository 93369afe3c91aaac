"""The commands of ``stampede``, a folder each."""
