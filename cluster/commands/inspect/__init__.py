"""Commands that inspect existing data: validators' data folders, recorded runs, divergences, blocks and Ray nodes."""
