from benchmarks.live import *
