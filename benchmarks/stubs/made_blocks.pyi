from benchmarks.made_blocks import *
